package rolloutpreview

import (
	"fmt"
	"slices"
	"time"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/openshift/controlplane"
)

// A controlPlaneSimulation simulates the replacement of machines, round by round: the controller judges the set, what
// it decides is done, new machines become ready, and deletions end.
type controlPlaneSimulation struct {
	set      *machinev1.ControlPlaneMachineSet // as if it were Active
	machines []machinev1beta1.Machine
	nodes    []corev1.Node
	// why the API server would refuse the infrastructure of a machine; empty if it would not
	refusal func(*machinev1beta1.Machine) string
	now     time.Time
	preview *ControlPlanePreview
	made    int
	rounds  int // number of rounds that have changed machines
}

// run adds to the preview what becomes of each machine, and the steps. It ends when a round changes nothing.
func (s *controlPlaneSimulation) run() error {
	judged := s.judge()
	if judged.IsOfPlatform {
		return fmt.Errorf("the template of ControlPlaneMachineSet %s/%s has a provider spec of OpenShift: only "+
			"OpenShift's own controller knows which machines are outdated",
			s.set.Namespace, s.set.Name)
	}
	existing := judged.Machines
	most := 10 * (len(existing) + int(ptr.Deref(s.set.Spec.Replicas, 0)) + 1) // rounds are far fewer
	for range most {
		if judged.Reason != "" {
			break
		}
		isChanged, err := s.execute(judged)
		if err != nil {
			return err
		}
		if isChanged = s.settle() || isChanged; !isChanged {
			break
		}
		judged = s.judge()
	}
	s.conclude(existing, judged)
	return nil
}

func (s *controlPlaneSimulation) judge() *controlplane.Snapshot {
	return controlplane.Judge(s.set, s.machines, s.nodes, s.now)
}

// conclude completes the preview: what becomes of the existing machines, and what the set waits for in the end.
func (s *controlPlaneSimulation) conclude(existing []controlplane.Machine, last *controlplane.Snapshot) {
	p := s.preview
	p.Degraded, p.Message, p.Waits = last.Reason, last.Message, last.Waits
	isOnDelete := s.set.Spec.Strategy.Type == machinev1.OnDelete
	for _, m := range existing {
		isDeleted := slices.ContainsFunc(p.Steps, func(step ControlPlanePreviewStep) bool {
			return step.Action == DeleteMachine && step.Machine == m.Name
		})
		outcome := Stays
		switch {
		case m.IsDeleting:
			outcome = IsGoing
		case isDeleted:
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

// execute does what the controller has decided.
func (s *controlPlaneSimulation) execute(judged *controlplane.Snapshot) (isChanged bool, err error) {
	for _, name := range judged.Adopt {
		m := s.machine(name)
		*m = *judged.Adopted(m)
	}
	if len(judged.Delete)+len(judged.Create) > 0 {
		s.rounds++
	}
	for _, name := range judged.Delete {
		s.machine(name).DeletionTimestamp = ptr.To(metav1.NewTime(s.now))
		at := slices.IndexFunc(judged.Machines, func(m controlplane.Machine) bool { return m.Name == name })
		m := judged.Machines[at]
		s.addStep(ControlPlanePreviewStep{
			Action:        DeleteMachine,
			Machine:       name,
			Index:         &m.Index,
			FailureDomain: m.FailureDomain,
			Reason:        whyDeleted(judged, m),
		})
	}
	for _, index := range judged.Create {
		m, err := judged.NewMachine(index, "new")
		if err != nil {
			return false, fmt.Errorf("make a machine of index %d from the template: %w", index, err)
		}
		s.made++
		if refusal := s.refusal(m); refusal != "" { // it never becomes ready
			m.Status.Phase, m.Status.ErrorMessage = ptr.To(machinev1beta1.PhaseFailed), &refusal
		}
		m.Name = fmt.Sprintf("new %d", s.made)
		m.CreationTimestamp = metav1.NewTime(s.now.Add(time.Duration(s.made) * time.Second))
		controlplane.SetIndex(m, index)
		s.machines = append(s.machines, *m)
		s.addStep(ControlPlanePreviewStep{
			Action:        CreateMachine,
			Machine:       m.Name,
			Index:         &index,
			FailureDomain: judged.FailureDomain(index),
			Reason:        whyCreated(judged, index),
		})
	}
	return len(judged.Adopt)+len(judged.Delete)+len(judged.Create) > 0, nil
}

func (s *controlPlaneSimulation) addStep(step ControlPlanePreviewStep) {
	step.Round = s.rounds
	s.preview.Steps = append(s.preview.Steps, step)
	s.preview.Totals[string(step.Action)]++
}

func (s *controlPlaneSimulation) machine(name string) *machinev1beta1.Machine {
	at := slices.IndexFunc(s.machines, func(m machinev1beta1.Machine) bool { return m.Name == name })
	return &s.machines[at]
}

// whyDeleted returns why a machine is deleted.
func whyDeleted(judged *controlplane.Snapshot, m controlplane.Machine) string {
	if !m.IsReady {
		return "it is outdated, and not ready"
	}
	for _, other := range judged.Machines {
		if other.Index == m.Index && other.Name != m.Name && other.IsReady && !other.IsDeleting {
			return other.Name + " takes its place"
		}
	}
	return "it is outdated"
}

// whyCreated returns why a machine of an index is created.
func whyCreated(judged *controlplane.Snapshot, index int) string {
	reason := "the index has no machine"
	for _, m := range judged.Machines {
		switch {
		case m.Index != index:
		case m.IsDeleting || slices.Contains(judged.Delete, m.Name):
			reason = "for " + m.Name + ", which is being deleted"
		default:
			reason = "for " + m.Name
		}
	}
	return reason
}

// settle ends deletions, with their nodes, and has new machines become ready: also those that were created before the
// preview and have no node yet.
func (s *controlPlaneSimulation) settle() (isChanged bool) {
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
			s.nodes, isChanged = append(s.nodes, node), true
		}
	}
	return isChanged
}
