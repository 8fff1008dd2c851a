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
	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/remediation"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// A Snapshot is the observed state of a set, its machines and the nodes of the control plane, with the decisions of the
// controller: its next actions, or the problem that stops it. Views and previews use the same snapshot.
type Snapshot struct {
	Machines []Machine // machines by index; machines with the same index by age, the oldest first
	Problem            // the problem that stops the controller: the condition Degraded
	Plan
	Adopt []string // the names of machines
	// IsOfPlatform is true if the template has a provider spec of OpenShift, whose fields and failure domains only
	// OpenShift's controller knows: whether machines are outdated is not known.
	IsOfPlatform bool

	set        *machinev1.ControlPlaneMachineSet
	objects    map[string]*machinev1beta1.Machine // the machines by name; they may belong to the cache
	indexes    map[string]int                     // the indexes of the machines
	template   *machineTemplate
	placements map[int]int // failure domain numbers by index; empty without domains
	slots      []Slot
	after      time.Duration // time until the next node counts as not ready; 0 if there is none
}

// wanted returns the desired number of machines.
func (s *Snapshot) wanted() int { return int(ptr.Deref(s.set.Spec.Replicas, 3)) }

// hasWork reports whether there is something to write besides the status.
func (s *Snapshot) hasWork() bool {
	return s.set.DeletionTimestamp != nil || len(s.Adopt) > 0 || len(s.Create) > 0 || len(s.Delete) > 0
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
	i := slices.IndexFunc(sets.Items, func(set machinev1.ControlPlaneMachineSet) bool { return set.Name == key.Name })
	if i < 0 {
		return nil, nil
	}
	return Judge(&sets.Items[i], list.Items, nodes.Items, r.now()), nil
}

// Judge returns a snapshot of a set, of the Machines of its namespace, and of nodes.
func Judge(
	set *machinev1.ControlPlaneMachineSet, machines []machinev1beta1.Machine, nodes []corev1.Node, now time.Time,
) *Snapshot {
	s := &Snapshot{set: set.DeepCopy(), objects: map[string]*machinev1beta1.Machine{}}
	selector, err := s.readSpec()
	if err != nil {
		s.Problem = Problem{invalidConfiguration, err.Error()}
	}
	for i := range machines {
		m := &machines[i]
		isSelected := selector != nil && selector.Matches(labels.Set(m.Labels))
		if isSelected || replicas.OwnerOf(m, set.UID) == replicas.Ours {
			s.objects[m.Name] = m
		}
	}
	if s.Reason == "" {
		s.decide(nodes, now)
	}
	return s
}

// readSpec reads the template and the selector of the set.
func (s *Snapshot) readSpec() (labels.Selector, error) {
	template := s.set.Spec.Template.OpenShiftMachineV1Beta1Machine
	if template == nil {
		return nil, fmt.Errorf("spec.template has no %s", machinev1.OpenShiftMachineV1Beta1MachineType)
	}
	selector, err := replicas.SelectorOf(&s.set.Spec.Selector, template.ObjectMeta.Labels)
	if err != nil {
		return nil, err
	}
	if s.template, err = readTemplate(template); err == nil {
		version, _ := s.template.value["apiVersion"].(string)
		s.IsOfPlatform = strings.HasPrefix(version, machinev1beta1.GroupName+"/")
	}
	return selector, err
}

// decide computes the slots, and the problem or the plan.
func (s *Snapshot) decide(nodes []corev1.Node, now time.Time) {
	s.indexes = indexesOf(s.objects)
	values := map[string]map[string]any{}
	for name, m := range s.objects {
		values[name] = valueOf(m)
	}
	s.placements = s.placeIndexes(values)
	machines := make([]Machine, 0, len(s.objects))
	for name, m := range s.objects {
		machine := s.newMachineState(m, values[name])
		var after time.Duration
		machine.IsReady, after = readinessOf(m, nodes, now)
		s.after = remediation.Earliest(s.after, after)
		machines = append(machines, machine)
	}
	s.slots = slotsOf(s.wanted(), machines)
	for _, slot := range s.slots {
		s.Machines = append(s.Machines, slot.Machines...)
	}
	s.Problem = problemOf(s.set.Spec, s.wanted(), s.slots, s.unmanaged(nodes))
	if s.set.Spec.State != machinev1.ControlPlaneMachineSetStateActive || s.Reason != "" {
		s.Waits = waitsOf(s.slots)
		return
	}
	s.Plan = planReplacement(s.set.Spec.Strategy.Type, s.wanted(), s.slots)
	s.Adopt = namesOf(s.slots, func(m Machine) bool { return m.Owner == replicas.Orphan })
}

