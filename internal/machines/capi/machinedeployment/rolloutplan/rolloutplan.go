// Package rolloutplan decides how the MachineSets of a MachineDeployment of Cluster API are scaled, so that machines of
// a changed template take the place of those that are there: never with fewer available, and never with more in total,
// than the deployment allows. It tells the reason of each step in words.
//
// A rollout replaces machines, or moves them to the new set, which updates them in place: whether the machines of a set
// can be updated in place is a decision that is passed in. The package reads and writes nothing.
//
// Make is the call to start from.
package rolloutplan

import "fmt"

// A RolloutSpec is what a deployment asks for. MaxSurge and MaxUnavailable are resolved: at least one of them is not 0.
type RolloutSpec struct {
	Replicas       int
	MaxSurge       int // of a rolling update
	MaxUnavailable int // of a rolling update
	IsOnDelete     bool
	IsPaused       bool // nothing is rolled out; machines that are too many or too few are a matter of the sets that are there
}

// A SetState is what is there of a MachineSet.
type SetState struct {
	Name      string
	Replicas  int // that it is to have
	Current   int // that it has, those that are being deleted among them
	Available int
	UpToDate  int

	InPlace      InPlaceDecision // of an old set
	Arrived      []string        // machines that were moved to the set and wait for being counted among its replicas
	Acknowledged []string        // those of them that are counted
	Unmoved      int             // machines that the set was to move to another one, and that it still has
}

// An InPlaceDecision says whether the machines of an old set can become those of the new one by an update in place.
type InPlaceDecision struct {
	IsPossible bool
	Reason     string
}

// A RolloutState is what is there of a deployment.
type RolloutState struct {
	Spec RolloutSpec
	// New is the set with the deployment's template: with no replicas if it is yet to be made, nil if it is not to be.
	New *SetState
	Old []SetState // the oldest first
	// Updating are the machines that are being updated in place.
	Updating []string
}

// A RolloutPlan is what is to be done: a step for each set, even where nothing changes.
type RolloutPlan struct {
	New *SetStep  // nil if there is no new set
	Old []SetStep // in the order of the state's
}

// A SetStep is what a set is to be from now on.
type SetStep struct {
	Set      string // its name
	From, To int    // replicas that it was to have, and is to have
	// MoveTo is the set to which machines are moved, where the set would delete them else.
	MoveTo string
	// ReceiveFrom are the sets from which machines are moved to this one.
	ReceiveFrom []string
	// Acknowledged are the machines that were moved to this set and are counted among its replicas now.
	Acknowledged []string
	Reasons      []string
}

// Make returns what is to be done next. It is to be called again whenever anything has changed.
func Make(s RolloutState) RolloutPlan {
	p := newPlanner(s)
	for _, part := range p.parts() {
		part()
	}
	return p.plan()
}

// A planner is a plan in the making.
type planner struct {
	spec    RolloutSpec
	state   RolloutState
	current *plannedSet // nil if there is no new set
	old     []*plannedSet
}

// A plannedSet is a set, and what it is to be.
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

// parts returns what makes a plan, in order: the new set grows before the old ones shrink.
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

func (p *planner) plan() RolloutPlan {
	var plan RolloutPlan
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

// most returns how many machines there may be while a template is rolled out.
func (p *planner) most() int {
	if p.spec.IsOnDelete {
		return p.spec.Replicas
	}
	return p.spec.Replicas + p.spec.MaxSurge
}

// fewest returns how many machines have to be available.
func (p *planner) fewest() int { return max(0, p.spec.Replicas-p.spec.MaxUnavailable) }

// sum adds up a number of each set.
func sum(sets []*plannedSet, number func(*plannedSet) int) (total int) {
	for _, s := range sets {
		total += number(s)
	}
	return total
}

// wanted is how many machines the set was to have when the plan began.
func (s *plannedSet) wanted() int { return s.Replicas }

func (s *plannedSet) current() int { return s.Current }

func (s *plannedSet) available() int { return s.Available }

// present is how many machines a set has, or is about to make.
func (s *plannedSet) present() int { return max(s.Replicas, s.Current) }

// leaving is how many machines that are there go, by this plan or by one before.
func (s *plannedSet) leaving() int { return max(0, s.Current-min(s.Replicas, s.To)) }

// isScaled says whether this plan scales the set.
func (s *plannedSet) isScaled() bool { return s.To != s.Replicas }

// because adds a reason.
func (s *plannedSet) because(format string, arguments ...any) {
	s.Reasons = append(s.Reasons, fmt.Sprintf(format, arguments...))
}
