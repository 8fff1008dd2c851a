package overview

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/openshift/controlplane"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A ControlPlaneExplanation explains the state of what replaces the machines of a control plane.
type ControlPlaneExplanation struct {
	Statements []diagnosis.Message // the most important first
	Unknown    []string
	IsDone     bool // it waits for nothing
}

// IsControlPlane reports whether ExplainControlPlane explains the objects of a kind.
func IsControlPlane(id kinds.ID) bool {
	return id.GroupKind() == ControlPlaneMachineSetKind || id.GroupKind() == RunlevelControlPlaneKind
}

// ExplainControlPlane returns what a set or a control plane waits for, which hooks hold its machines, and what to do.
// It returns nil if the object does not exist.
func ExplainControlPlane(ctx context.Context, c *cluster.Cluster, id kinds.ID) (*ControlPlaneExplanation, error) {
	g := &machineGatherer{cluster: c}
	explain := g.explainSet
	if id.GroupKind() == RunlevelControlPlaneKind {
		explain = g.explainPlane
	}
	e, object, conditions, err := explain(ctx, id)
	if e == nil || err != nil {
		return nil, err
	}
	events, err := eventsOf(ctx, c, object)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		e.Unknown = append(e.Unknown, inLine(requestError("list events in namespace "+id.Namespace, err)))
	}
	details := &MachineExplanation{}
	details.addDetails(conditions, events, c.Now())
	e.Statements = append(e.Statements, details.Statements...)
	return e, nil
}

// explainSet returns the explanation of a ControlPlaneMachineSet, without its conditions and events, and these
// conditions. It returns nil if the set does not exist.
func (g *machineGatherer) explainSet(ctx context.Context,
	id kinds.ID) (*ControlPlaneExplanation, metav1.Object, []metav1.Condition, error) {
	sets, err := g.controlPlaneSets(ctx, id.Namespace)
	for _, f := range sets {
		if f.set.Name == id.Name {
			return f.explain(ctx, g), f.set, f.set.Status.Conditions, err
		}
	}
	return nil, nil, nil, err
}

// explain returns the explanation of the set, without its conditions and events.
func (f *setFacts) explain(ctx context.Context, g *machineGatherer) *ControlPlaneExplanation {
	o, now := f.overview(), g.cluster.Now()
	e := &ControlPlaneExplanation{IsDone: o.Waits == ""}
	if f.unknown != "" {
		e.Unknown = append(e.Unknown, f.unknown)
	}
	e.add(fmt.Sprintf("it is %s (%s): %d machines are desired, %d are up to date, %d are ready", f.set.Spec.State,
		o.Strategy, o.Desired, o.Updated, o.Ready))
	if f.isInactive() && o.Degraded == "" {
		e.IsDone = f.condition(controlplane.Available).Status != metav1.ConditionFalse
		e.add("it changes nothing while it is Inactive", f.activation()...)
	}
	if o.Waits != "" {
		e.add("it waits: "+o.Waits, f.remedy()...)
	}
	var awaited []*machinev1beta1.Machine
	for i := range f.machines {
		m := &f.machines[i]
		if judged, ok := f.judgedMachine(m.Name); ok && (judged.IsDeleting || f.isNotReady(judged)) {
			awaited = append(awaited, m)
		}
	}
	for _, machine := range g.facts(ctx, awaited) {
		machine.set = f
		e.addMachine(judge(machine), machine.remedy, now)
	}
	e.addMembers(f)
	return e
}

func (f *setFacts) isInactive() bool {
	return f.set.Spec.State == machinev1.ControlPlaneMachineSetStateInactive
}

func (f *setFacts) judgedMachine(name string) (controlplane.Machine, bool) {
	for _, m := range f.judged.Machines {
		if m.Name == name {
			return m, true
		}
	}
	return controlplane.Machine{}, false
}

func (e *ControlPlaneExplanation) add(text string, details ...string) {
	e.Statements = append(e.Statements, diagnosis.Message{Text: text, Details: details})
}

// addMachine adds what holds a machine that the control plane waits for, and what to do about it.
func (e *ControlPlaneExplanation) addMachine(m MachineOverview, remedy func(*MachineHold) []string, now time.Time) {
	e.Unknown = append(e.Unknown, m.Unknown...)
	for i := range m.Holds {
		hold := m.Holds[i].statement(remedy(&m.Holds[i]), now)
		e.add(fmt.Sprintf("machine %s (%s): %s", m.Name, m.Phase, strings.TrimPrefix(hold.Text, "it ")),
			hold.Details...)
	}
}

