package controlplane

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Machine contains the facts about a machine from which the next step is decided.
type Machine struct {
	Name          string
	FailureDomain string
	Created       time.Time
	Outdated      []string // the reasons why it is not up to date
	// IsReplaced is true for an outdated machine that must not be updated in place.
	IsReplaced  bool
	IsDeleting  bool
	IsHeld      bool   // its deletion, by a hook
	IsUpdating  bool   // whether the machine is being updated in place
	IsTriggered bool   // the desired state of its update was written
	IsChosen    bool   // annotated, to be deleted first
	HasNode     bool   // it has joined
	Problem     string // the reason why it is not available; empty if it is
	IsBroken    bool   // not only not available yet: it is not ready
}

// IsOutdated reports whether a machine is not up to date.
func (m Machine) IsOutdated() bool { return len(m.Outdated) > 0 }

// An Action is the action of a step.
type Action string

// The actions.
const (
	CreateMachine   Action = "create"
	DeleteMachine   Action = "delete"
	UpdateMachine   Action = "update"   // update in place; delete if the machine can't be updated in place
	ContinueMachine Action = "continue" // an update in place that has begun
)

// A Step is the next step of a control plane. A step without action waits.
type Step struct {
	Action  Action
	Machine string   // the machine to delete or update
	Waits   []string // the reasons why the step waits
}

func waitFor(problems ...string) Step { return Step{Waits: problems} }

// nextStep returns the next step towards the wanted number of up-to-date machines. During a rollout, surge
// more machines may exist.
//
// Steps follow one after the other: a deletion or an update in place ends, and the other machines are available, before
// the next one begins. There are two exceptions: a replacement is created if a hook holds the deletion until it exists,
// and a missing machine is created during an update in place, which may never end.
func nextStep(wanted, surge int, machines []Machine) Step {
	var staying, leaving []Machine
	for _, m := range machines {
		if m.IsDeleting {
			leaving = append(leaving, m)
		} else {
			staying = append(staying, m)
		}
	}
	updating := first(staying, func(m Machine) bool { return m.IsUpdating })
	if updating != nil && len(staying) >= wanted {
		return continueUpdate(*updating, staying, leaving)
	}
	if m := first(staying, func(m Machine) bool { return m.IsOutdated() && !m.HasNode }); m != nil {
		return Step{Action: DeleteMachine, Machine: m.Name} // the machine has never joined, and is outdated
	}
	if len(staying) < wanted {
		return restore(wanted, staying, leaving)
	}
	if len(leaving) > 0 {
		return waitFor(deletionsOf(leaving)...)
	}
	return rollOut(wanted, surge, staying)
}

// continueUpdate returns the step that continues an update in place, or waits for its end. Until the update is
// triggered, it waits for the other machines as well.
func continueUpdate(m Machine, staying, leaving []Machine) Step {
	if m.IsTriggered {
		return waitFor(fmt.Sprintf("Machine %s is updated in place: %s", m.Name, m.Problem))
	}
	if problems := append(problemsOf(staying, m.Name), deletionsOf(leaving)...); len(problems) > 0 {
		return waitFor(problems...)
	}
	return Step{Action: ContinueMachine, Machine: m.Name}
}

// restore returns the step towards the wanted number of machines. At most one machine has not joined.
func restore(wanted int, staying, leaving []Machine) Step {
	var problems []string
	healthy := 0
	for _, m := range staying {
		switch {
		case !m.HasNode:
			problems = append(problems, fmt.Sprintf("Machine %s: %s", m.Name, m.Problem))
		case m.Problem == "":
			healthy++
		}
	}
	free := first(leaving, func(m Machine) bool { return !m.IsHeld })
	switch {
	case len(problems) > 0:
		return waitFor(problems...)
	case len(staying) > 0 && healthy == 0:
		return waitFor(problemsOf(staying, "")...)
	case free != nil || len(staying)+len(leaving) > wanted:
		return waitFor(deletionsOf(leaving)...)
	}
	return Step{Action: CreateMachine}
}

