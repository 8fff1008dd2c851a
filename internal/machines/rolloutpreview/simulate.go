package rolloutpreview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment/rolloutplan"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// A simulatedSet is a MachineSet in the simulation of a rollout.
type simulatedSet struct {
	step       rolloutplan.SetStep // the last planned step
	inPlace    rolloutplan.InPlaceDecision
	order      clusterv1.MachineSetDeletionOrder
	isNew      bool
	isDeleting bool // whether the set and its machines are being deleted
	replicas   int
	machines   []*clusterv1.Machine
}

// A rolloutSimulation simulates a rollout, round by round.
type rolloutSimulation struct {
	facts   *facts
	preview *DeploymentPreview
	spec    rolloutplan.RolloutSpec
	sets    []*simulatedSet // the new one last
	created int             // number of created machines
	last    int             // the last round that changed a machine
	rounds  int             // number of such rounds
}

// simulate adds the steps of a rollout to a preview. The simulation ends when a round changes nothing.
func simulate(f *facts, p *DeploymentPreview) {
	w := &rolloutSimulation{facts: f, preview: p, spec: rolloutplan.SpecOf(&f.deployment.Spec)}
	machines := 0
	for _, set := range f.old {
		w.add(set, false)
		machines += len(f.machines[set.UID])
	}
	if f.current != nil || !w.spec.IsPaused { // a paused deployment creates no set
		w.add(cmp.Or(f.current, &clusterv1.MachineSet{
			ObjectMeta: metav1.ObjectMeta{Name: f.deployment.Name + "-new"},
			Spec:       clusterv1.MachineSetSpec{Replicas: ptr.To[int32](0)},
		}), true)
	}
	limit := roundsPerMachine * (machines + w.spec.Replicas + 1)
	for round := 1; round <= limit && w.round(round); round++ {
	}
	old := 0
	for _, set := range w.sets {
		if !set.isNew {
			old += len(set.machines)
		}
	}
	p.IsStuck = old > 0 && !w.spec.IsOnDelete && !w.spec.IsPaused
}

// add adds a set of the cluster, with the annotations of earlier steps of a rollout.
func (r *rolloutSimulation) add(set *clusterv1.MachineSet, isNew bool) {
	s := &simulatedSet{
		isNew: isNew, isDeleting: set.DeletionTimestamp != nil,
		order: r.facts.deployment.Spec.Deletion.Order, replicas: int(ptr.Deref(set.Spec.Replicas, 1)),
	}
	s.step = rolloutplan.SetStep{
		Set: set.Name, MoveTo: set.Annotations[clusterv1.MachineSetMoveMachinesToMachineSetAnnotation],
		Acknowledged: rolloutrules.Names(set.Annotations[clusterv1.AcknowledgedMoveAnnotation]),
	}
	for _, m := range r.facts.machines[set.UID] {
		s.machines = append(s.machines, m.DeepCopy())
	}
	for _, d := range r.preview.Sets {
		if d.MachineSet == set.Name {
			s.inPlace = rolloutplan.InPlaceDecision{IsPossible: d.InPlace, Reason: strings.Join(d.Reasons, "; ")}
		}
	}
	r.sets = append(r.sets, s)
}

// round plans a round, and executes it on each set. It reports whether anything has changed.
func (r *rolloutSimulation) round(number int) bool {
	state := rolloutplan.RolloutState{Spec: r.spec}
	for _, set := range r.sets {
		setState := rolloutplan.SetState{
			Name: set.step.Set, Replicas: set.replicas, InPlace: set.inPlace, Acknowledged: set.step.Acknowledged,
		}.WithMachines(set.machines, set.isNew, set.step.MoveTo != "")
		state.Updating = append(state.Updating, rolloutplan.Updating(set.machines)...)
		if set.isNew {
			state.New = &setState
		} else {
			state.Old = append(state.Old, setState)
		}
	}
	plan := rolloutplan.Make(state)
	steps := plan.Old
	if plan.New != nil {
		steps = append(steps, *plan.New)
	}
	isChanged := false
	for i, step := range steps {
		set := r.sets[i]
		if set.isDeleting { // not scaled by the controller of deployments
			continue
		}
		isChanged = isChanged || step.From != step.To || step.MoveTo != set.step.MoveTo ||
			len(step.Acknowledged) != len(set.step.Acknowledged)
		set.step, set.replicas = step, step.To
	}
	for _, set := range r.sets {
		isChanged = r.settle(set) || isChanged
		isChanged = r.scale(set, number) || isChanged
	}
	return isChanged
}

