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
)

// A simulatedSet is a MachineSet in the simulation of a rollout.
type simulatedSet struct {
	step     rolloutplan.SetStep // the last planned step
	inPlace  rolloutplan.InPlaceDecision
	order    clusterv1.MachineSetDeletionOrder
	isNew    bool
	isGoing  bool // it is being deleted, with its machines
	replicas int
	machines []*clusterv1.Machine
}

// A rolloutSimulation simulates a rollout, round by round.
type rolloutSimulation struct {
	facts   *facts
	preview *RolloutPreview
	spec    rolloutplan.RolloutSpec
	sets    []*simulatedSet // the new one last
	made    int
	last    int // the last round that changed a machine
	rounds  int // number of such rounds
}

// simulate adds the steps of a rollout to a preview. The simulation ends when a round changes nothing.
func simulate(f *facts, p *RolloutPreview) {
	surge, unavailable, _ := rolloutrules.Limits(&f.deployment.Spec) // validated before
	w := &rolloutSimulation{facts: f, preview: p, spec: rolloutplan.RolloutSpec{
		Replicas: int(*f.deployment.Spec.Replicas), MaxSurge: surge, MaxUnavailable: unavailable,
		IsOnDelete: rolloutrules.IsOnDelete(&f.deployment.Spec), IsPaused: ptr.Deref(f.deployment.Spec.Paused, false),
	}}
	machines := 0
	for _, set := range f.old {
		w.add(set, false)
		machines += len(f.machines[set.UID])
	}
	if f.current != nil || !w.spec.IsPaused { // a paused deployment creates no set
		w.add(cmp.Or(f.current, &clusterv1.MachineSet{
			ObjectMeta: metav1.ObjectMeta{Name: f.deployment.Name + "-new"}, Spec: clusterv1.MachineSetSpec{Replicas: ptr.To[int32](0)},
		}), true)
	}
	const perMachine = 10 // rounds are far fewer
	for round := 1; round <= perMachine*(machines+w.spec.Replicas+1) && w.round(round); round++ {
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
func (w *rolloutSimulation) add(set *clusterv1.MachineSet, isNew bool) {
	s := &simulatedSet{
		isNew: isNew, isGoing: set.DeletionTimestamp != nil,
		order: w.facts.deployment.Spec.Deletion.Order, replicas: int(ptr.Deref(set.Spec.Replicas, 1)),
	}
	s.step = rolloutplan.SetStep{
		Set: set.Name, MoveTo: set.Annotations[clusterv1.MachineSetMoveMachinesToMachineSetAnnotation],
		Acknowledged: rolloutrules.Names(set.Annotations[clusterv1.AcknowledgedMoveAnnotation]),
	}
	for _, m := range w.facts.machines[set.UID] {
		s.machines = append(s.machines, m.DeepCopy())
	}
	for _, d := range w.preview.Sets {
		if d.MachineSet == set.Name {
			s.inPlace = rolloutplan.InPlaceDecision{IsPossible: d.InPlace, Reason: strings.Join(d.Reasons, "; ")}
		}
	}
	w.sets = append(w.sets, s)
}

// round makes a plan, and executes it on each set. It reports whether anything has changed.
func (w *rolloutSimulation) round(number int) bool {
	state := rolloutplan.RolloutState{Spec: w.spec}
	for _, set := range w.sets {
		setState := set.state()
		for _, m := range set.machines {
			if rolloutrules.IsUpdating(m) {
				state.Updating = append(state.Updating, m.Name)
			}
		}
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
		set := w.sets[i]
		if set.isGoing { // not scaled by the controller of deployments
			continue
		}
		isChanged = isChanged || step.From != step.To || step.MoveTo != set.step.MoveTo || len(step.Acknowledged) != len(set.step.Acknowledged)
		set.step, set.replicas = step, step.To
	}
	for _, set := range w.sets {
		isChanged = w.settle(set) || isChanged
		isChanged = w.scale(set, number) || isChanged
	}
	return isChanged
}

// settle completes what an earlier round has begun, or the cluster before the preview: starts, updates and deletions.
func (w *rolloutSimulation) settle(set *simulatedSet) bool {
	before := len(set.machines)
	set.machines = slices.DeleteFunc(set.machines, func(m *clusterv1.Machine) bool { return m.DeletionTimestamp != nil })
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
func (w *rolloutSimulation) scale(set *simulatedSet, round int) bool {
	counted := slices.DeleteFunc(slices.Clone(set.machines), rolloutrules.IsArriving)
	reason, wanted := set.reason(), set.replicas
	if set.isGoing {
		counted, wanted = set.machines, 0
	}
	missing := wanted - len(counted)
	for range missing {
		w.made++
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("new %d", w.made), CreationTimestamp: metav1.NewTime(w.facts.now)}}
		m.Status.NodeRef.Name = m.Name
		setAvailable(m)
		set.machines = append(set.machines, m)
		w.addStep(PreviewStep{round, CreateMachine, m.Name, reason})
	}
	if missing >= 0 {
		return missing > 0
	}
	isChanged := false
	for _, m := range set.ranked(counted, w.facts.now)[:-missing] {
		switch {
		case m.DeletionTimestamp != nil || set.moves() && rolloutrules.IsUpdating(m) && !rolloutrules.IsMarked(m):
			continue
		case set.moves() && m.Status.NodeRef.IsDefined() && !rolloutrules.IsMarked(m):
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.UpdateInProgressAnnotation, "")
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.PendingAcknowledgeMoveAnnotation, "")
			set.machines = slices.DeleteFunc(set.machines, func(other *clusterv1.Machine) bool { return other == m })
			newSet := w.sets[len(w.sets)-1]
			newSet.machines = append(newSet.machines, m)
			w.addStep(PreviewStep{round, UpdateInPlace, m.Name, reason})
		default:
			m.DeletionTimestamp = ptr.To(metav1.NewTime(w.facts.now))
			w.addStep(PreviewStep{round, DeleteMachine, m.Name, reason})
		}
		isChanged = true
	}
	return isChanged
}