// newMachineState returns the state of a machine, without its readiness, by its infrastructure object.
func (s *Snapshot) newMachineState(m *machinev1beta1.Machine, value map[string]any) Machine {
	index := s.indexes[m.Name]
	wanted := s.template.wanted(s.domain(index))
	domain := s.template.domainOf(value)
	state := Machine{
		Name: m.Name, Index: index, Created: m.CreationTimestamp.Time, Owner: replicas.OwnerOf(m, s.set.UID),
		IsDeleting: m.DeletionTimestamp != nil, Error: ptr.Deref(m.Status.ErrorMessage, ""), Detail: detailOf(m),
		FailureDomain: s.template.describe(domain),
		IsUnplaced:    len(s.template.domains) > 0 && domain == noDomain,
		IsOutdated:    !reflect.DeepEqual(wanted, value),
	}
	if state.IsOutdated {
		state.Changes = changesOf(value, wanted)
	}
	return state
}

// placeIndexes assigns failure domains to the indexes. If an index has several machines, the newest one not being
// deleted decides.
func (s *Snapshot) placeIndexes(values map[string]map[string]any) map[int]int {
	newest := map[int]*machinev1beta1.Machine{}
	for name, m := range s.objects {
		if other, ok := newest[s.indexes[name]]; !ok || isBefore(other, m) {
			newest[s.indexes[name]] = m
		}
	}
	current := map[int]placement{}
	for index, m := range newest {
		current[index] = placement{domain: s.template.domainOf(values[m.Name]), isLeaving: m.DeletionTimestamp != nil}
	}
	var indexes []int
	for index := range newest {
		indexes = append(indexes, index)
	}
	for index := 0; len(indexes) < s.wanted(); index++ {
		if _, ok := newest[index]; !ok {
			indexes = append(indexes, index)
		}
	}
	slices.Sort(indexes)
	return spread(indexes, current, len(s.template.domains))
}

// isBefore reports whether a machine of an index decides about its failure domain less than another one.
func isBefore(a, b *machinev1beta1.Machine) bool {
	if (a.DeletionTimestamp != nil) != (b.DeletionTimestamp != nil) {
		return a.DeletionTimestamp != nil
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// FailureDomain returns the fields of the failure domain that the machines of an index belong to; empty if there is
// none.
func (s *Snapshot) FailureDomain(index int) string { return s.template.describe(s.domain(index)) }

// domain returns the number of the failure domain of an index, or none.
func (s *Snapshot) domain(index int) int {
	if domain, ok := s.placements[index]; ok {
		return domain
	}
	return noDomain
}

// unmanaged returns the nodes of the control plane that no machine has.
func (s *Snapshot) unmanaged(nodes []corev1.Node) []string {
	managed := map[string]bool{}
	for _, m := range s.objects {
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

// detailOf returns the phase of a machine, or the hold of its deletion.
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
	if status := m.Annotations[deletion.HookStatusAnnotation(stage, hooks[0].Name)]; status != "" {
		held += ": " + status
	}
	return held
}

// nodeGrace is the time after which a running machine counts as not ready because its node is not ready: the node may
// restart. OpenShift's controller has the same limit.
const nodeGrace = 20 * time.Minute

// readinessOf reports whether a machine is ready: it runs, or is being deleted, and its node is ready. A running
// machine still counts as ready for nodeGrace after its node became unready; after is the remaining time, or 0.
func readinessOf(m *machinev1beta1.Machine, nodes []corev1.Node, now time.Time) (isReady bool, after time.Duration) {
	name := enqueue.NodeName(m)
	i := slices.IndexFunc(nodes, func(node corev1.Node) bool { return name != "" && node.Name == name })
	phase := ptr.Deref(m.Status.Phase, "")
	if i < 0 || phase != machinev1beta1.PhaseRunning && phase != machinev1beta1.PhaseDeleting {
		return false, 0
	}
	ready := conditions.NodeReady(&nodes[i])
	if ready.Status == corev1.ConditionTrue {
		return true, 0
	}
	left := ready.LastTransitionTime.Add(nodeGrace).Sub(now)
	if ready.Status == "" || phase != machinev1beta1.PhaseRunning || left <= 0 {
		return false, 0
	}
	return true, left
}
