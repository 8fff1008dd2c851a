package apply

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// How often a changed state of the run is written to the record, for commands such as why. A run that is over in
// seconds writes none.
const (
	noteFirst = 3 * time.Second
	noteEvery = 10 * time.Second
)

// A reporter reports from time to time, during a walk, what the run waits for, and writes its state to the record. The
// loop of the walk calls it; what takes requests runs beside the loop.
type reporter struct {
	run    *run
	ctx    context.Context
	cancel context.CancelFunc
	beside sync.WaitGroup

	reports      *time.Ticker
	isExplaining bool
	explainAt    time.Time // when the reasons of waits are asked for again
	known        []Wait    // the last waits with reasons

	notes    *time.Timer
	recorded *record.Run // as the record has it

	states     *time.Ticker // nil if no one follows the state
	hasChanged bool         // the state has, since it was published
}

// publishEvery is how often a changed state is published: no view shows more.
const publishEvery = 100 * time.Millisecond

func newReporter(ctx context.Context, r *run) *reporter {
	ctx, cancel := context.WithCancel(ctx)
	reporter := &reporter{
		run: r, ctx: ctx, cancel: cancel,
		reports: time.NewTicker(r.options.ReportWaits), explainAt: time.Now().Add(r.options.AskWhy),
		notes: time.NewTimer(noteFirst),
	}
	if r.options.ReportStates {
		reporter.states = time.NewTicker(publishEvery)
		reporter.hasChanged = true
		reporter.publish()
	}
	return reporter
}

// ticks returns the channels with the times to report waits, to note the state in the record, and to publish it.
func (r *reporter) ticks() (reports, notes, states <-chan time.Time) {
	switch {
	case r == nil:
		return nil, nil, nil
	case r.states != nil:
		states = r.states.C
	}
	return r.reports.C, r.notes.C, states
}

// close ends what runs beside the loop.
func (r *reporter) close() {
	r.reports.Stop()
	r.notes.Stop()
	if r.states != nil {
		r.states.Stop()
		r.publish()
	}
	r.cancel()
	r.beside.Wait()
}

// change notes that the state of the run has changed.
func (r *reporter) change() {
	if r != nil {
		r.hasChanged = true
	}
}

// publish publishes the state of the run, if it has changed.
func (r *reporter) publish() {
	if r.states == nil || !r.hasChanged {
		return
	}
	r.hasChanged = false
	waits, _ := r.run.allWaits()
	r.run.results.events.emit(Event{Type: StateChanged, State: r.run.state(r.withReasons(waits))})
}

// reportWaits reports the present waits, with the last known reasons, or asks for the reasons first.
func (r *reporter) reportWaits() {
	all, objects := r.run.allWaits()
	// the next tick would be too late
	switch isDue := !time.Now().Add(r.run.options.ReportWaits / 2).Before(r.explainAt); {
	case r.isExplaining || r.ctx.Err() != nil:
	case isDue:
		r.isExplaining, r.explainAt = true, time.Now().Add(r.run.options.AskWhy)
		r.beside.Go(func() {
			r.run.explainer.explain(r.ctx, all, objects)
			r.run.inbox.put(event{explained: &explained{all}})
		})
	default:
		r.report(all)
	}
}

// reportExplained reports the waits that are not over since their reasons were asked for.
func (r *reporter) reportExplained(e *explained) {
	r.isExplaining = false
	if r.ctx.Err() == nil { // otherwise the reasons may be incomplete
		r.known = e.waits
		all, _ := r.run.allWaits()
		r.report(all)
	}
}

// report reports waits.
func (r *reporter) report(all []Wait) {
	for _, wait := range r.withReasons(all) {
		r.run.results.events.waiting(wait)
	}
}

// withReasons adds the last known reasons to waits.
func (r *reporter) withReasons(all []Wait) []Wait {
	known := byStep(r.known)
	for i := range all {
		if last := known[all[i].StepID()]; !all[i].IsOfStep && (!all[i].IsRetry || all[i].For == last.For) {
			all[i].Why = last.Why
		}
	}
	return all
}

// note writes the state of the run to the record, if it has changed.
func (r *reporter) note() {
	waits, _ := r.run.allWaits()
	standing := r.run.state(waits).Record()
	if standing.Same(r.recorded) {
		r.notes.Reset(noteEvery)
		return
	}
	r.beside.Go(func() { r.run.inbox.put(event{noted: &noted{standing, r.write(standing, waits)}}) })
}

// hasNoted notes that a state of the run was written.
func (r *reporter) hasNoted(n *noted) {
	if n.err == nil {
		r.recorded = n.run
	}
	r.notes.Reset(noteEvery)
}

func (r *reporter) write(standing *record.Run, waits []Wait) error {
	return r.run.options.Journal.Note(r.run.requests, func(known *record.Record) {
		known.Run, known.Waits = standing, nil
		known.Fingerprints = r.run.options.Fingerprints.MergeInto(known.Fingerprints)
		for _, wait := range waits[:min(mostWaits, len(waits))] {
			known.Waits = append(known.Waits,
				record.ObjectWait{ID: wait.ID, Hook: wait.Hook, For: wait.For, Since: metav1.NewTime(wait.Since)})
		}
	})
}

// byStep returns waits by their steps.
func byStep(waits []Wait) map[object.StepID]Wait {
	awaited := map[object.StepID]Wait{}
	for _, wait := range waits {
		awaited[wait.StepID()] = wait
	}
	return awaited
}
