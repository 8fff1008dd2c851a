package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// A Snapshot is the observed state of a set, its machines and the nodes of the control plane, and what follows from it.
// The machines may belong to the cache: they must not be changed.
type Snapshot struct {
	set        *machinev1.ControlPlaneMachineSet
	machines   map[string]*machinev1beta1.Machine // by name
	indexes    map[string]int                     // of the machines
	template   *machineTemplate
	placements map[int]int // from indexes to the numbers of failure domains; empty without domains
	slots      []Slot
	problem    Problem
	plan       Plan
	adopt      []string
	after      time.Duration // until the next node counts as not ready; 0 if there is none
}

// wanted is how many machines the set wants.
func (c *Snapshot) wanted() int { return int(ptr.Deref(c.set.Spec.Replicas, 3)) }

// hasWork reports whether there is something to write besides the status.
func (c *Snapshot) hasWork() bool {
	return c.set.DeletionTimestamp != nil || len(c.adopt) > 0 || len(c.plan.Create) > 0 || len(c.plan.Delete) > 0
}

// read reads a set, its machines and the nodes. It returns nil if the set does not exist. It uses only lists, whose
// permission the watches need as well.
func (r *Reconciler) read(ctx context.Context, reader client.Reader, key types.NamespacedName) (*Snapshot, error) {
	var list machinev1beta1.MachineList
	if err := reader.List(ctx, &list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	var sets machinev1.ControlPlaneMachineSetList
	if err := reader.List(ctx, &sets, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ControlPlaneMachineSets: %w", err)
	}
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	at := slices.IndexFunc(sets.Items, func(set machinev1.ControlPlaneMachineSet) bool { return set.Name == key.Name })
	if at < 0 {
		return nil, nil
	}
	return observe(&sets.Items[at], list.Items, nodes.Items, r.now()), nil
}

// observe returns the state of a set, of the Machines of its namespace, and of nodes.
func observe(set *machinev1.ControlPlaneMachineSet, machines []machinev1beta1.Machine, nodes []corev1.Node,
	now time.Time) *Snapshot {
	c := &Snapshot{set: set.DeepCopy(), machines: map[string]*machinev1beta1.Machine{}}
	selector, err := c.readSpec()
	if err != nil {
		c.problem = Problem{invalidConfiguration, err.Error()}
	}
	for i := range machines {
		m := &machines[i]
		if selector != nil && selector.Matches(labels.Set(m.Labels)) ||
			replicas.OwnerOf(m, c.set.UID) == replicas.Ours {
			c.machines[m.Name] = m
		}
	}
	if c.problem.Reason == "" {
		c.judge(nodes, now)
	}
	return c
}

// readSpec reads the template and the selector of the set.
func (c *Snapshot) readSpec() (labels.Selector, error) {
	template := c.set.Spec.Template.OpenShiftMachineV1Beta1Machine
	if template == nil {
		return nil, fmt.Errorf("spec.template has no %s", machinev1.OpenShiftMachineV1Beta1MachineType)
	}
	selector, err := replicas.SelectorOf(&c.set.Spec.Selector, template.ObjectMeta.Labels)
	if err != nil {
		return nil, err
	}
	c.template, err = readTemplate(template)
	return selector, err
}

// judge computes the slots, and what is to be done.
func (c *Snapshot) judge(nodes []corev1.Node, now time.Time) {
	c.indexes = indexesOf(c.machines)
	values := map[string]map[string]any{}
	for name, m := range c.machines {
		values[name] = valueOf(m)
	}
	c.placements = c.place(values)
	machines := make([]Machine, 0, len(c.machines))
	for name, m := range c.machines {
		machine := Machine{
			Name: name, Index: c.indexes[name], Created: m.CreationTimestamp.Time,
			Owner:      replicas.OwnerOf(m, c.set.UID),
			IsDeleting: m.DeletionTimestamp != nil, Error: ptr.Deref(m.Status.ErrorMessage, ""), Detail: detailOf(m),
			IsUnplaced: len(c.template.domains) > 0 && c.template.domainOf(values[name]) == none,
			IsOutdated: !reflect.DeepEqual(c.template.wanted(c.domain(c.indexes[name])), values[name]),
		}
		var after time.Duration
		machine.IsReady, after = readinessOf(m, nodes, now)
		if after > 0 && (c.after == 0 || after < c.after) {
			c.after = after
		}
		machines = append(machines, machine)
	}
	c.slots = slotsOf(c.wanted(), machines)
	c.problem = problemOf(c.set.Spec, c.wanted(), c.slots, c.unmanaged(nodes))
	if c.set.Spec.State != machinev1.ControlPlaneMachineSetStateActive || c.problem.Reason != "" {
		c.plan.Waits = waitsOf(c.slots)
		return
	}
	c.plan = planReplacement(c.set.Spec.Strategy.Type, c.wanted(), c.slots)
	c.adopt = namesOf(c.slots, func(m Machine) bool { return m.Owner == replicas.Orphan })
}

// place assigns failure domains to the indexes. Of several machines of an index, the newest one that stays decides.
func (c *Snapshot) place(values map[string]map[string]any) map[int]int {
	newest := map[int]*machinev1beta1.Machine{}
	for name, m := range c.machines {
		if other, ok := newest[c.indexes[name]]; !ok || isBefore(other, m) {
			newest[c.indexes[name]] = m
		}
	}
	current := map[int]placement{}
	for index, m := range newest {
		current[index] = placement{domain: c.template.domainOf(values[m.Name]), isLeaving: m.DeletionTimestamp != nil}
	}
	var indexes []int
	for index := range newest {
		indexes = append(indexes, index)
	}
	for index := 0; len(indexes) < c.wanted(); index++ {
		if _, ok := newest[index]; !ok {
			indexes = append(indexes, index)
		}
	}
	slices.Sort(indexes)
	return spread(indexes, current, len(c.template.domains))
}

// isBefore reports whether a machine of an index decides about its failure domain less than another one.
func isBefore(a, b *machinev1beta1.Machine) bool {
	if (a.DeletionTimestamp != nil) != (b.DeletionTimestamp != nil) {
		return a.DeletionTimestamp != nil
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// domain returns the number of the failure domain of an index, or none.
func (c *Snapshot) domain(index int) int {
	if domain, ok := c.placements[index]; ok {
		return domain
	}
	return none
}

// unmanaged returns the nodes of the control plane that no machine has.
func (c *Snapshot) unmanaged(nodes []corev1.Node) []string {
	managed := map[string]bool{}
	for _, m := range c.machines {
		managed[enqueue.NodeName(m)] = true
	}
	var names []string
	for i := range nodes {
		if deletion.IsControlPlane(&nodes[i]) && !managed[nodes[i].Name] {
			names = append(names, nodes[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// valueOf returns the infrastructure object in the spec of a machine; nil if there is none.
func valueOf(m *machinev1beta1.Machine) map[string]any {
	var value map[string]any
	if m.Spec.ProviderSpec.Value == nil || json.Unmarshal(m.Spec.ProviderSpec.Value.Raw, &value) != nil {
		return nil
	}
	return value
}

// indexesOf returns the index of each machine: the one in its annotation, the number at the end of its name, or else
// the lowest that no other machine has.
func indexesOf(machines map[string]*machinev1beta1.Machine) map[string]int {
	indexes, taken := map[string]int{}, map[int]bool{}
	var unnumbered []string
	for name, m := range machines {
		index, ok := numberIn(cmp.Or(m.Annotations[annotation.ControlPlaneIndex], name))
		if !ok {
			unnumbered = append(unnumbered, name)
			continue
		}
		indexes[name], taken[index] = index, true
	}
	slices.Sort(unnumbered)
	next := 0
	for _, name := range unnumbered {
		for taken[next] {
			next++
		}
		indexes[name], taken[next] = next, true
	}
	return indexes
}

// numberIn returns the number at the end of a name, after its last dash.
func numberIn(name string) (int, bool) {
	number, err := strconv.ParseUint(name[strings.LastIndex(name, "-")+1:], 10, 31)
	return int(number), err == nil
}

// detailOf returns the phase of a machine, or what holds its deletion.
func detailOf(m *machinev1beta1.Machine) string {
	phase := cmp.Or(ptr.Deref(m.Status.Phase, ""), "new")
	if m.DeletionTimestamp == nil {
		return phase
	}
	stage, _ := deletion.StageOpenShift(m)
	var hooks []machinev1beta1.LifecycleHook
	switch stage {
	case deletion.BeforeDrain:
		hooks = m.Spec.LifecycleHooks.PreDrain
	case deletion.BeforeTerminate:
		hooks = m.Spec.LifecycleHooks.PreTerminate
	default:
		return "its node is drained, or its infrastructure deleted"
	}
	held := fmt.Sprintf("held by the hook %s of %s", hooks[0].Name, hooks[0].Owner)
	if why := m.Annotations[deletion.HookStatusAnnotation(stage, hooks[0].Name)]; why != "" {
		held += ": " + why
	}
	return held
}
