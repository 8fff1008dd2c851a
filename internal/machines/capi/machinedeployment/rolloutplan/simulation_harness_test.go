package rolloutplan_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment/rolloutplan"
)

// A world contains a deployment, its sets and their machines. Controllers take turns: the controller of deployments
// executes the plan, and the controllers of sets and machines do their part of a rollout.
type world struct {
	spec      rolloutplan.RolloutSpec
	template  int
	isInPlace bool // updates in place are possible
	sets      []*worldSet
	created   int // number of created machines
	log       []string

	isSlow bool // machines become available, and are removed, only in turnOfMachines
	lost   int  // machines that would be available without an accident
}

type worldSet struct {
	name         string
	template     int
	replicas     int
	moveTo       string
	receiveFrom  []string
	acknowledged []string
	machines     []*worldMachine
}

type worldMachine struct {
	number                                                  int
	isStarting, isBroken, isDeleting, isUpdating, isPending bool

	isLost bool // it would be available without an accident
}

func (m *worldMachine) String() string { return fmt.Sprintf("m%d", m.number) }

func (m *worldMachine) isAvailable() bool {
	return !m.isStarting && !m.isBroken && !m.isDeleting && !m.isUpdating
}

// newWorld returns a world with a settled deployment, whose template has changed since.
func newWorld(spec rolloutplan.RolloutSpec) *world {
	w := &world{spec: spec, template: 1, sets: []*worldSet{{name: "ms1", template: 1, replicas: spec.Replicas}}}
	w.turnOfSet(w.sets[0])
	w.log = nil
	w.template = 2
	return w
}

func (w *world) logf(format string, arguments ...any) {
	w.log = append(w.log, fmt.Sprintf(format, arguments...))
}

// turnOfDeployment creates a plan and executes it.
func (w *world) turnOfDeployment() {
	index := slices.IndexFunc(w.sets, func(s *worldSet) bool { return s.template == w.template })
	if index < 0 && !w.spec.IsPaused {
		index = len(w.sets)
		w.sets = append(w.sets, &worldSet{name: fmt.Sprintf("ms%d", index+1), template: w.template})
	}
	state := w.state(index)
	plan := rolloutplan.Make(state)
	if text := textOf(plan); text != "" {
		for line := range strings.Lines(text) {
			w.logf("deployment: %s", strings.TrimSpace(line))
		}
	}
	steps := plan.Old
	if plan.New != nil {
		steps = append(steps, *plan.New)
	}
	for _, step := range steps {
		set := w.named(step.Set)
		set.replicas = step.To
		set.moveTo, set.receiveFrom = step.MoveTo, step.ReceiveFrom
		set.acknowledged = step.Acknowledged
	}
}

// state returns the state of the deployment. The new set is the one with the index.
func (w *world) state(newSet int) rolloutplan.RolloutState {
	state := rolloutplan.RolloutState{Spec: w.spec}
	for i, set := range w.sets {
		setState := w.count(set)
		setState.InPlace = rolloutplan.InPlaceDecision{IsPossible: w.isInPlace}
		setState.Acknowledged = set.acknowledged
		if living := slices.DeleteFunc(slices.Clone(set.machines), func(m *worldMachine) bool {
			return m.isDeleting
		}); set.moveTo != "" {
			setState.Unmoved = max(0, len(living)-set.replicas)
		}
		for _, m := range set.machines {
			if m.isPending {
				setState.Arrived = append(setState.Arrived, m.String())
			}
			if m.isUpdating {
				state.Updating = append(state.Updating, m.String())
			}
		}
		if i == newSet {
			state.New = &setState
		} else {
			state.Old = append(state.Old, setState)
		}
	}
	return state
}

func (w *world) named(name string) *worldSet {
	return w.sets[slices.IndexFunc(w.sets, func(s *worldSet) bool { return s.name == name })]
}

// turnOfSet ends updates in place that were acknowledged before, and creates, moves or deletes machines.
func (w *world) turnOfSet(s *worldSet) {
	var updated []*worldMachine
	for _, m := range s.machines {
		if m.isUpdating && !m.isPending {
			m.isUpdating = false
			updated = append(updated, m)
		}
		if m.isPending && (len(s.receiveFrom) == 0 || slices.Contains(s.acknowledged, m.String())) {
			m.isPending = false
		}
	}
	w.logMachines(s, "has updated", updated)
	surplus := len(s.machines) - s.replicas
	if len(s.receiveFrom) > 0 {
		surplus -= len(slices.DeleteFunc(slices.Clone(s.machines), func(m *worldMachine) bool { return !m.isPending }))
	}
	switch {
	case len(s.machines) < s.replicas:
		w.create(s, s.replicas-len(s.machines))
	case surplus > 0 && s.moveTo != "":
		w.move(s, w.named(s.moveTo), surplus)
	case surplus > 0:
		w.delete(s, surplus)
	}
}

