package controlplane

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A planeMachine is what the next step depends on of a machine.
type planeMachine struct {
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

func (m planeMachine) isOutdated() bool { return len(m.Outdated) > 0 }

// A planeAction is what a step does.
type planeAction string

// The actions.
const (
	createMachine   planeAction = "create"
	deleteMachine   planeAction = "delete"
	updateMachine   planeAction = "update"   // in place, or if that is impossible, delete
	continueMachine planeAction = "continue" // an update in place that has begun
)

// A planeStep is the next step of a control plane. A step without action waits.
type planeStep struct {
	Action  planeAction
	Machine string   // to be deleted or updated
	Waits   []string // what the step waits for
}

func waitFor(problems ...string) planeStep { return planeStep{Waits: problems} }

// nextStep returns the next step towards a number of machines that are all up to date. Surge is how many more there may be during a
// rollout.
//
// There is one step at a time: a deletion or an update in place ends, and the other machines are available, before the next begins.
// Only a deletion that a hook holds until there is a replacement does not stop its creation.
func nextStep(wanted, surge int, machines []planeMachine) planeStep {
	var staying, leaving []planeMachine
	for _, m := range machines {
		if m.IsDeleting {
			leaving = append(leaving, m)
		} else {
			staying = append(staying, m)
		}
	}
	if step, ok := continueUpdate(staying); ok {
		return step
	}
	if m := firstWhere(staying, func(m planeMachine) bool { return m.isOutdated() && !m.HasNode }); m != nil {
		return planeStep{Action: deleteMachine, Machine: m.Name} // it has never joined, and won't be wanted
	}
	if len(staying) < wanted {
		return restore(wanted, staying, leaving)
	}
	if len(leaving) > 0 {
		return waitFor(deletionsOf(leaving)...)
	}
	return rollOut(wanted, surge, staying)
}

// continueUpdate returns the step that goes on with an update in place that has begun, or waits for its end.
func continueUpdate(staying []planeMachine) (planeStep, bool) {
	m := firstWhere(staying, func(m planeMachine) bool { return m.IsUpdating })
	switch {
	case m == nil:
		return planeStep{}, false
	case !m.IsTriggered:
		return planeStep{Action: continueMachine, Machine: m.Name}, true
	}
	return waitFor(fmt.Sprintf("Machine %s is updated in place: %s", m.Name, m.Problem)), true
}

// restore returns the step towards the wanted number of machines. There is at most one machine that has not joined.
func restore(wanted int, staying, leaving []planeMachine) planeStep {
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
	free := firstWhere(leaving, func(m planeMachine) bool { return !m.IsHeld })
	switch {
	case len(problems) > 0:
		return waitFor(problems...)
	case len(staying) > 0 && healthy == 0:
		return waitFor(problemsOf(staying, "")...)
	case free != nil || len(staying)+len(leaving) > wanted:
		return waitFor(deletionsOf(leaving)...)
	}
	return planeStep{Action: createMachine}
}

// rollOut returns the step that brings a machine up to date, or deletes one too many.
func rollOut(wanted, surge int, staying []planeMachine) planeStep {
	outdated := where(staying, planeMachine.isOutdated)
	upToDate := len(staying) - len(outdated)
	switch {
	case len(outdated) == 0 && len(staying) == wanted:
		return planeStep{}
	case len(outdated) > 0 && len(staying) < wanted+surge:
		if problems := problemsOf(staying, ""); len(problems) > 0 {
			return unlessBroken(staying, outdated, problems)
		}
		return planeStep{Action: createMachine}
	}
	m := choose(staying, outdated)
	if problems := problemsOf(staying, m.Name); len(problems) > 0 {
		return waitFor(problems...)
	}
	switch isKept := m.isOutdated() && !m.IsReplaced && !m.IsChosen && !m.IsBroken && upToDate < wanted; {
	case isKept && m.Problem != "":
		return waitFor(problemsOf(staying, "")...)
	case isKept:
		return planeStep{Action: updateMachine, Machine: m.Name}
	}
	return planeStep{Action: deleteMachine, Machine: m.Name}
}

// unlessBroken returns a wait for what keeps a rollout from creating a machine, or, if that is only an outdated machine, the step
// that replaces this one.
func unlessBroken(staying, outdated []planeMachine, problems []string) planeStep {
	m := choose(staying, outdated)
	if len(problems) == 1 && m.IsBroken && len(staying) > 1 {
		return planeStep{Action: deleteMachine, Machine: m.Name}
	}
	return waitFor(problems...)
}

// choose returns the machine to update or delete, in Cluster API's order: an outdated one that a user has chosen, any that a user has
// chosen, an outdated one that is not ready, an outdated one, one that is not ready, any; of these, the oldest in the failure
// domain with most machines.
func choose(staying, outdated []planeMachine) planeMachine {
	isChosen := func(m planeMachine) bool { return m.IsChosen }
	isBroken := func(m planeMachine) bool { return m.IsBroken }
	count := map[string]int{}
	for _, m := range staying {
		count[m.FailureDomain]++
	}
	for _, candidates := range [][]planeMachine{
		where(outdated, isChosen), where(staying, isChosen), where(outdated, isBroken), outdated, where(staying, isBroken), staying,
	} {
		if len(candidates) > 0 {
			return slices.MinFunc(candidates, func(a, b planeMachine) int {
				return cmp.Or(count[b.FailureDomain]-count[a.FailureDomain], a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
			})
		}
	}
	return planeMachine{}
}

// problemsOf returns why machines are not available, except for one of them.
func problemsOf(machines []planeMachine, except string) []string {
	var problems []string
	for _, m := range machines {
		if m.Name != except && m.Problem != "" {
			problems = append(problems, fmt.Sprintf("Machine %s: %s", m.Name, m.Problem))
		}
	}
	return problems
}

func deletionsOf(leaving []planeMachine) []string {
	var waits []string
	for _, m := range leaving {
		waits = append(waits, fmt.Sprintf("Machine %s is being deleted: %s", m.Name, m.Problem))
	}
	return waits
}

func where(machines []planeMachine, is func(planeMachine) bool) []planeMachine {
	return slices.DeleteFunc(slices.Clone(machines), func(m planeMachine) bool { return !is(m) })
}

func firstWhere(machines []planeMachine, is func(planeMachine) bool) *planeMachine {
	if at := slices.IndexFunc(machines, is); at >= 0 {
		return &machines[at]
	}
	return nil
}

// failureDomainFor returns the failure domain for a new machine: that with the fewest machines that are up to date, so that these are
// spread at the end of a rollout, then with the fewest of all, then the first by name.
func failureDomainFor(domains []string, machines []planeMachine) string {
	if len(domains) == 0 {
		return ""
	}
	all, upToDate := map[string]int{}, map[string]int{}
	for _, m := range machines {
		if m.IsDeleting {
			continue
		}
		all[m.FailureDomain]++
		if !m.isOutdated() {
			upToDate[m.FailureDomain]++
		}
	}
	return slices.MinFunc(domains, func(a, b string) int {
		return cmp.Or(upToDate[a]-upToDate[b], all[a]-all[b], strings.Compare(a, b))
	})
}
