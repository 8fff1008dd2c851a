package overview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/openshift/controlplane"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// This file is about ControlPlaneMachineSets of OpenShift's API. Their counts and the reasons for their waits are read
// from the status. The judgement of the controller shows which machine is up to date.

// setFacts are the facts about a ControlPlaneMachineSet.
type setFacts struct {
	set      *machinev1.ControlPlaneMachineSet
	machines []machinev1beta1.Machine // the machines in the namespace of the set
	snapshot *controlplane.Snapshot
	// unknown has the problem of listing the nodes; the readiness of machines is not known then.
	unknown string
}

// controlPlaneMachineSets returns the sets of a namespace, or of all, with the machines of their namespaces.
func (g *gatherer) controlPlaneMachineSets(ctx context.Context, namespace string) ([]*setFacts, error) {
	q := Query{Namespace: namespace}
	listed, err := listObjects[machinev1.ControlPlaneMachineSet](ctx, g, ControlPlaneMachineSetKind, q)
	if err != nil {
		return nil, unlessNotServed(err)
	}
	var sets []*setFacts
	for _, set := range listed {
		machines, err := listObjects[machinev1beta1.Machine](ctx, g, Kind, Query{Namespace: set.Namespace})
		if err != nil {
			return nil, err
		}
		var nodes []corev1.Node
		for _, node := range g.listNodes(ctx).byName {
			nodes = append(nodes, *node)
		}
		f := &setFacts{set: set, unknown: g.nodes.unknown}
		for _, m := range machines {
			f.machines = append(f.machines, *m)
		}
		f.snapshot = controlplane.Judge(set, f.machines, nodes, g.cluster.Now())
		sets = append(sets, f)
	}
	return sets, nil
}

// setOf returns the set that has a machine; nil if none has it.
func setOf(m *machinev1beta1.Machine, sets []*setFacts) *setFacts {
	for _, f := range sets {
		if _, ok := f.machineState(m.Name); ok && f.set.Namespace == m.Namespace {
			return f
		}
	}
	return nil
}

// overview returns the state of the set.
func (f *setFacts) overview() *ControlPlane {
	o := &ControlPlane{
		APIGroup: ControlPlaneMachineSetKind.Group, Kind: ControlPlaneMachineSetKind.Kind,
		Namespace: f.set.Namespace, Name: f.set.Name, UID: string(f.set.UID),
		State: string(f.set.Spec.State), Strategy: string(f.set.Spec.Strategy.Type),
		Desired: int(ptr.Deref(f.set.Spec.Replicas, 3)), Updated: int(f.set.Status.UpdatedReplicas),
		Ready: int(f.set.Status.ReadyReplicas), Waits: f.waits(), remedy: f.remedy(),
	}
	if f.isDegraded() {
		o.Degraded = f.condition(controlplane.Degraded).Reason
	}
	for _, m := range f.snapshot.Machines {
		added := member{
			id: kinds.NewID(Kind, o.Namespace, m.Name), Membership: Membership{Set: o, Index: ptr.To(m.Index)},
			text: fmt.Sprintf("index %d: %s", m.Index, m.Name),
		}
		if m.FailureDomain != "" {
			added.text += ", " + m.FailureDomain
		}
		if !f.snapshot.IsOfPlatform {
			added.IsUpToDate = ptr.To(!m.IsOutdated)
			added.text += ", " + f.memberState(m)
		}
		o.members = append(o.members, added)
	}
	return o
}

// isNotReady reports whether a machine is known not to be ready.
func (f *setFacts) isNotReady(m controlplane.Machine) bool {
	return f.unknown == "" && !m.IsReady
}

func (f *setFacts) isInactive() bool {
	return f.set.Spec.State == machinev1.ControlPlaneMachineSetStateInactive
}

func (f *setFacts) isOnDelete() bool { return f.set.Spec.Strategy.Type == machinev1.OnDelete }

func (f *setFacts) isDegraded() bool {
	return f.condition(controlplane.Degraded).Status == metav1.ConditionTrue
}

func (f *setFacts) condition(kind string) metav1.Condition {
	return findCondition(f.set.Status.Conditions, kind)
}

func (f *setFacts) machineState(name string) (controlplane.Machine, bool) {
	for _, m := range f.snapshot.Machines {
		if m.Name == name {
			return m, true
		}
	}
	return controlplane.Machine{}, false
}