// rollOut returns the step that brings a machine up to date, or deletes one too many.
func rollOut(wanted, surge int, staying []Machine) Step {
	outdated := filter(staying, Machine.IsOutdated)
	upToDate := len(staying) - len(outdated)
	switch {
	case len(outdated) == 0 && len(staying) == wanted:
		return Step{}
	case len(outdated) > 0 && len(staying) < wanted+surge:
		if problems := problemsOf(staying, ""); len(problems) > 0 {
			return replaceBroken(staying, outdated, problems)
		}
		return Step{Action: CreateMachine}
	}
	m := choose(staying, outdated)
	if problems := problemsOf(staying, m.Name); len(problems) > 0 {
		return waitFor(problems...)
	}
	switch isKept := m.IsOutdated() && !m.IsReplaced && !m.IsChosen && !m.IsBroken && upToDate < wanted; {
	case isKept && m.Problem != "":
		return waitFor(problemsOf(staying, "")...)
	case isKept:
		return Step{Action: UpdateMachine, Machine: m.Name}
	}
	return Step{Action: DeleteMachine, Machine: m.Name}
}

// replaceBroken returns the step that replaces a broken outdated machine, if this machine is the only problem.
// Otherwise the rollout waits for the problems.
func replaceBroken(staying, outdated []Machine, problems []string) Step {
	m := choose(staying, outdated)
	if len(problems) == 1 && m.IsBroken && len(staying) > 1 {
		return Step{Action: DeleteMachine, Machine: m.Name}
	}
	return waitFor(problems...)
}

// choose returns the machine to update or delete, in the order of Cluster API: outdated machines that a user has
// chosen, other machines that a user has chosen, outdated machines that are not ready, outdated ones, machines that are
// not ready, others. Among equals, it is the oldest machine in the failure domain with most machines.
func choose(staying, outdated []Machine) Machine {
	isChosen := func(m Machine) bool { return m.IsChosen }
	isBroken := func(m Machine) bool { return m.IsBroken }
	count := map[string]int{}
	for _, m := range staying {
		count[m.FailureDomain]++
	}
	for _, candidates := range [][]Machine{
		filter(outdated, isChosen), filter(staying, isChosen), filter(outdated, isBroken), outdated,
		filter(staying, isBroken), staying,
	} {
		if len(candidates) > 0 {
			return slices.MinFunc(candidates, func(a, b Machine) int {
				return cmp.Or(count[b.FailureDomain]-count[a.FailureDomain], a.Created.Compare(b.Created),
					strings.Compare(a.Name, b.Name))
			})
		}
	}
	return Machine{}
}

// problemsOf returns why machines are not available, without the machine named except.
func problemsOf(machines []Machine, except string) []string {
	var problems []string
	for _, m := range machines {
		if m.Name != except && m.Problem != "" {
			problems = append(problems, fmt.Sprintf("Machine %s: %s", m.Name, m.Problem))
		}
	}
	return problems
}

func deletionsOf(leaving []Machine) []string {
	var waits []string
	for _, m := range leaving {
		waits = append(waits, fmt.Sprintf("Machine %s is being deleted: %s", m.Name, m.Problem))
	}
	return waits
}

func filter(machines []Machine, matches func(Machine) bool) []Machine {
	return slices.DeleteFunc(slices.Clone(machines), func(m Machine) bool { return !matches(m) })
}

// countStaying returns how many machines are not being deleted.
func countStaying(machines []Machine) int {
	return len(filter(machines, func(m Machine) bool { return !m.IsDeleting }))
}

func first(machines []Machine, matches func(Machine) bool) *Machine {
	if i := slices.IndexFunc(machines, matches); i >= 0 {
		return &machines[i]
	}
	return nil
}

// failureDomainFor returns the failure domain for a new machine. It is the one with the fewest machines that are up to
// date, so that these are spread at the end of a rollout; among equals, the one with the fewest machines, then the
// first by name.
func failureDomainFor(domains []string, machines []Machine) string {
	if len(domains) == 0 {
		return ""
	}
	all, upToDate := map[string]int{}, map[string]int{}
	for _, m := range machines {
		if m.IsDeleting {
			continue
		}
		all[m.FailureDomain]++
		if !m.IsOutdated() {
			upToDate[m.FailureDomain]++
		}
	}
	return slices.MinFunc(domains, func(a, b string) int {
		return cmp.Or(upToDate[a]-upToDate[b], all[a]-all[b], strings.Compare(a, b))
	})
}
