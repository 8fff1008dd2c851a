package controlplane

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	machinev1 "github.com/openshift/api/machine/v1"

	"github.com/runlevel/runlevel/internal/machines/replicas"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Machine is the state of a machine of a set.
type Machine struct {
	Name    string
	Index   int
	Created time.Time
	Owner   replicas.Ownership
	// IsReady is true while its node is ready, or was so until a short time ago.
	IsReady    bool
	IsOutdated bool // its providerSpec is not that of the template, in the failure domain of its index
	IsDeleting bool
	IsUnplaced bool   // the template has failure domains, but not that of the machine
	Error      string // error of the infrastructure
	Detail     string // its phase, or the hold of its deletion
	// Changes are the fields of its providerSpec that differ from the wanted one.
	Changes []string
	// FailureDomain has the fields of the failure domain that it is in; empty if there is none.
	FailureDomain string
}

// IsUpToDate reports whether a machine is one that the set wants to have.
func (m Machine) IsUpToDate() bool { return m.IsReady && !m.IsOutdated && !m.IsDeleting }

// isPending reports whether a machine will be wanted once it is ready.
func (m Machine) isPending() bool { return !m.IsReady && !m.IsOutdated && !m.IsDeleting }

// isReplaced reports whether a machine needs a replacement.
func (m Machine) isReplaced() bool { return m.IsOutdated || m.IsDeleting }

// A Slot contains the machines of an index: one, or two while it is replaced, or none.
type Slot struct {
	Index    int
	Machines []Machine
}

func (s Slot) any(current func(Machine) bool) bool {
	return slices.ContainsFunc(s.Machines, current)
}

// slotsOf returns the slots of machines in the order of their indexes. Empty ones are added until there are as many as
// wanted.
func slotsOf(wanted int, machines []Machine) []Slot {
	byIndex := map[int][]Machine{}
	for _, m := range machines {
		byIndex[m.Index] = append(byIndex[m.Index], m)
	}
	for index := 0; len(byIndex) < wanted; index++ {
		byIndex[index] = append(byIndex[index], []Machine{}...)
	}
	var slots []Slot
	for index, ofIndex := range byIndex {
		slices.SortFunc(ofIndex, func(a, b Machine) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
		})
		slots = append(slots, Slot{Index: index, Machines: ofIndex})
	}
	slices.SortFunc(slots, func(a, b Slot) int { return cmp.Compare(a.Index, b.Index) })
	return slots
}

// A Plan contains the next actions for the machines of a set.
type Plan struct {
	Delete []string
	Create []int // the indexes of new machines
	Waits  []string
}

// planReplacement returns the plan of a set's strategy.
func planReplacement(strategy machinev1.ControlPlaneMachineSetStrategyType, wanted int, slots []Slot) Plan {
	if strategy == machinev1.OnDelete {
		return planOnDelete(slots)
	}
	return planRollingUpdate(wanted, slots)
}

// planRollingUpdate replaces one machine at a time, with a new one first.
func planRollingUpdate(wanted int, slots []Slot) Plan {
	var p Plan
	willBeDeleted := map[string]bool{}
	for _, slot := range slots {
		surplus, ok := slot.surplus()
		if !ok {
			continue
		}
		ready, least := readyBesides(slots, surplus.Name, willBeDeleted), wanted
		if !surplus.IsReady {
			least = wanted/2 + 1
		}
		if ready < least {
			p.Waits = append(p.Waits,
				fmt.Sprintf("machine %s is not deleted while fewer than %d others are ready, and not being deleted",
					surplus.Name, least))
			continue
		}
		willBeDeleted[surplus.Name] = true
		p.Delete = append(p.Delete, surplus.Name)
	}
	p.Waits = append(waitsOf(slots), p.Waits...)
	if index, ok := nextToCreate(wanted, slots, willBeDeleted); ok {
		p.Create = []int{index}
	}
	return p
}

// surplus returns the machine of a slot to delete next: an outdated one that does not run, or the older one of two that
// run. An outdated machine precedes others.
func (s Slot) surplus() (Machine, bool) {
	var running, outdated []Machine
	for _, m := range s.Machines {
		switch {
		case m.IsDeleting:
		case m.IsOutdated && !m.IsReady:
			return m, true
		case m.IsOutdated:
			outdated = append(outdated, m)
			running = append(running, m)
		case m.IsReady:
			running = append(running, m)
		}
	}
	if len(running) < 2 {
		return Machine{}, false
	}
	return append(outdated, running...)[0], true
}

// readyBesides returns how many machines other than one are ready, and are not being deleted.
func readyBesides(slots []Slot, name string, willBeDeleted map[string]bool) int {
	count := 0
	for _, slot := range slots {
		for _, m := range slot.Machines {
			if m.Name != name && m.IsReady && !m.IsDeleting && !willBeDeleted[m.Name] {
				count++
			}
		}
	}
	return count
}

// nextToCreate returns the index of the next new machine: one without a machine that stays comes first, then one whose
// machine is not ready. There is none while another machine has still to become ready, or to go.
func nextToCreate(wanted int, slots []Slot, willBeDeleted map[string]bool) (int, bool) {
	count, best, bestRank := 0, 0, 0
	for _, slot := range slots {
		count += len(slot.Machines)
		if slot.any(Machine.isPending) {
			return 0, false
		}
		if rank := slot.urgency(willBeDeleted); rank > bestRank {
			best, bestRank = slot.Index, rank
		}
	}
	return best, bestRank > 0 && count <= wanted
}

// urgency returns how urgently a slot needs a new machine; 0 is not at all.
func (s Slot) urgency(willBeDeleted map[string]bool) int {
	urgency := 3
	for _, m := range s.Machines {
		switch {
		case m.IsUpToDate():
			return 0
		case m.IsDeleting || willBeDeleted[m.Name]:
		case !m.IsReady:
			urgency = min(urgency, 2)
		default:
			urgency = 1
		}
	}
	return urgency
}

// planOnDelete replaces the machines that are being deleted.
func planOnDelete(slots []Slot) Plan {
	p := Plan{Waits: waitsOf(slots)}
	for _, slot := range slots {
		isStaying := func(m Machine) bool { return !m.IsDeleting }
		if !slot.any(isStaying) && len(slot.Machines) < 2 {
			p.Create = append(p.Create, slot.Index)
		}
		for _, m := range slot.Machines {
			if m.IsOutdated && !m.IsDeleting {
				p.Waits = append(p.Waits,
					fmt.Sprintf("machine %s needs an update: delete it to have it replaced", m.Name))
			}
		}
	}
	return p
}

// waitsOf returns the waits of a set: for machines to become ready, and for deletions to end.
func waitsOf(slots []Slot) []string {
	var starting, deleting []string
	for _, slot := range slots {
		for _, m := range slot.Machines {
			switch {
			case m.IsDeleting:
				deleting = append(deleting, fmt.Sprintf("machine %s is being deleted (%s)", m.Name, m.Detail))
			case m.isPending():
				starting = append(starting, fmt.Sprintf("machine %s is not ready (%s)", m.Name, m.Detail))
			}
		}
	}
	return append(starting, deleting...)
}

// shownNames limits how many names a message has.
const shownNames = 5

func few(names []string) string { return printable.Few(names, shownNames) }