// settle completes the starts, updates and deletions that an earlier round has begun, or the controllers before the
// preview.
func (r *rolloutSimulation) settle(set *simulatedSet) bool {
	before := len(set.machines)
	set.machines = slices.DeleteFunc(set.machines, func(m *clusterv1.Machine) bool {
		return m.DeletionTimestamp != nil
	})
	isChanged := len(set.machines) < before
	for _, m := range set.machines {
		switch {
		case set.isNew && isComingUp(m):
			m.Status.NodeRef.Name = m.Name
			setAvailable(m)
			isChanged = true
		case rolloutrules.IsUpdating(m) && !rolloutrules.IsArriving(m):
			delete(m.Annotations, clusterv1.UpdateInProgressAnnotation)
			setAvailable(m)
			isChanged = true
		case rolloutrules.IsArriving(m) && slices.Contains(set.step.Acknowledged, m.Name):
			delete(m.Annotations, clusterv1.PendingAcknowledgeMoveAnnotation)
			isChanged = true
		}
	}
	return isChanged
}

// scale creates machines, moves them to the new set, or deletes them.
func (r *rolloutSimulation) scale(set *simulatedSet, round int) bool {
	plan, reason, isChanged := set.plan(r.facts.now), set.reason(), false
	for range plan.Create {
		r.created++
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name:              fmt.Sprintf("new %d", r.created),
			CreationTimestamp: metav1.NewTime(r.facts.now),
		}}
		m.Status.NodeRef.Name = m.Name
		setAvailable(m)
		set.machines = append(set.machines, m)
		r.addStep(Step{Round: round, Action: CreateMachine, Machine: m.Name, Reason: reason})
		isChanged = true
	}
	for _, name := range plan.Remove {
		i := slices.IndexFunc(set.machines, func(m *clusterv1.Machine) bool { return m.Name == name })
		m := set.machines[i]
		isMoved, isLeft := rolloutrules.Surplus(m)
		switch moves := set.step.MoveTo != "" && !set.isDeleting; {
		case moves && isLeft:
			continue
		case moves && isMoved:
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.UpdateInProgressAnnotation, "")
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.PendingAcknowledgeMoveAnnotation, "")
			set.machines = slices.Delete(set.machines, i, i+1)
			newSet := r.sets[len(r.sets)-1]
			newSet.machines = append(newSet.machines, m)
			r.addStep(Step{Round: round, Action: UpdateInPlace, Machine: m.Name, Reason: reason})
		default:
			m.DeletionTimestamp = ptr.To(metav1.NewTime(r.facts.now))
			r.addStep(Step{Round: round, Action: DeleteMachine, Machine: m.Name, Reason: reason})
		}
		isChanged = true
	}
	return isChanged
}

// addStep adds a step. Rounds that change no machine are not counted.
func (r *rolloutSimulation) addStep(step Step) {
	if step.Round != r.last {
		r.last, r.rounds = step.Round, r.rounds+1
	}
	step.Round = r.rounds
	r.preview.add(step)
}

// isComingUp reports whether a machine of the new set will become available: it has no Node yet, or has been ready for
// a short time. A machine whose Node is not ready may stay so, and does not count.
func isComingUp(m *clusterv1.Machine) bool {
	available := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineAvailableCondition)
	waits := available != nil && available.Reason == clusterv1.MachineWaitingForMinReadySecondsReason
	return m.DeletionTimestamp == nil && !rolloutrules.IsUpdating(m) && !rolloutrules.IsAvailable(m) &&
		(waits || !m.Status.NodeRef.IsDefined())
}

// reason returns why a set was scaled last, without the reasons why its machines are not updated in place.
func (s *simulatedSet) reason() string {
	if s.isDeleting {
		return "MachineSet " + s.step.Set + " is being deleted"
	}
	reasons := slices.DeleteFunc(slices.Clone(s.step.Reasons), func(reason string) bool {
		return strings.HasPrefix(reason, "not updated in place")
	})
	if len(reasons) == 0 { // scaled before the preview
		return fmt.Sprintf("MachineSet %s has %d replicas", s.step.Set, s.replicas)
	}
	return strings.Join(reasons, "; ")
}

// plan returns which machines a set creates or removes, as the controller of MachineSets plans.
func (s *simulatedSet) plan(now time.Time) replicas.Plan {
	machines, wanted := slices.DeleteFunc(slices.Clone(s.machines), rolloutrules.IsArriving), s.replicas
	if s.isDeleting {
		machines, wanted = s.machines, 0
	}
	var counted []replicas.Replica
	for _, m := range machines {
		counted = append(counted, replicas.Replica{
			Name: m.Name, Owner: replicas.Ours, IsSelected: true, IsDeleting: m.DeletionTimestamp != nil,
			Priority: rolloutrules.DeletionPriority(m, s.order, now),
		})
	}
	return replicas.Make(wanted, counted)
}

func setAvailable(m *clusterv1.Machine) {
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type:   clusterv1.MachineAvailableCondition,
		Status: metav1.ConditionTrue,
		Reason: clusterv1.MachineAvailableReason,
	})
}