// waits returns why the set waits or is stopped, by its conditions.
func (f *setFacts) waits() string {
	degraded, failed := f.condition(controlplane.Degraded), f.condition(controlplane.Error)
	progressing, available := f.condition(controlplane.Progressing), f.condition(controlplane.Available)
	hasFailed := failed.Status == metav1.ConditionTrue
	switch {
	case f.set.DeletionTimestamp != nil && hasFailed && failed.ObservedGeneration == f.set.Generation:
		return "it is being deleted, and its machines can't be released: " + failed.Message
	case f.set.DeletionTimestamp != nil:
		return "it is being deleted, and releases its machines"
	case f.set.Status.ObservedGeneration < f.set.Generation:
		return "its last change is not yet observed by the controller"
	case f.isDegraded():
		return fmt.Sprintf("Degraded (%s): %s", degraded.Reason, degraded.Message)
	case hasFailed:
		return cmp.Or(failed.Message, failed.Reason)
	case progressing.Status == metav1.ConditionTrue:
		return cmp.Or(progressing.Message, progressing.Reason)
	case available.Status == metav1.ConditionFalse:
		return cmp.Or(available.Message, available.Reason)
	}
	return ""
}

// explain returns the explanation of the set, without its conditions and events.
func (f *setFacts) explain(ctx context.Context, g *gatherer) *diagnosis.Explanation {
	o := f.overview()
	e := o.explanation("ready")
	if f.unknown != "" {
		e.Unknown = append(e.Unknown, f.unknown)
	}
	if f.isInactive() && !f.isDegraded() {
		e.IsDone = f.condition(controlplane.Available).Status != metav1.ConditionFalse
		e.Add("it changes nothing while it is Inactive", f.activation()...)
	}
	o.addWaits(e)
	var awaited []*machinev1beta1.Machine
	for i := range f.machines {
		m := &f.machines[i]
		if state, ok := f.machineState(m.Name); ok && (state.IsDeleting || f.isNotReady(state)) {
			awaited = append(awaited, m)
		}
	}
	for _, machine := range g.gatherMachines(ctx, awaited) {
		machine.set = f
		addAwaited(e, machine.overview(), g.cluster.Now())
	}
	o.addMembers(e)
	return e
}

// memberState returns whether a machine is up to date, or which fields are not, and how the set handles it.
func (f *setFacts) memberState(m controlplane.Machine) string {
	switch changes := strings.Join(m.Changes, ", "); {
	case m.IsDeleting:
		return "being deleted"
	case !m.IsOutdated && f.isNotReady(m):
		return "up to date, and not ready"
	case !m.IsOutdated:
		return "up to date"
	case f.isInactive():
		return "outdated: " + changes
	case f.isOnDelete():
		return "outdated, replaced once it is deleted: " + changes
	default:
		return "outdated, to be replaced: " + changes
	}
}

// object returns the name of the set for runlevel, with its namespace.
func (f *setFacts) object() string {
	return fmt.Sprintf("controlplanemachineset/%s -n %s", f.set.Name, f.set.Namespace)
}

// activation returns how an administrator activates an Inactive set.
func (f *setFacts) activation() []string {
	activate := []string{
		"activate it, which can't be undone; to stop it later, delete it, and its machines stay:",
		fmt.Sprintf(`kubectl patch controlplanemachineset.%s %s -n %s --type=merge -p '{"spec":{"state":"Active"}}'`,
			Kind.Group, f.set.Name, f.set.Namespace),
	}
	if f.snapshot.IsOfPlatform { // no preview exists
		return activate
	}
	return append([]string{"see which machines it would replace:", "runlevel machines plan " + f.object()}, activate...)
}

// remedy returns the actions of an administrator that resolve Waits, except for the holds of the machines.
func (f *setFacts) remedy() []string {
	switch {
	case f.condition(controlplane.Error).Status == metav1.ConditionTrue:
		return []string{"it is retried with growing pauses; if a right is missing, the ClusterOperator " +
			"machine-controller " +
			"names it"}
	case f.set.DeletionTimestamp != nil, f.isInactive() && !f.isDegraded():
		return nil
	case f.isDegraded():
		return []string{"it creates and deletes no machine until an administrator has solved that; " +
			"docs/control-plane.md " +
			"has each reason (" + f.condition(controlplane.Degraded).Reason + ")"}
	case f.snapshot.IsOfPlatform: // it is not known which machines are outdated
		return nil
	}
	for _, m := range f.snapshot.Machines {
		if f.isOnDelete() && m.IsOutdated && !m.IsDeleting && f.isReplaceable(m.Name) {
			return []string{
				"with OnDelete, an administrator deletes outdated machines, one after the other:",
				fmt.Sprintf("kubectl delete machine.%s %s -n %s --wait=false", Kind.Group, m.Name, f.set.Namespace),
			}
		}
	}
	return []string{"preview its next steps:", "runlevel machines plan " + f.object()}
}

