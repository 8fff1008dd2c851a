// Package rolloutplan decides how the MachineSets of a MachineDeployment of Cluster API are scaled, so that machines of
// a changed template replace the existing ones: never with fewer available, and never with more in total, than the
// deployment allows. Each step has a reason in words.
//
// A rollout replaces machines, or moves them to the new set, which updates them in place: whether the machines of a set
// can be updated in place is a decision of the caller. The package reads and writes nothing.
//
// Start with Make.
package rolloutplan

import (
	"fmt"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
)

// A RolloutSpec is the spec of a deployment. MaxSurge and MaxUnavailable are resolved: at least one is not 0.
type RolloutSpec struct {
	Replicas       int
	MaxSurge       int // limit of a rolling update
	MaxUnavailable int // limit of a rolling update
	IsOnDelete     bool
	IsPaused       bool // nothing is rolled out, but the existing sets are scaled
}

// A SetState is the observed state of a MachineSet.
type SetState struct {
	Name      string
	Replicas  int // spec.replicas
	Current   int // machines, including those that are being deleted
	Available int
	UpToDate  int

	InPlace      InPlaceDecision // decision for an old set
	Arrived      []string        // machines that were moved to the set, and are not counted among its replicas yet
	Acknowledged []string        // moved machines that are counted
	Unmoved      int             // machines that the set has still to move to another one
}

// An InPlaceDecision records whether the machines of an old set can become those of the new one by an update in place.
type InPlaceDecision struct {
	IsPossible bool
	Reason     string
}

// A RolloutState is the observed state of a deployment.
type RolloutState struct {
	Spec RolloutSpec
	// New is the set with the deployment's template: it has no replicas if it does not exist yet, and it is nil if
	// the controller does not create it.
	New *SetState
	Old []SetState // the oldest first
	// Updating are the machines that are being updated in place.
	Updating []string
}

// A Plan contains a step for each set, even if nothing changes.
type Plan struct {
	New *SetStep  // nil if the deployment has no new set
	Old []SetStep // steps in the order of the state's sets
}

// A SetStep is the desired state of a set.
type SetStep struct {
	Set      string // its name
	From, To int    // replicas
	// MoveTo is the set to which machines are moved, instead of being deleted.
	MoveTo string
	// ReceiveFrom are the sets from which machines are moved to this one.
	ReceiveFrom []string
	// Acknowledged are the machines that were moved to this set and are counted among its replicas now.
	Acknowledged []string
	Reasons      []string
}

// Make returns the next steps. Callers must call it again after any change.
func Make(s RolloutState) Plan {
	p := newPlanner(s)
	for _, part := range p.parts() {
		part()
	}
	return p.plan()
}

// A planner makes a plan.
type planner struct {
	spec    RolloutSpec
	state   RolloutState
	current *plannedSet // nil if the deployment has no new set
	old     []*plannedSet
}

// A plannedSet is the state of a set, and its step.
type plannedSet struct {
	SetState
	SetStep
}

func newPlanner(s RolloutState) *planner {
	p := &planner{spec: s.Spec, state: s}
	if s.New != nil {
		p.current = newPlannedSet(*s.New)
	}
	for _, set := range s.Old {
		p.old = append(p.old, newPlannedSet(set))
	}
	return p
}

func newPlannedSet(s SetState) *plannedSet {
	return &plannedSet{SetState: s, SetStep: SetStep{Set: s.Name, From: s.Replicas, To: s.Replicas}}
}

// parts returns the parts of the planning in order: the new set is scaled up before the old ones are scaled down.
func (p *planner) parts() []func() {
	switch {
	case p.spec.IsPaused || p.current == nil:
		return []func(){p.acknowledge, p.keepUnmoved, p.scaleOnly}
	case p.spec.IsOnDelete:
		return []func(){p.acknowledge, p.keepUnmoved, p.scaleNew, p.scaleOldOnDelete}
	default:
		return []func(){p.acknowledge, p.scaleNew, p.scaleOld, p.updateInPlace, p.breakDeadlock}
	}
}

func (p *planner) plan() Plan {
	var plan Plan
	if p.current != nil {
		plan.New = &p.current.SetStep
	}
	for _, set := range p.old {
		plan.Old = append(plan.Old, set.SetStep)
	}
	return plan
}

// all returns all sets, the new one last.
func (p *planner) all() []*plannedSet {
	if p.current == nil {
		return p.old
	}
	return append(p.old[:len(p.old):len(p.old)], p.current)
}

// most returns the largest number of machines during a rollout.
func (p *planner) most() int {
	if p.spec.IsOnDelete {
		return p.spec.Replicas
	}
	return p.spec.Replicas + p.spec.MaxSurge
}

// fewest returns how many machines must be available.
func (p *planner) fewest() int { return max(0, p.spec.Replicas-p.spec.MaxUnavailable) }

// sum adds up a number of each set.
func sum(sets []*plannedSet, number func(*plannedSet) int) (total int) {
	for _, s := range sets {
		total += number(s)
	}
	return total
}

// wanted returns the replicas of the set before the plan.
func (s *plannedSet) wanted() int { return s.Replicas }

func (s *plannedSet) current() int { return s.Current }

func (s *plannedSet) available() int { return s.Available }

// present returns how many machines a set has or will create.
func (s *plannedSet) present() int { return max(s.Replicas, s.Current) }

// leaving returns how many existing machines this plan or an earlier one removes.
func (s *plannedSet) leaving() int { return max(0, s.Current-min(s.Replicas, s.To)) }

// isScaled reports whether this plan scales the set.
func (s *plannedSet) isScaled() bool { return s.To != s.Replicas }

// because adds a reason.
func (s *plannedSet) because(format string, arguments ...any) {
	s.Reasons = append(s.Reasons, fmt.Sprintf(format, arguments...))
}

// SpecOf returns the spec of a deployment, which has its defaults, and limits that were validated.
func SpecOf(spec *clusterv1.MachineDeploymentSpec) RolloutSpec {
	surge, unavailable, _ := rolloutrules.Limits(spec)
	return RolloutSpec{
		Replicas: int(*spec.Replicas), MaxSurge: surge, MaxUnavailable: unavailable,
		IsOnDelete: rolloutrules.IsOnDelete(spec), IsPaused: ptr.Deref(spec.Paused, false),
	}
}

// WithMachines returns the state of a set with its machines. They are counted here, since the counts of its status lag
// behind. isCurrent is true if the set has the template of the deployment, isMoving if it moves machines to another
// set.
func (s SetState) WithMachines(machines []*clusterv1.Machine, isCurrent, isMoving bool) SetState {
	s.Current = len(machines)
	living := 0
	for _, m := range machines {
		if m.DeletionTimestamp == nil {
			living++
		}
		if rolloutrules.IsAvailable(m) {
			s.Available++
		}
		if rolloutrules.IsArriving(m) {
			s.Arrived = append(s.Arrived, m.Name)
		}
	}
	if isCurrent {
		s.UpToDate = s.Available
	}
	if isMoving {
		s.Unmoved = max(0, living-s.Replicas)
	}
	return s
}

// Updating returns the names of the machines that are being updated in place.
func Updating(machines []*clusterv1.Machine) []string {
	var names []string
	for _, m := range machines {
		if rolloutrules.IsUpdating(m) {
			names = append(names, m.Name)
		}
	}
	return names
}
