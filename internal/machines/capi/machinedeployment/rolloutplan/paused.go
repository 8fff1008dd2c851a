package rolloutplan

// scaleOnly scales a deployment whose template is not rolled out: a single set with machines to the desired replicas, or
// else the largest sets by the difference. A pause in the middle of a rollout changes nothing by itself.
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