// addStep adds a step. Rounds that change no machine are not counted.
func (w *rolloutSimulation) addStep(step PreviewStep) {
	if step.Round != w.last {
		w.last, w.rounds = step.Round, w.rounds+1
	}
	step.Round = w.rounds
	w.preview.Steps = append(w.preview.Steps, step)
	w.preview.Totals[string(step.Action)]++
}

// moves reports whether a set moves machines instead of deleting them.
func (s *simulatedSet) moves() bool { return s.step.MoveTo != "" && !s.isGoing }

// isComingUp reports whether a machine of the new set will become available: it has no Node yet, or has been ready for a short time. A
// machine whose Node is not ready may stay so, and does not count.
func isComingUp(m *clusterv1.Machine) bool {
	available := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineAvailableCondition)
	waits := available != nil && available.Reason == clusterv1.MachineWaitingForMinReadySecondsReason
	return m.DeletionTimestamp == nil && !rolloutrules.IsUpdating(m) && !rolloutrules.IsAvailable(m) && (waits || !m.Status.NodeRef.IsDefined())
}

// reason returns why a set was scaled last, without the reasons why its machines are not updated in place.
func (s *simulatedSet) reason() string {
	if s.isGoing {
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

// state returns the state of a set for the plan.
func (s *simulatedSet) state() rolloutplan.SetState {
	state := rolloutplan.SetState{
		Name: s.step.Set, Replicas: s.replicas, Current: len(s.machines), InPlace: s.inPlace, Acknowledged: s.step.Acknowledged,
	}
	living := 0
	for _, m := range s.machines {
		if m.DeletionTimestamp == nil {
			living++
		}
		if rolloutrules.IsAvailable(m) {
			state.Available++
			if s.isNew {
				state.UpToDate++
			}
		}
		if rolloutrules.IsArriving(m) {
			state.Arrived = append(state.Arrived, m.Name)
		}
	}
	if s.step.MoveTo != "" {
		state.Unmoved = max(0, living-s.replicas)
	}
	return state
}

// ranked returns machines in the order in which the set deletes them.
func (s *simulatedSet) ranked(machines []*clusterv1.Machine, now time.Time) []*clusterv1.Machine {
	const most = 50.0
	oldest := time.Second
	for _, m := range machines {
		oldest = max(oldest, now.Sub(m.CreationTimestamp.Time))
	}
	rank := func(m *clusterv1.Machine) float64 {
		if m.DeletionTimestamp != nil {
			return 2 * most
		}
		return rolloutrules.DeletionPriority(m, s.order, most*float64(now.Sub(m.CreationTimestamp.Time))/float64(oldest+1))
	}
	slices.SortStableFunc(machines, func(a, b *clusterv1.Machine) int {
		return cmp.Or(cmp.Compare(rank(b), rank(a)), strings.Compare(a.Name, b.Name))
	})
	return machines
}

func setAvailable(m *clusterv1.Machine) {
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: clusterv1.MachineAvailableCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineAvailableReason})
}
