package manager_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// crowdBudgets is the number of budgets that forbid to evict pods of a crowd.
const crowdBudgets = 3

// states returns the states of the machines of both APIs.
func (s *scene) states() []*machineState {
	s.t.Helper()
	var states []*machineState
	for _, m := range s.machines() {
		states = append(states, stateOfOpenShift(&m))
	}
	var list clusterv1.MachineList
	s.must(s.List(s.t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)))
	for _, m := range list.Items {
		states = append(states, stateOfClusterAPI(&m))
	}
	return states
}

// holdOf returns the hold that a machine being deleted must report: the reason for the wait, and the names of the
// objects or hooks that hold the machine. There are no names if nothing holds the machine.
func (c *crowd) holdOf(m *machineState) (wait string, names []string) {
	budget := c.budgets[m.Name]
	switch {
	case m.isHeldBeforeDrain():
		return waitsForPreDrain, m.preDrain
	case !m.isExcluded && budget != "":
		return waitsForPods, []string{budget}
	default:
		return waitsForPreTerminate, m.preTerminate
	}
}

// held counts the machines that are held.
func (c *crowd) held() int {
	count := 0
	for _, m := range c.states() {
		if _, names := c.holdOf(m); len(names) > 0 {
			count++
		}
	}
	return count
}

// unexplained describes a remaining machine that does not report the reason for its hold, or returns "".
func (c *crowd) unexplained() string {
	for _, m := range c.states() {
		wait, names := c.holdOf(m)
		message, isReported := m.waits[wait]
		isUnnamed := func(name string) bool { return !strings.Contains(message, name) }
		if len(names) == 0 || !isReported || slices.ContainsFunc(names, isUnnamed) {
			return fmt.Sprintf("%s does not report that it waits for %s %q: it is in stage %d, with %q", m.Name, wait,
				names, m.stage, m.waits)
		}
	}
	return ""
}

// releases returns functions that remove the holds of the remaining machines, in random order.
func (c *crowd) releases() []func() {
	var all []func()
	for _, m := range c.states() {
		for _, hook := range slices.Concat(m.preDrain, m.preTerminate) {
			all = append(all, func() { c.release(m, hook) })
		}
	}
	for i := range crowdBudgets {
		all = append(all, func() { c.removeBudget(fmt.Sprintf("%s-budget-%d", c.wave, i)) })
	}
	c.shuffle(all)
	return all
}

// release removes a hook of a machine, if the machine still exists.
func (c *crowd) release(m *machineState, hook string) {
	if !m.isClusterAPI {
		c.removeHook(m.Name, hook)
		return
	}
	patch := client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, hook))
	c.must(client.IgnoreNotFound(c.Patch(c.t.Context(), newClusterAPIMachine(m.Name), patch)))
}

func (c *crowd) removeBudget(name string) {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault,
		Name:      name,
	}}
	c.must(client.IgnoreNotFound(c.Delete(c.t.Context(), budget)))
	maps.DeleteFunc(c.budgets, func(_, text string) bool { return text == name })
}
