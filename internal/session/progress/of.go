package progress

import (
	"cmp"
	"slices"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// Of returns how far an apply is, of this process or by the record of another one; nil is its state before it has
// begun. From a record, an intent is not needed, and the components that are done are missing.
func Of(intent Intent, state *apply.RunState) Progress {
	p := Progress{Title: intent.Title, Began: intent.Began, Now: intent.Began, Levels: []Level{}}
	if state == nil {
		state = intent.Planned
	} else {
		p.Now = state.Now
	}
	total, remaining := state.Count()
	p.StateCounts = StateCounts{Total: total, Done: total - remaining}
	for _, level := range state.Levels() {
		p.Levels = append(p.Levels, Level{
			Name: level.Name, Components: []Component{},
			StateCounts: StateCounts{Total: level.Total, Done: level.Total - level.Left},
		})
	}
	for _, steps := range state.Manifests() {
		p.addManifest(steps, intent)
	}
	if state != nil {
		p.setRunning(state.Components)
	}
	slices.SortFunc(p.Waits, func(a, b apply.Wait) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name(), b.Name()))
	})
	return p
}

// addManifest adds the steps of a manifest: its waits, failures and pending delete, and its state in the counts.
func (p *Progress) addManifest(steps []apply.RunStepState, intent Intent) {
	for _, step := range steps {
		switch step.Phase {
		case apply.HasFailed:
			p.Failures = append(p.Failures, step.Failure())
		case apply.InWait, apply.InRetry:
			p.Waits = append(p.Waits, step.Wait)
		}
		if step.Hook == "" && step.Action == object.Pending {
			p.Deletes = append(p.Deletes, Deleting{step.ID, step.Result})
		}
	}
	counts := countsOf(steps)
	more := counts
	if !slices.ContainsFunc(steps, apply.RunStepState.IsLeft) {
		more = StateCounts{} // it is counted as done
	}
	more.Total = 0
	p.StateCounts = p.Add(more)
	name := steps[0].Component()
	index := slices.IndexFunc(p.Levels, func(l Level) bool { return l.Name == name.Level })
	if index < 0 { // the record has no room for levels
		return
	}
	level := &p.Levels[index]
	level.StateCounts = level.Add(more)
	index = slices.IndexFunc(level.Components, func(c Component) bool { return c.Name == name.Component })
	if index < 0 {
		index = len(level.Components)
		level.Components = append(level.Components,
			Component{Name: name.Component, Node: steps[0].Node, Before: intent.Nodes[steps[0].Node]})
	}
	level.Components[index].StateCounts = level.Components[index].Add(counts)
}

// countsOf counts a manifest. A failed hook fails its manifest; a hook that has run does not complete it. The object is
// applied unless its own step is left: a record has no steps that are done.
func countsOf(steps []apply.RunStepState) StateCounts {
	counts, isApplied, isWaiting := StateCounts{Total: 1}, true, false
	for _, step := range steps {
		if step.Phase == apply.HasFailed {
			counts.Failed = 1
			return counts
		}
		isWaiting = isWaiting || step.Phase == apply.InWait || step.Phase == apply.InRetry
		if step.Hook == "" {
			isApplied = step.Action != object.NotDone
		}
	}
	switch {
	case isApplied && isWaiting:
		counts.Waiting = 1
	case isApplied:
		counts.Done = 1
	}
	return counts
}

// setRunning sets which components run, since when, and which have ended.
func (p *Progress) setRunning(components []apply.ComponentState) {
	states := map[string]apply.ComponentState{}
	for _, component := range components {
		states[component.Name] = component
	}
	for _, level := range p.Levels {
		for i := range level.Components {
			component := &level.Components[i]
			state := states[component.Node]
			component.IsRunning, component.IsOver, component.Began = state.IsRunning, state.IsDone, state.Began
		}
	}
}
