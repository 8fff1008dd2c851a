package progress

import (
	"path"
	"slices"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// FromRun returns how far an apply is by the run in its record, for callers without its events. The record
// only has components that are not done, so the others are missing in the levels, and Components count the
// objects that are left. Records of older programs have neither levels nor a total.
func FromRun(run *record.Run) Progress {
	p := Progress{Now: run.ReportedAt.Time, Levels: []Level{}}
	for _, runLevel := range run.Levels {
		p.Levels = append(p.Levels, Level{Name: runLevel.Name, Components: []Component{}, StateCounts: StateCounts{Total: runLevel.Total, Done: runLevel.Total - runLevel.Left}})
	}
	for _, node := range run.Nodes {
		for _, steps := range record.ByManifest(node.Steps) {
			isFirst := componentOf(steps[0]) == componentOf(node.Steps[0]) // what comes after it waits
			p.add(steps, isFirst && node.State == string(graph.Running) && !run.Ended)
		}
	}
	p.Total = max(run.Total, run.Left())
	p.Done = p.Total - run.Left()
	slices.SortStableFunc(p.Waits, func(a, b apply.Wait) int { return a.Since.Compare(b.Since) })
	return p
}

// componentOf returns the level and the component of a step.
func componentOf(step record.RunStep) graph.Name { return graph.ParseName(path.Base(step.File)) }

// add adds the unfinished steps of a manifest. The manifest waits if it is applied, and it or a hook of it waits.
func (p *Progress) add(steps []record.RunStep, isRunning bool) {
	name := componentOf(steps[0])
	counts := StateCounts{Total: 1}
	isToCome := slices.ContainsFunc(steps, func(s record.RunStep) bool { return s.Hook == "" && s.State == record.Blocked })
	for _, step := range steps {
		switch step.State {
		case record.Failed:
			counts.Failed = 1
			p.Failures = append(p.Failures, apply.Event{
				Type: apply.Failing, Object: &step.ID, Hook: step.Hook, File: step.File, Node: name.Words(), Reason: step.Reason, Message: step.For,
			})
		case record.Waiting, record.Retrying:
			waited := waitOf(step)
			p.Waits = append(p.Waits, waited)
			if !waited.IsRetry && !isToCome {
				counts.Waiting = 1
			}
		}
	}
	if counts.Failed > 0 {
		counts.Waiting = 0
	}
	p.Waiting, p.Failed = p.Waiting+counts.Waiting, p.Failed+counts.Failed
	if at := slices.IndexFunc(p.Levels, func(l Level) bool { return l.Name == name.Level }); at >= 0 {
		p.Levels[at].add(name, counts, isRunning)
	}
}

// waitOf returns the wait of a step.
func waitOf(step record.RunStep) apply.Wait {
	waited := apply.Wait{
		ID: step.ID, Hook: step.Hook, File: step.File, Node: componentOf(step).Words(), For: step.For, Reason: step.Reason, IsRetry: step.State == record.Retrying,
	}
	if step.Since != nil {
		waited.Since = step.Since.Time
	}
	return waited
}

// add adds an object that is not done to its component.
func (l *Level) add(name graph.Name, counts StateCounts, isRunning bool) {
	l.Waiting, l.Failed = l.Waiting+counts.Waiting, l.Failed+counts.Failed
	at := slices.IndexFunc(l.Components, func(c Component) bool { return c.Name == name.Component })
	if at < 0 {
		at = len(l.Components)
		l.Components = append(l.Components, Component{Name: name.Component, Node: name.Words()})
	}
	c := &l.Components[at]
	c.StateCounts, c.IsRunning = c.Add(counts), c.IsRunning || isRunning
}
