package rolloutplan

// scaleNew scales the new set: down to the replicas of the deployment, or up as far as more machines are allowed.
//
// If a deployment is scaled down during a rollout, it may have fewer available machines than MaxUnavailable allows, for
// as long as it has old ones: the new set is scaled down first.
func (p *planner) scaleNew() {
	present := sum(p.all(), (*plannedSet).present)
	switch missing := p.spec.Replicas - p.current.Replicas; {
	case missing < 0:
		p.current.To = p.spec.Replicas
		p.current.because("%d wanted", p.spec.Replicas)
	case missing > 0 && present < p.most():
		p.current.To = p.current.Replicas + min(missing, p.most()-present)
		p.current.because("%d machines, %d allowed", present, p.most())
	}
}

// scaleOld scales the old sets down, as far as the machines that are available allow it.
//
// The set decides which machines it deletes. So each deleted machine is assumed to be available, unless its set has no
// available one. Machines of the new set that are not available count twice: they are not available, and they are a
// reason not to delete more of the old ones.
func (p *planner) scaleOld() {
	leaving := sum(p.all(), (*plannedSet).leaving)
	notAvailable := max(0, p.current.Replicas-p.current.Available)
	r := &reserve{
		fewest:    p.fewest(),
		machines:  sum(p.all(), (*plannedSet).wanted) - leaving - p.fewest() - notAvailable,
		available: sum(p.all(), (*plannedSet).available),
	}
	if sum(p.old, (*plannedSet).wanted) == 0 {
		return
	}
	for _, set := range p.old { // machines that are not available first
		set.shrink(r, max(0, set.To-set.Available))
	}
	for _, set := range p.old {
		set.shrink(r, set.To)
	}
}

// A reserve is the number by which the old sets can still be scaled down.
type reserve struct {
	fewest    int // machines that must be available
	machines  int // replicas that the sets can still be scaled down by
	available int // available machines after the plan, if all deleted ones were available
}

// shrink scales a set down by some machines at most.
func (s *plannedSet) shrink(r *reserve, most int) {
	down := min(most, r.machines)
	if down <= 0 {
		return
	}
	before := r.available
	if s.Available > 0 {
		// Replicas without a machine yet cost no available machine.
		lost := max(0, s.Current-(s.To-down))
		if spare := max(0, r.available-r.fewest); lost > spare {
			target := min(s.Current-spare, s.To)
			down, lost = s.To-target, max(0, s.Current-target)
		}
		r.available -= min(s.Available, lost)
	}
	if down <= 0 {
		return
	}
	s.To -= down
	r.machines -= down
	if r.available < before {
		s.because("%d available, %d needed", before, r.fewest)
	} else {
		s.because("no available machine is removed")
	}
}

// scaleOldOnDelete scales the old sets down to the machines that have not been deleted, and by the surplus of the
// deployment.
func (p *planner) scaleOldOnDelete() {
	surplus := sum(p.old, (*plannedSet).wanted) + p.current.To - p.spec.Replicas
	for _, set := range p.old {
		if deleted := set.To - set.Current; deleted > 0 {
			set.To -= deleted
			surplus -= deleted
			set.because("%d deleted", deleted)
		}
	}
	for _, set := range p.old {
		if down := min(set.To, surplus); down > 0 {
			set.To -= down
			surplus -= down
			set.because("%d wanted", p.spec.Replicas)
		}
	}
}

// breakDeadlock deletes a machine of an old set if a rollout is stuck: nothing is in progress, all machines of the new
// set are available, and the old sets have unavailable machines that nothing repairs. The machine is deleted, not
// moved: a set deletes unavailable machines first, and would move another one.
func (p *planner) breakDeadlock() {
	current := sum(p.old, (*plannedSet).current)
	if current == 0 || current == sum(p.old, (*plannedSet).available) || p.current.Available != p.current.Current ||
		len(p.state.Updating) > 0 {
		return
	}
	for _, set := range p.all() {
		if set.Replicas != set.Current || set.isScaled() {
			return
		}
	}
	for _, set := range p.old {
		if set.Available != set.Current && set.Replicas > 0 {
			set.To--
			set.MoveTo = ""
			set.because("the rollout is stuck, %d not available", set.Current-set.Available)
			return
		}
	}
}

// scaleOnly scales a deployment whose template is not rolled out: a single set with machines to the desired replicas,
// or else the largest sets by the difference. A pause during a rollout changes nothing by itself.
func (p *planner) scaleOnly() {
	active := p.active()
	switch len(active) {
	case 0:
		return
	case 1:
		active[0].scaleTo(p.spec.Replicas, p.spec.Replicas)
		return
	}
	total := sum(active, (*plannedSet).wanted)
	if missing := p.spec.Replicas - total; missing > 0 {
		set := largest(active)
		set.scaleTo(set.Replicas+missing, p.spec.Replicas)
		return
	}
	for surplus := total - p.most(); surplus > 0; {
		set := largest(active)
		down := min(surplus, set.To)
		set.scaleTo(set.To-down, p.spec.Replicas)
		surplus -= down
	}
}

// active returns the sets with replicas, or else the newest one.
func (p *planner) active() []*plannedSet {
	var active []*plannedSet
	for _, set := range p.all() {
		if set.Replicas > 0 {
			active = append(active, set)
		}
	}
	if all := p.all(); len(active) == 0 && len(all) > 0 {
		return all[len(all)-1:]
	}
	return active
}

// largest returns the set with most replicas: of several, the newest.
func largest(sets []*plannedSet) *plannedSet {
	found := sets[0]
	for _, set := range sets {
		if set.To >= found.To {
			found = set
		}
	}
	return found
}

func (s *plannedSet) scaleTo(replicas, wanted int) {
	if s.To != replicas {
		s.To = replicas
		s.because("%d wanted, the rollout is paused", wanted)
	}
}
