package manager_test

import (
	"fmt"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
)

// A crowdMember contains the properties of a machine of a crowd at its creation.
type crowdMember struct {
	name                   string
	setName                string // name of the set that created the machine, if any
	isClusterAPI           bool
	preDrain, preTerminate []string      // the names of hooks
	isExcluded             bool          // whether the machine is excluded from draining
	end                    time.Duration // how long the end of its infrastructure takes
}

// objects are the objects of a member. In Cluster API, the infrastructure is created beside the Machine.
func (m crowdMember) objects() []client.Object {
	if !m.isClusterAPI {
		return []client.Object{m.machine()}
	}
	infrastructure := &v1alpha1.KwokMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault,
		Name:      m.name,
	}}
	infrastructure.Spec.DeleteAfter.Duration = m.end
	return []client.Object{infrastructure, m.machine()}
}

func (m crowdMember) machine() client.Object {
	if m.isClusterAPI {
		return m.clusterAPIMachine()
	}
	machine := newMachine(m.name, m.end,
		machinev1beta1.LifecycleHooks{PreDrain: ownedHooks(m.preDrain), PreTerminate: ownedHooks(m.preTerminate)})
	if m.isExcluded {
		machine.Annotations = map[string]string{excludeAnnotation: ""}
	}
	return machine
}

func ownedHooks(names []string) []machinev1beta1.LifecycleHook {
	var hooks []machinev1beta1.LifecycleHook
	for _, name := range names {
		hooks = append(hooks, machinev1beta1.LifecycleHook{Name: name, Owner: "owner"})
	}
	return hooks
}

func (m crowdMember) clusterAPIMachine() *clusterv1.Machine {
	machine := newClusterAPIMachine(m.name)
	for _, name := range m.preDrain {
		machine.Annotations[clusterv1.PreDrainDeleteHookAnnotationPrefix+"/"+name] = "owner"
	}
	for _, name := range m.preTerminate {
		machine.Annotations[clusterv1.PreTerminateDeleteHookAnnotationPrefix+"/"+name] = "owner"
	}
	if m.isExcluded {
		machine.Annotations[clusterv1.ExcludeNodeDrainingAnnotation] = ""
	}
	return machine
}

// newClusterAPIMachine returns a Machine of Cluster API whose infrastructure is a KwokMachine of its name.
func newClusterAPIMachine(name string) *clusterv1.Machine {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault, Name: name, Annotations: map[string]string{},
	}}
	machine.Spec.ClusterName = clusterName
	machine.Spec.Bootstrap.DataSecretName = ptr.To("none")
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: v1alpha1.GroupVersion.Group, Kind: "KwokMachine", Name: name,
	}
	// else a Node may remain when the API server is down
	machine.Spec.Deletion.NodeDeletionTimeoutSeconds = ptr.To[int32](0)
	return machine
}

// clusterName is the name of the Cluster that Machines of Cluster API are of.
const clusterName = "crowd"

// makeCluster creates a Cluster whose control plane has no Machines, and a rule for the pods that drains must spare.
func (s *scene) makeCluster() {
	s.t.Helper()
	inDefault := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: clusterName}
	plane := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infrastructure.runlevel.dev/v1alpha1", "kind": "ScriptedMachine",
		"status": map[string]any{"externalManagedControlPlane": true},
	}}
	plane.SetNamespace(inDefault.Namespace)
	plane.SetName(inDefault.Name)
	cluster := &clusterv1.Cluster{ObjectMeta: inDefault}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: v1alpha1.GroupVersion.Group, Kind: "ScriptedMachine", Name: clusterName,
	}
	rule := &clusterv1.MachineDrainRule{ObjectMeta: inDefault}
	rule.Spec.Drain.Behavior = clusterv1.MachineDrainRuleDrainBehaviorSkip
	rule.Spec.Pods = []clusterv1.MachineDrainRulePodSelector{
		{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{sparedLabel: "yes"}}},
	}
	for _, object := range []client.Object{plane, cluster, rule} {
		s.must(s.Create(s.t.Context(), object))
	}
}

// make creates size machines of each API, some with hooks.
func (c *crowd) make(size int) {
	for i := range 2 * size {
		m := crowdMember{
			name: fmt.Sprintf("%s-%d", c.wave, i), isClusterAPI: i%2 == 1,
			end: time.Duration(c.random.IntN(1000)) * time.Millisecond, isExcluded: c.random.IntN(10) == 0,
		}
		if c.random.IntN(c.hookedOf) == 0 {
			m.preDrain, m.preTerminate = c.hooks("Drain"), c.hooks("Terminate")
		}
		c.members = append(c.members, m)
	}
	c.each(len(c.members), func(i int) error {
		for _, object := range c.members[i].objects() {
			if err := c.Create(c.t.Context(), object); err != nil {
				return err
			}
		}
		return nil
	})
	c.await(func() string {
		running := 0
		for _, m := range c.states() {
			if m.phase == machinev1beta1.PhaseRunning {
				running++
			}
		}
		return unless(running == len(c.members), "%d of %d machines are running", running, len(c.members))
	})
}

// hooks returns up to two names of hooks.
func (c *crowd) hooks(kind string) []string {
	var names []string
	for i := range c.random.IntN(3) {
		names = append(names, fmt.Sprintf("Hook%s%d", kind, i))
	}
	return names
}

// populate runs a pod on a third of the nodes. Budgets forbid to evict half of these pods; a rule spares some of the
// other ones on nodes of Cluster API.
func (c *crowd) populate() {
	var pods []*corev1.Pod
	sizes := map[string]int{}
	for _, member := range c.members {
		if c.random.IntN(3) > 0 {
			continue
		}
		pod := newPod(member.name, member.name)
		switch budget := fmt.Sprintf("%s-budget-%d", c.wave, c.random.IntN(crowdBudgets)); {
		case c.random.IntN(2) == 0:
			c.budgets[member.name], pod.Labels["budget"] = budget, budget
			sizes[budget]++
		case member.isClusterAPI && c.random.IntN(4) == 0:
			pod.Labels[sparedLabel] = "yes"
		}
		pods = append(pods, pod)
	}
	c.each(len(pods), func(i int) error { return c.Create(c.t.Context(), pods[i]) })
	for budget, size := range sizes {
		c.must(c.Create(c.t.Context(), &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: budget},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MinAvailable: &intstr.IntOrString{IntVal: int32(size)},
				Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"budget": budget}},
			},
		}))
	}
	c.await(func() string {
		var list policyv1.PodDisruptionBudgetList
		c.must(c.List(c.t.Context(), &list))
		for _, b := range list.Items {
			if int(b.Status.CurrentHealthy) != sizes[b.Name] {
				return fmt.Sprintf("%d of %d pods of %s are healthy", b.Status.CurrentHealthy, sizes[b.Name], b.Name)
			}
		}
		return ""
	})
}
