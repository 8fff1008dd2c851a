package apply

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// How often a changed state of the run is written to the record, for commands such as why. A run of a few seconds
// writes none.
const (
	noteFirst = 3 * time.Second
	noteEvery = 10 * time.Second
)

// A walkReporter reports from time to time, during a walk, the waits of the run, and writes its state to the record.
// The loop of the walk calls it; requests run beside the loop.
type walkReporter struct {
	*runScope
	ctx    context.Context
	cancel context.CancelFunc
	beside sync.WaitGroup

	reports      *time.Ticker
	isExplaining bool
	explainAt    time.Time // the time of the next diagnosis of waits
	known        []Wait    // the last waits with reasons

	notes    *time.Timer
	recorded *record.Run // the state that the record has

	states     *time.Ticker // nil if no one follows the state
	hasChanged bool         // the state has changed since it was published
}

// publishEvery is the shortest interval between published states: no view shows more.
const publishEvery = 100 * time.Millisecond

func newWalkReporter(ctx context.Context, s *runScope) *walkReporter {
	ctx, cancel := context.WithCancel(ctx)
	r := &walkReporter{
		runScope: s, ctx: ctx, cancel: cancel,
		reports: time.NewTicker(s.options.ReportWaits), explainAt: time.Now().Add(s.options.AskWhy),
		notes: time.NewTimer(noteFirst),
	}
	if s.options.ReportStates {
		r.states = time.NewTicker(publishEvery)
		r.hasChanged = true
		r.publish()
	}
	return r
}

// ticks returns the channels with the times to report waits, to note the state in the record, and to publish it.
func (r *walkReporter) ticks() (reports, notes, states <-chan time.Time) {
	switch {
	case r == nil:
		return nil, nil, nil
	case r.states != nil:
		states = r.states.C
	}
	return r.reports.C, r.notes.C, states
}

// close ends the requests that run beside the loop.
func (r *walkReporter) close() {
	r.reports.Stop()
	r.notes.Stop()
	if r.states != nil {
		r.states.Stop()
		r.publish()
	}
	r.cancel()
	r.beside.Wait()
}

// noteChange notes that the state of the run has changed.
func (r *walkReporter) noteChange() {
	if r != nil {
		r.hasChanged = true
	}
}

// publish publishes the state of the run, if it has changed.
func (r *walkReporter) publish() {
	if r.states == nil || !r.hasChanged {
		return
	}
	r.hasChanged = false
	waits, _ := r.allWaits()
	r.results.events.emit(Event{Type: StateChanged, State: r.state(r.withReasons(waits))})
}

// reportWaits reports the present waits, with the last known reasons, or asks for the reasons first.
func (r *walkReporter) reportWaits() {
	all, objects := r.allWaits()
	// the next tick would be too late
	switch isDue := !time.Now().Add(r.options.ReportWaits / 2).Before(r.explainAt); {
	case r.isExplaining || r.ctx.Err() != nil:
	case isDue:
		r.isExplaining, r.explainAt = true, time.Now().Add(r.options.AskWhy)
		r.beside.Go(func() {
			r.explainer.explain(r.ctx, all, objects)
			r.inbox.put(event{explanation: &explanation{all}})
		})
	default:
		r.report(all)
	}
}

// reportExplained reports the present waits, with the reasons of an explanation.
func (r *walkReporter) reportExplained(e *explanation) {
	r.isExplaining = false
	if r.ctx.Err() == nil { // otherwise the reasons may be incomplete
		r.known = e.waits
		all, _ := r.allWaits()
		r.report(all)
	}
}

// report reports waits.
func (r *walkReporter) report(all []Wait) {
	for _, wait := range r.withReasons(all) {
		r.results.events.reportWait(wait)
	}
}

// withReasons adds the last known reasons to waits.
func (r *walkReporter) withReasons(all []Wait) []Wait {
	known := byStep(r.known)
	for i := range all {
		if last := known[all[i].StepID()]; !all[i].IsOfStep && (!all[i].IsRetry || all[i].For == last.For) {
			all[i].Why = last.Why
		}
	}
	return all
}

// writeState writes the state of the run to the record, if the state has changed.
func (r *walkReporter) writeState() {
	waits, _ := r.allWaits()
	state := r.state(waits).Record()
	if state.Same(r.recorded) {
		r.notes.Reset(noteEvery)
		return
	}
	r.beside.Go(func() { r.inbox.put(event{write: &recordWrite{state, r.write(state, waits)}}) })
}

// endWrite notes the result of a write, and schedules the next one.
func (r *walkReporter) endWrite(w *recordWrite) {
	if w.err == nil {
		r.recorded = w.run
	}
	r.notes.Reset(noteEvery)
}

func (r *walkReporter) write(state *record.Run, waits []Wait) error {
	return r.options.Journal.Note(r.requestCtx, func(known *record.Record) {
		known.Run, known.Waits = state, nil
		known.Fingerprints = r.options.Fingerprints.MergeInto(known.Fingerprints)
		for _, wait := range waits[:min(maxWaits, len(waits))] {
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
