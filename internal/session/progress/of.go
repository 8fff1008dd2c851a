package progress

import (
	"cmp"
	"slices"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// Of returns how far an apply of an intent is. The state is nil before it has begun.
func Of(plan Intent, state *apply.RunState) Progress {
	p := Progress{Title: plan.Title, Began: plan.Began, Now: plan.Began}
	counts := map[string]StateCounts{} // by component
	running := map[string]apply.ComponentState{}
	if state != nil {
		p.Now = state.Now
		for _, component := range state.Components {
			running[component.Name] = component
		}
		components := plan.components()
		for of := range state.Manifests() {
			p.addSteps(of, components[key{of[0].File, of[0].ID}], counts)
		}
	}
	slices.SortFunc(p.Waits, func(a, b apply.Wait) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name(), b.Name()))
	})
	places := map[string]int{} // of levels
	for _, item := range plan.Items {
		at, isKnown := places[item.Level]
		if !isKnown {
			at = len(p.Levels)
			places[item.Level], p.Levels = at, append(p.Levels, Level{Name: item.Level})
		}
		p.Levels[at].addItem(item, plan, running[item.component()])
	}
	for i, level := range p.Levels {
		for j, component := range level.Components {
			each := counts[component.Node]
			each.Total = component.Total
			p.Levels[i].Components[j].StateCounts = each
			p.Levels[i].StateCounts = p.Levels[i].Add(each)
		}
		p.StateCounts = p.Add(p.Levels[i].StateCounts)
	}
	slices.SortStableFunc(p.Levels, func(a, b Level) int { return graph.CompareLevels(a.Name, b.Name) })
	return p
}

// A key identifies a manifest.
type key struct {
	file string
	id   kinds.ID
}

// component names the level and the component of an item.
func (i Item) component() string {
	return graph.Name{Level: i.Level, Component: i.Component}.Words()
}

// components returns the names of the components of all manifests.
func (i Intent) components() map[key]string {
	names := map[key]string{}
	for _, item := range i.Items {
		names[key{item.File, item.ID}] = item.component()
	}
	return names
}

// addItem adds an item to its component.
func (l *Level) addItem(item Item, plan Intent, state apply.ComponentState) {
	at := slices.IndexFunc(l.Components, func(c Component) bool { return c.Name == item.Component })
	if at < 0 {
		at = len(l.Components)
		name := item.component()
		l.Components = append(l.Components, Component{
			Name: item.Component, Node: name, IsRunning: state.IsRunning, IsOver: state.IsDone, Began: state.Began, Before: plan.Nodes[name],
		})
	}
	l.Components[at].Total++
}

// addSteps adds the steps of a manifest: its waits and failures, and its state in the counts of its component. A failed hook
// fails its manifest; a hook that has run does not complete it.
func (p *Progress) addSteps(steps []apply.RunStepState, component string, counts map[string]StateCounts) {
	isApplied, isWaiting, hasFailed := false, false, false
	for _, step := range steps {
		step.Node = cmp.Or(component, step.Node)
		switch step.Phase {
		case apply.HasFailed:
			hasFailed = true
			p.Failures = append(p.Failures, step.Failure())
		case apply.InWait, apply.InRetry:
			isWaiting = true
			p.Waits = append(p.Waits, step.Wait)
		}
		if step.Hook == "" {
			isApplied = step.Action != object.NotDone
		}
		if step.Hook == "" && step.Action == object.Pending {
			p.Deletes = append(p.Deletes, Deleting{step.ID, step.Result})
		}
	}
	of := counts[component]
	switch {
	case hasFailed:
		of.Failed++
	case isApplied && isWaiting:
		of.Waiting++
	case isApplied:
		of.Done++
	}
	counts[component] = of
}