func (w *world) logMachines(s *worldSet, action string, machines []*worldMachine) {
	if len(machines) > 0 {
		w.logf("%s %s %s", s.name, action, strings.Trim(fmt.Sprint(machines), "[]"))
	}
}

func (w *world) create(s *worldSet, missing int) {
	for range missing {
		w.created++
		s.machines = append(s.machines, &worldMachine{number: w.created, isStarting: w.isSlow})
	}
	w.logMachines(s, "creates", s.machines[len(s.machines)-missing:])
}

// move moves surplus machines, in the order in which a set deletes them. Machines during a deletion or an update belong
// to the surplus, and stay. A machine without a node is deleted.
func (w *world) move(s, target *worldSet, surplus int) {
	if !slices.Contains(target.receiveFrom, s.name) {
		return
	}
	var moved []*worldMachine
	for _, m := range s.ranked()[:surplus] {
		switch {
		case m.isDeleting || m.isUpdating:
		case m.isStarting:
			m.isDeleting = true
		default:
			m.isUpdating, m.isPending = true, true
			moved = append(moved, m)
		}
	}
	s.machines = slices.DeleteFunc(s.machines, func(m *worldMachine) bool { return slices.Contains(moved, m) })
	target.machines = append(target.machines, moved...)
	w.logMachines(s, "moves to "+target.name, moved)
}

func (w *world) delete(s *worldSet, surplus int) {
	var deleted []*worldMachine
	for _, m := range s.ranked()[:surplus] {
		if !m.isDeleting {
			m.isDeleting = true
			deleted = append(deleted, m)
		}
	}
	w.logMachines(s, "deletes", deleted)
	if !w.isSlow {
		s.machines = slices.DeleteFunc(s.machines, func(m *worldMachine) bool { return m.isDeleting })
	}
}

// ranked returns the machines in the order in which a set deletes them: first those during an update, the last one to
// begin first; then the unavailable ones.
func (s *worldSet) ranked() []*worldMachine {
	ranked := slices.Clone(s.machines)
	slices.SortStableFunc(ranked, func(a, b *worldMachine) int {
		byName := cmp.Compare(a.number, b.number)
		if a.isUpdating {
			byName = -byName
		}
		return cmp.Or(cmp.Compare(b.rank(), a.rank()), byName)
	})
	return ranked
}

func (m *worldMachine) rank() int {
	switch {
	case m.isDeleting:
		return 100
	case m.isUpdating:
		return 75
	case m.isStarting || m.isBroken:
		return 50
	}
	return 20
}

func (w *world) count(s *worldSet) rolloutplan.SetState {
	state := rolloutplan.SetState{Name: s.name, Replicas: s.replicas, Current: len(s.machines)}
	for _, m := range s.machines {
		if m.isAvailable() {
			state.Available++
			if s.template == w.template {
				state.UpToDate++
			}
		}
	}
	return state
}

// total returns the number of machines, and of available machines.
func (w *world) total() (machines, available int) {
	for _, set := range w.sets {
		machines += len(set.machines)
		for _, m := range set.machines {
			if m.isAvailable() {
				available++
			}
		}
	}
	return machines, available
}

// isSettled reports whether all machines are available and have the newest template.
func (w *world) isSettled() bool {
	machines, available := w.total()
	for _, set := range w.sets {
		if wanted := set.template == w.template; wanted && set.replicas != w.spec.Replicas ||
			!wanted && len(set.machines)+set.replicas > 0 {
			return false
		}
	}
	return machines == w.spec.Replicas && available == machines
}

// machines returns the names of all machines.
func (w *world) machines() string {
	var names []string
	for _, set := range w.sets {
		slices.SortFunc(set.machines, func(a, b *worldMachine) int { return cmp.Compare(a.number, b.number) })
		for _, m := range set.machines {
			names = append(names, m.String())
		}
	}
	return strings.Join(names, " ")
}

// round gives each controller a turn. It reports whether anything happened.
func (w *world) round(check func()) bool {
	before := len(w.log)
	w.turnOfDeployment()
	check()
	for i := 0; i < len(w.sets); i++ {
		w.turnOfSet(w.sets[i])
		check()
	}
	return len(w.log) > before
}
