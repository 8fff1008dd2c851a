package rolloutpreview

import (
	"context"
	"fmt"
	"slices"
	"time"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/machines/openshift/controlplane"
	"github.com/runlevel/runlevel/internal/machines/typedread"
)

// This file has the preview of a ControlPlaneMachineSet. A set updates no machine in place: a machine stays, or a new
// machine takes its place.

// previewSet returns how a ControlPlaneMachineSet changes the existing machines.
func previewSet(ctx context.Context, c *cluster.Cluster, q Query) (*ControlPlanePreview, error) {
	set, err := readSet(ctx, c, q)
	if err != nil {
		return nil, err
	}
	machineKind := machinev1beta1.GroupVersion.WithKind("Machine")
	machines, err := typedread.List[machinev1beta1.Machine](ctx, c, machineKind,
		typedread.Query{Namespace: q.Namespace})
	if err != nil {
		return nil, err
	}
	nodeKind := corev1.SchemeGroupVersion.WithKind("Node")
	nodes, err := typedread.List[corev1.Node](ctx, c, nodeKind, typedread.Query{})
	if err != nil {
		return nil, err
	}
	s := &setSimulation{
		set: set.DeepCopy(), now: c.Now(),
		preview: newControlPlanePreview(q, string(set.Spec.State), string(set.Spec.Strategy.Type)),
		refusal: func(m *machinev1beta1.Machine) string { return infrastructureRefusal(ctx, c, m) },
	}
	s.set.Spec.State = machinev1.ControlPlaneMachineSetStateActive
	for _, m := range machines {
		s.machines = append(s.machines, *m)
	}
	for _, node := range nodes {
		s.nodes = append(s.nodes, *node)
	}
	return s.preview, s.run()
}

// readSet returns the set of the cluster with the wanted spec, or a new set.
func readSet(ctx context.Context, c *cluster.Cluster, q Query) (*machinev1.ControlPlaneMachineSet, error) {
	live, isNew, err := readLive[machinev1.ControlPlaneMachineSet](ctx, c, q)
	switch {
	case err != nil:
		return nil, err
	case live.DeletionTimestamp != nil:
		return nil, fmt.Errorf("ControlPlaneMachineSet %s/%s is being deleted: its machines stay", q.Namespace, q.Name)
	case q.Wanted == nil:
		return live, nil
	}
	set := q.Wanted.object.(*machinev1.ControlPlaneMachineSet).DeepCopy()
	set.Namespace, set.UID = q.Namespace, live.UID
	if isNew {
		set.UID = "new" // it owns no machine yet
	}
	setSpecDefaults(&set.Spec, live.Spec)
	return set, nil
}

// setSpecDefaults sets the fields that a spec omits, as the API server does; an omitted state stays as it is on the
// cluster.
func setSpecDefaults(spec *machinev1.ControlPlaneMachineSetSpec, live machinev1.ControlPlaneMachineSetSpec) {
	if spec.Replicas == nil {
		spec.Replicas = ptr.To[int32](3)
	}
	if spec.Strategy.Type == "" {
		spec.Strategy.Type = machinev1.RollingUpdate
	}
	if spec.State == "" {
		spec.State = live.State
	}
	if spec.State == "" {
		spec.State = machinev1.ControlPlaneMachineSetStateInactive
	}
}

// infrastructureRefusal returns why the API server would refuse the infrastructure of a new machine, for example
// because a failure domain sets a field that the kind does not have. It returns "" if it does not know, for example
// without the right to create the infrastructure.
func infrastructureRefusal(ctx context.Context, c *cluster.Cluster, m *machinev1beta1.Machine) string {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(m.Spec.ProviderSpec.Value.Raw); err != nil {
		return ""
	}
	resource, err := c.Find(ctx, object.GroupVersionKind())
	if err != nil {
		return ""
	}
	object.SetNamespace(m.Namespace)
	object.SetName(m.Name)
	strict := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	_, err = c.In(resource, m.Namespace).Create(ctx, object, strict)
	if !apierrors.IsInvalid(err) && !infra.IsUnknownField(err) {
		return ""
	}
	return object.GetKind() + " is refused: " + infra.RefusedFields(err)
}

// A setSimulation simulates the replacement of machines, round by round: the controller judges the set, its decisions
// are executed, new machines become ready, and deletions end.
type setSimulation struct {
	set      *machinev1.ControlPlaneMachineSet // a set with the state Active
	machines []machinev1beta1.Machine
	nodes    []corev1.Node
	// refusal returns why the API server would refuse the infrastructure of a machine; "" if it would not.
	refusal func(*machinev1beta1.Machine) string
	now     time.Time
	preview *ControlPlanePreview
	created int // number of created machines
	rounds  int // number of rounds that have changed machines
}

// run adds the steps to the preview, and the outcome of each machine. It ends when a round changes nothing.
func (s *setSimulation) run() error {
	snapshot := s.judge()
	if snapshot.IsOfPlatform {
		return fmt.Errorf("the template of ControlPlaneMachineSet %s/%s has a provider spec of OpenShift: only "+
			"OpenShift's own controller knows which machines are outdated",
			s.set.Namespace, s.set.Name)
	}
	existing := snapshot.Machines
	limit := roundsPerMachine * (len(existing) + int(ptr.Deref(s.set.Spec.Replicas, 0)) + 1)
	for range limit {
		if snapshot.Reason != "" {
			break
		}
		isChanged, err := s.execute(snapshot)
		if err != nil {
			return err
		}
		if isChanged = s.settle() || isChanged; !isChanged {
			break
		}
		snapshot = s.judge()
	}
	s.conclude(existing, snapshot)
	return nil
}

