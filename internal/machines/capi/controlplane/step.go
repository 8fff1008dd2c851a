package controlplane

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Machine is what the next step depends on of a machine.
type Machine struct {
	Name          string
	FailureDomain string
	Created       time.Time
	Outdated      []string // why it is not up to date
	// IsReplaced is true for an outdated machine that must not be updated in place.
	IsReplaced  bool
	IsDeleting  bool
	IsHeld      bool   // its deletion, by a hook
	IsUpdating  bool   // in place
	IsTriggered bool   // the desired state of its update was written
	IsChosen    bool   // annotated, to be deleted first
	HasNode     bool   // it has joined
	Problem     string // why it is not available; empty if it is
	IsBroken    bool   // not only not available yet: it is not ready
}

// IsOutdated reports whether a machine is not up to date.
func (m Machine) IsOutdated() bool { return len(m.Outdated) > 0 }

// A Action is what a step does.
type Action string

// The actions.
const (
	CreateMachine   Action = "create"
	DeleteMachine   Action = "delete"
	UpdateMachine   Action = "update"   // in place, or if that is impossible, delete
	ContinueMachine Action = "continue" // an update in place that has begun
)

// A Step is the next step of a control plane. A step without action waits.
type Step struct {
	Action  Action
	Machine string   // to be deleted or updated
	Waits   []string // what the step waits for
}

func waitFor(problems ...string) Step { return Step{Waits: problems} }

// nextStep returns the next step towards a number of machines that are all up to date. Surge is how many more there may
// be during a rollout.
//
// There is one step at a time: a deletion or an update in place ends, and the other machines are available, before the
// next begins. Only a deletion that a hook holds until there is a replacement does not stop its creation, and neither
// does an update in place, which may take for ever.
func nextStep(wanted, surge int, machines []Machine) Step {
	var staying, leaving []Machine
	for _, m := range machines {
		if m.IsDeleting {
			leaving = append(leaving, m)
		} else {
			staying = append(staying, m)
		}
	}
	updating := firstWhere(staying, func(m Machine) bool { return m.IsUpdating })
	if updating != nil && len(staying) >= wanted {
		return continueUpdate(*updating, staying, leaving)
	}
	if m := firstWhere(staying, func(m Machine) bool { return m.IsOutdated() && !m.HasNode }); m != nil {
		return Step{Action: DeleteMachine, Machine: m.Name} // it has never joined, and won't be wanted
	}
	if len(staying) < wanted {
		return restore(wanted, staying, leaving)
	}
	if len(leaving) > 0 {
		return waitFor(deletionsOf(leaving)...)
	}
	return rollOut(wanted, surge, staying)
}

// continueUpdate returns the step that goes on with an update in place that has begun, or waits for its end. As long as
// its machine was not touched, it waits for the other machines, as before its begin.
func continueUpdate(m Machine, staying, leaving []Machine) Step {
	if m.IsTriggered {
		return waitFor(fmt.Sprintf("Machine %s is updated in place: %s", m.Name, m.Problem))
	}
	if problems := append(problemsOf(staying, m.Name), deletionsOf(leaving)...); len(problems) > 0 {
		return waitFor(problems...)
	}
	return Step{Action: ContinueMachine, Machine: m.Name}
}

// restore returns the step towards the wanted number of machines. There is at most one machine that has not joined.
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
	free := firstWhere(leaving, func(m Machine) bool { return !m.IsHeld })
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
	outdated := where(staying, Machine.IsOutdated)
	upToDate := len(staying) - len(outdated)
	switch {
	case len(outdated) == 0 && len(staying) == wanted:
		return Step{}
	case len(outdated) > 0 && len(staying) < wanted+surge:
		if problems := problemsOf(staying, ""); len(problems) > 0 {
			return unlessBroken(staying, outdated, problems)
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

// unlessBroken returns a wait for what keeps a rollout from creating a machine, or, if that is only an outdated
// machine, the step that replaces this one.
func unlessBroken(staying, outdated []Machine, problems []string) Step {
	m := choose(staying, outdated)
	if len(problems) == 1 && m.IsBroken && len(staying) > 1 {
		return Step{Action: DeleteMachine, Machine: m.Name}
	}
	return waitFor(problems...)
}

// choose returns the machine to update or delete, in Cluster API's order: an outdated one that a user has chosen, any
// that a user has chosen, an outdated one that is not ready, an outdated one, one that is not ready, any; of these, the
// oldest in the failure domain with most machines.
func choose(staying, outdated []Machine) Machine {
	isChosen := func(m Machine) bool { return m.IsChosen }
	isBroken := func(m Machine) bool { return m.IsBroken }
	count := map[string]int{}
	for _, m := range staying {
		count[m.FailureDomain]++
	}
	for _, candidates := range [][]Machine{
		where(outdated, isChosen), where(staying, isChosen), where(outdated, isBroken), outdated,
		where(staying, isBroken), staying,
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

// problemsOf returns why machines are not available, except for one of them.
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

func where(machines []Machine, is func(Machine) bool) []Machine {
	return slices.DeleteFunc(slices.Clone(machines), func(m Machine) bool { return !is(m) })
}

// countStaying returns how many machines are not being deleted.
func countStaying(machines []Machine) int {
	return len(where(machines, func(m Machine) bool { return !m.IsDeleting }))
}

func firstWhere(machines []Machine, is func(Machine) bool) *Machine {
	if at := slices.IndexFunc(machines, is); at >= 0 {
		return &machines[at]
	}
	return nil
}

// failureDomainFor returns the failure domain for a new machine: that with the fewest machines that are up to date, so
// that these are spread at the end of a rollout, then with the fewest of all, then the first by name.
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
