package rolloutplan

import (
	"slices"
	"strings"
)

// acknowledge counts the machines that were moved to a set among its replicas, so that it neither deletes them as
// surplus nor moves others in their place. If the template has changed meanwhile, that set is an old one.
func (p *planner) acknowledge() {
	for _, set := range p.all() {
		set.acknowledge()
	}
}

func (s *plannedSet) acknowledge() {
	s.SetStep.Acknowledged = slices.Sorted(slices.Values(s.Arrived))
	added := slices.DeleteFunc(slices.Clone(s.SetStep.Acknowledged), func(name string) bool {
		return slices.Contains(s.SetState.Acknowledged, name)
	})
	if len(added) == 0 {
		return
	}
	s.Replicas += len(added)
	s.To = s.Replicas
	s.because("moved to it: %s", strings.Join(added, ", "))
}

// keepUnmoved raises the replicas of sets whose machines are no longer moved: the sets would delete them otherwise.
func (p *planner) keepUnmoved() {
	for _, set := range p.all() {
		if set.Unmoved > 0 {
			set.Replicas += set.Unmoved
			set.To = set.Replicas
			set.because("%d machines are not moved any more", set.Unmoved)
		}
	}
}

// updateInPlace lets old sets move machines to the new one instead of deleting them, if these can be updated in place.
// The old sets are scaled down as in a replacement: a machine during an update counts as not available.
func (p *planner) updateInPlace() {
	if p.current.Replicas >= p.spec.Replicas {
		return
	}
	for _, set := range p.old {
		switch {
		case set.Current == 0:
		case set.InPlace.IsPossible:
			set.MoveTo = p.current.Name
			p.current.ReceiveFrom = append(p.current.ReceiveFrom, set.Name)
		case set.isScaled() && set.InPlace.Reason != "":
			set.because("not updated in place: %s", set.InPlace.Reason)
		}
	}
	slices.Sort(p.current.ReceiveFrom)
	if len(p.current.ReceiveFrom) > 0 {
		p.dropSurge()
	}
}

// dropSurge omits surge machines: an update in place needs only the first one, and only if no machine may be
// unavailable.
func (p *planner) dropSurge() {
	up := p.current.To - p.current.Replicas
	surge := min(up, sum(p.all(), func(s *plannedSet) int { return max(s.To, s.Current) })-p.spec.Replicas)
	if surge <= 0 {
		return
	}
	if up > surge || p.isUnderWay() {
		p.current.To -= surge
		p.current.because("surge of %d dropped for updates in place", surge)
		return
	}
	p.current.To = p.current.Replicas + 1
	p.current.because("surge of 1 lets others be updated in place")
}

// isUnderWay reports whether the rollout continues without another machine.
func (p *planner) isUnderWay() bool {
	n := p.current
	isSettled := n.Replicas == n.Current && n.Replicas == n.UpToDate && n.Replicas == n.Available &&
		len(p.state.Updating) == 0
	return !isSettled || slices.ContainsFunc(p.old, func(s *plannedSet) bool {
		return s.Replicas < s.Current || s.To < s.Replicas
	})
}