// isReplaceable reports whether a machine can be deleted, and is replaced then: nothing stops the set, and all its
// other machines are ready, and stay. It is false if the nodes are not known.
func (f *setFacts) isReplaceable(name string) bool {
	if f.isInactive() || f.set.DeletionTimestamp != nil || f.isDegraded() {
		return false
	}
	return !slices.ContainsFunc(f.snapshot.Machines, func(m controlplane.Machine) bool {
		return m.Name != name && (m.IsDeleting || !m.IsReady)
	})
}

// nodeHold returns the hold of a running machine whose node is missing or not ready. A nil set has no machines.
func (f *setFacts) nodeHold(machine, name string, node *corev1.Node) []Hold {
	if f == nil {
		return nil
	}
	if m, ok := f.machineState(machine); !ok || !f.isNotReady(m) {
		return nil
	}
	hold := Hold{Type: NodeNotReady, Object: new(kinds.NewID(kinds.Node, "", name)), Message: "its node does not exist"}
	if node != nil {
		ready := conditions.NodeReady(node)
		hold.Message = fmt.Sprintf("its node reports Ready=%s (%s)", ready.Status, ready.Reason)
		hold.Since = &ready.LastTransitionTime.Time
	}
	return []Hold{hold}
}

// nodeRemedy returns the remedy of a node because of which a machine of the set is not ready.
func (f *setFacts) nodeRemedy(h *Hold, machine, deletion string) []string {
	var remedy []string
	if h.Since != nil { // it exists
		remedy = append(remedy, "kubectl describe node "+h.Object.Name)
	}
	if f.isReplaceable(machine) {
		remedy = append(remedy, "if the node does not come back, delete the machine; its ControlPlaneMachineSet "+
			"creates "+
			"another one then:", deletion)
	}
	return remedy
}

// addReplacement adds how the set handles one of its machines. A nil set adds nothing.
func (f *setFacts) addReplacement(e *diagnosis.Explanation, name string) {
	if f == nil || f.snapshot.IsOfPlatform {
		return
	}
	m, _ := f.machineState(name)
	set := fmt.Sprintf("ControlPlaneMachineSet %s (index %d)", f.set.Name, m.Index)
	command := "runlevel why " + f.object()
	switch {
	case f.isInactive() && m.IsOutdated:
		e.Add(set+" would replace it once it is Active", m.Changes...)
	case f.isInactive():
	case f.isDegraded():
		e.Add(set+" is stopped, and replaces no machine: "+f.condition(controlplane.Degraded).Message, command)
	case m.IsDeleting:
		e.Add(set+" replaces it: "+f.successor(m), command)
	case m.IsOutdated && f.isOnDelete():
		e.Add(set+" replaces it once it is deleted", m.Changes...)
	case m.IsOutdated:
		e.Add(set+" replaces it, as it is outdated: "+f.successor(m), append(m.Changes, command)...)
	default:
		e.Add(set + " has it, and it is " + f.memberState(m))
	}
}

// replacement describes the replacement of a machine after its deletion. The set is nil if no set has the machine.
func (f *setFacts) replacement(machine *machinev1beta1.Machine) string {
	switch owner := metav1.GetControllerOfNoCopy(machine); {
	case owner != nil && (f == nil || owner.UID != f.set.UID):
		return "its " + owner.Kind + " creates another one then"
	case f == nil || f.isInactive() || f.set.DeletionTimestamp != nil:
		return "nothing replaces it then"
	case f.isDegraded():
		return "its ControlPlaneMachineSet creates another one once it is not Degraded"
	}
	return "its ControlPlaneMachineSet creates another one then"
}

// successor returns which machine takes the place of another one.
func (f *setFacts) successor(replaced controlplane.Machine) string {
	for _, m := range f.snapshot.Machines {
		switch {
		case m.Index != replaced.Index || m.Name == replaced.Name || m.IsDeleting || m.IsOutdated:
		case f.isNotReady(m):
			return "machine " + m.Name + " takes its place once it is ready"
		default:
			return "machine " + m.Name + " takes its place"
		}
	}
	return "a new machine takes its place"
}