func (s *setSimulation) judge() *controlplane.Snapshot {
	return controlplane.Judge(s.set, s.machines, s.nodes, s.now)
}

// execute carries out the decisions of the controller.
func (s *setSimulation) execute(snapshot *controlplane.Snapshot) (isChanged bool, err error) {
	for _, name := range snapshot.Adopt {
		m := s.machine(name)
		*m = *snapshot.Adopted(m)
	}
	if len(snapshot.Delete)+len(snapshot.Create) > 0 {
		s.rounds++
	}
	for _, name := range snapshot.Delete {
		s.machine(name).DeletionTimestamp = ptr.To(metav1.NewTime(s.now))
		i := slices.IndexFunc(snapshot.Machines, func(m controlplane.Machine) bool { return m.Name == name })
		m := snapshot.Machines[i]
		s.preview.add(Step{
			Round: s.rounds, Action: DeleteMachine, Machine: name, Index: &m.Index,
			FailureDomain: m.FailureDomain, Reason: deletionReason(snapshot, m),
		})
	}
	for _, index := range snapshot.Create {
		if err := s.create(snapshot, index); err != nil {
			return false, err
		}
	}
	return len(snapshot.Adopt)+len(snapshot.Delete)+len(snapshot.Create) > 0, nil
}

// create creates a machine of an index.
func (s *setSimulation) create(snapshot *controlplane.Snapshot, index int) error {
	m, err := snapshot.NewMachine(index, "new")
	if err != nil {
		return fmt.Errorf("create a machine of index %d from the template: %w", index, err)
	}
	s.created++
	if refusal := s.refusal(m); refusal != "" { // it never becomes ready
		m.Status.Phase, m.Status.ErrorMessage = ptr.To(machinev1beta1.PhaseFailed), &refusal
	}
	m.Name = fmt.Sprintf("new %d", s.created)
	m.CreationTimestamp = metav1.NewTime(s.now.Add(time.Duration(s.created) * time.Second))
	controlplane.SetIndex(m, index)
	s.machines = append(s.machines, *m)
	s.preview.add(Step{
		Round: s.rounds, Action: CreateMachine, Machine: m.Name, Index: &index,
		FailureDomain: snapshot.FailureDomain(index), Reason: creationReason(snapshot, index),
	})
	return nil
}

func (s *setSimulation) machine(name string) *machinev1beta1.Machine {
	i := slices.IndexFunc(s.machines, func(m machinev1beta1.Machine) bool { return m.Name == name })
	return &s.machines[i]
}

// deletionReason returns why a machine is deleted.
func deletionReason(snapshot *controlplane.Snapshot, m controlplane.Machine) string {
	if !m.IsReady {
		return "it is outdated, and not ready"
	}
	for _, other := range snapshot.Machines {
		if other.Index == m.Index && other.Name != m.Name && other.IsReady && !other.IsDeleting {
			return other.Name + " takes its place"
		}
	}
	return "it is outdated"
}

// creationReason returns why a machine of an index is created.
func creationReason(snapshot *controlplane.Snapshot, index int) string {
	reason := "the index has no machine"
	for _, m := range snapshot.Machines {
		switch {
		case m.Index != index:
		case m.IsDeleting || slices.Contains(snapshot.Delete, m.Name):
			reason = "for " + m.Name + ", which is being deleted"
		default:
			reason = "for " + m.Name
		}
	}
	return reason
}

// settle ends deletions, with their nodes, and sets new machines ready, including those that were created before the
// preview and have no node yet.
func (s *setSimulation) settle() (isChanged bool) {
	before := len(s.machines)
	s.machines = slices.DeleteFunc(s.machines, func(m machinev1beta1.Machine) bool {
		if m.DeletionTimestamp == nil {
			return false
		}
		s.nodes = slices.DeleteFunc(s.nodes, func(node corev1.Node) bool { return node.Name == enqueue.NodeName(&m) })
		return true
	})
	isChanged = len(s.machines) < before
	for i := range s.machines {
		if m := &s.machines[i]; enqueue.NodeName(m) == "" && ptr.Deref(m.Status.ErrorMessage, "") == "" {
			m.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: m.Name}
			m.Status.Phase = ptr.To(machinev1beta1.PhaseRunning)
			node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name}}
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			s.nodes = append(s.nodes, node)
			isChanged = true
		}
	}
	return isChanged
}

// conclude completes the preview: the outcome of each existing machine, and why the set waits in the end.
func (s *setSimulation) conclude(existing []controlplane.Machine, last *controlplane.Snapshot) {
	p := s.preview
	p.Degraded, p.Message, p.Waits = last.Reason, last.Message, last.Waits
	isOnDelete := s.set.Spec.Strategy.Type == machinev1.OnDelete
	for _, m := range existing {
		outcome := Stays
		switch {
		case m.IsDeleting:
			outcome = IsDeleting
		case p.has(DeleteMachine, m.Name):
			outcome = IsReplaced
		case m.IsOutdated && isOnDelete && last.Reason == "":
			outcome = DeleteByHand
		case m.IsOutdated:
			outcome = IsOutdated
		}
		p.Machines = append(p.Machines, PreviewedMachine{
			Name: m.Name, Index: &m.Index, FailureDomain: m.FailureDomain, Outcome: outcome, Changes: m.Changes,
		})
	}
	isDone := len(last.Machines) == int(ptr.Deref(s.set.Spec.Replicas, 0)) &&
		!slices.ContainsFunc(last.Machines, func(m controlplane.Machine) bool { return !m.IsUpToDate() })
	p.IsStuck = !isDone && !isOnDelete && last.Reason == ""
}