// addMembers adds the machines of the set, with the fields that are outdated.
func (e *ControlPlaneExplanation) addMembers(f *setFacts) {
	var lines []string
	for _, m := range f.judged.Machines {
		line := fmt.Sprintf("index %d: %s", m.Index, m.Name)
		if m.FailureDomain != "" {
			line += ", " + m.FailureDomain
		}
		if !f.judged.IsOfPlatform {
			line += ", " + f.standing(m)
		}
		lines = append(lines, line)
	}
	if len(lines) > 0 {
		e.add("its machines:", lines...)
	}
}

// standing returns whether a machine is up to date, or which fields are not, and what becomes of it.
func (f *setFacts) standing(m controlplane.Machine) string {
	isOnDelete := f.set.Spec.Strategy.Type == machinev1.OnDelete
	switch changes := strings.Join(m.Changes, ", "); {
	case m.IsDeleting:
		return "being deleted"
	case !m.IsOutdated && f.isNotReady(m):
		return "up to date, and not ready"
	case !m.IsOutdated:
		return "up to date"
	case f.isInactive():
		return "outdated: " + changes
	case isOnDelete:
		return "outdated, replaced once it is deleted: " + changes
	default:
		return "outdated, to be replaced: " + changes
	}
}

// command returns a kubectl command on the set.
func (f *setFacts) command(verb, rest string) string {
	return fmt.Sprintf("kubectl %s controlplanemachineset.%s %s -n %s%s", verb, Kind.Group, f.set.Name, f.set.Namespace,
		rest)
}

func (f *setFacts) plan() string {
	return fmt.Sprintf("runlevel machines plan controlplanemachineset/%s -n %s", f.set.Name, f.set.Namespace)
}

// activation returns how an Inactive set is activated.
func (f *setFacts) activation() []string {
	activate := []string{
		"activate it, which can't be undone; to stop it later, delete it, and its machines stay:",
		f.command("patch", ` --type=merge -p '{"spec":{"state":"Active"}}'`),
	}
	if f.judged.IsOfPlatform { // there is no preview
		return activate
	}
	return append([]string{"see which machines it would replace:", f.plan()}, activate...)
}

// remedy returns what to do about what the set waits for, beside what holds its machines.
func (f *setFacts) remedy() []string {
	switch degraded := f.condition(controlplane.Degraded); {
	case f.condition(controlplane.Error).Status == metav1.ConditionTrue:
		return []string{"it is tried again, with growing pauses; if a right is missing, the ClusterOperator " +
			"machine-controller names it"}
	case f.set.DeletionTimestamp != nil, f.isInactive() && degraded.Status != metav1.ConditionTrue:
		return nil
	case degraded.Status == metav1.ConditionTrue:
		return []string{"it creates and deletes no machine until an administrator has solved that; " +
			"docs/control-plane.md has each reason (" + degraded.Reason + ")"}
	case f.judged.IsOfPlatform: // which machines are outdated is not known
		return nil
	}
	if f.set.Spec.Strategy.Type == machinev1.OnDelete {
		for _, m := range f.judged.Machines {
			if m.IsOutdated && !m.IsDeleting && f.isReplaceable(m.Name) {
				return []string{"with OnDelete, an administrator deletes outdated machines, one after the other:",
					fmt.Sprintf("kubectl delete machine.%s %s -n %s --wait=false", Kind.Group, m.Name, f.set.Namespace)}
			}
		}
	}
	return []string{"see what it does next:", f.plan()}
}

// isReplaceable reports whether a machine can be deleted, and is replaced then: nothing stops the set, and all its
// other machines are ready, and stay. It is false if the nodes are not known.
func (f *setFacts) isReplaceable(name string) bool {
	if f.isInactive() || f.set.DeletionTimestamp != nil ||
		f.condition(controlplane.Degraded).Status == metav1.ConditionTrue {
		return false
	}
	return !slices.ContainsFunc(f.judged.Machines, func(m controlplane.Machine) bool {
		return m.Name != name && (m.IsDeleting || !m.IsReady)
	})
}

// askControlPlane finds the set that replaces a machine.
func (g *machineGatherer) askControlPlane(ctx context.Context, f *machineFacts) {
	sets, err := g.controlPlaneSets(ctx, f.machine.Namespace)
	if err != nil {
		f.unknown = append(f.unknown, inLine(err))
	}
	f.set = setOf(f.machine, sets)
}

// setOf returns the set that has a machine; nil if none has.
func setOf(m *machinev1beta1.Machine, sets []*setFacts) *setFacts {
	for _, f := range sets {
		if _, ok := f.judgedMachine(m.Name); ok && f.set.Namespace == m.Namespace {
			return f
		}
	}
	return nil
}

// nodeHold is the node for which a running machine of the set is not ready. A nil set has no machine.
func (f *setFacts) nodeHold(machine, name string, node *corev1.Node) []MachineHold {
	if f == nil {
		return nil
	}
	if m, ok := f.judgedMachine(machine); !ok || !f.isNotReady(m) {
		return nil
	}
	hold := MachineHold{Type: NodeNotReady, Object: new(kinds.NewID(kinds.Node, "", name)), Message: "its node is gone"}
	if node != nil {
		ready := controlplane.NodeReady(node)
		hold.Message = fmt.Sprintf("its node reports Ready=%s (%s)", ready.Status, ready.Reason)
		hold.Since = &ready.LastTransitionTime.Time
	}
	return []MachineHold{hold}
}

// nodeRemedy returns what to do about a node for which a machine of the set is not ready.
func (f *setFacts) nodeRemedy(h *MachineHold, machine, deletion string) []string {
	var remedy []string
	if h.Since != nil { // it exists
		remedy = append(remedy, "kubectl describe node "+h.Object.Name)
	}
	if f.isReplaceable(machine) {
		remedy = append(remedy, "if the node does not come back, delete the machine; its ControlPlaneMachineSet "+
			"makes another one then:", deletion)
	}
	return remedy
}

// replacing returns what becomes of a machine of the set, with details. A nil set returns "".
func (f *setFacts) replacing(name string) (text string, details []string) {
	if f == nil || f.judged.IsOfPlatform {
		return "", nil
	}
	m, _ := f.judgedMachine(name)
	set := fmt.Sprintf("ControlPlaneMachineSet %s (index %d)", f.set.Name, m.Index)
	why := []string{fmt.Sprintf("runlevel why controlplanemachineset/%s -n %s", f.set.Name, f.set.Namespace)}
	switch {
	case f.isInactive() && m.IsOutdated:
		return set + " would replace it once it is Active", m.Changes
	case f.isInactive():
		return "", nil
	case f.condition(controlplane.Degraded).Status == metav1.ConditionTrue:
		return set + " is stopped, and replaces no machine: " + f.condition(controlplane.Degraded).Message, why
	case m.IsDeleting:
		return set + " replaces it: " + f.successor(m), why
	case m.IsOutdated && f.set.Spec.Strategy.Type == machinev1.OnDelete:
		return set + " replaces it once it is deleted", m.Changes
	case m.IsOutdated:
		return set + " replaces it, as it is outdated: " + f.successor(m), append(m.Changes, why...)
	}
	return set + " has it, and it is " + f.standing(m), nil
}

// replacement returns what makes another machine once one is deleted. A nil set is none.
func (f *setFacts) replacement(of *machinev1beta1.Machine) string {
	switch owner := metav1.GetControllerOfNoCopy(of); {
	case owner != nil && (f == nil || owner.UID != f.set.UID):
		return "its " + owner.Kind + " makes another one then"
	case f == nil || f.isInactive() || f.set.DeletionTimestamp != nil:
		return "nothing replaces it then"
	case f.condition(controlplane.Degraded).Status == metav1.ConditionTrue:
		return "its ControlPlaneMachineSet makes another one once it is not Degraded"
	}
	return "its ControlPlaneMachineSet makes another one then"
}

// successor returns which machine takes the place of another one.
func (f *setFacts) successor(of controlplane.Machine) string {
	for _, m := range f.judged.Machines {
		switch {
		case m.Index != of.Index || m.Name == of.Name || m.IsDeleting || m.IsOutdated:
		case f.isNotReady(m):
			return "machine " + m.Name + " takes its place once it is ready"
		default:
			return "machine " + m.Name + " takes its place"
		}
	}
	return "a new machine is to take its place"
}
