package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// watchFlags are the flags for keeping a release in place once it is applied.
type watchFlags struct {
	isEnabled bool
	every     time.Duration
}

func addWatchFlags(command *cobra.Command, f *watchFlags) {
	flags := command.Flags()
	flags.BoolVarP(&f.isEnabled, "watch", "w", false,
		"keep the release in place until Ctrl-C: objects that are changed or deleted are repaired at once")
	flags.DurationVar(&f.every, "recheck", defaultRecheck,
		"with --watch: how often to check all objects, besides the watches; 0 for never")
}

// defaultRecheck is the default of --recheck.
const defaultRecheck = time.Hour

// checkWatch returns an error if flags contradict each other.
func (f *applyFlags) checkWatch() error {
	switch {
	case !f.watch.isEnabled && f.watch.every != defaultRecheck:
		return core.Misusef("--recheck is for --watch: add it, or leave out --recheck")
	case !f.watch.isEnabled:
		return nil
	case f.dryRun.IsEnabled():
		return core.Misusef("--watch: a dry run applies no release to keep in place: remove one of the two flags")
	case f.Session.Apply.NoWait:
		return core.Misusef("--watch: --no-wait does not wait for the apply: remove one of the two flags")
	case f.watch.every < 0:
		return core.Misusef("--recheck: %s is invalid: it must be 0, which means never, or greater", f.watch.every)
	}
	return nil
}

// A keptReporter reports the events of a release that is kept in place. A nil keptReporter reports nothing.
type keptReporter struct {
	*reporter
	summary KeptSummary
	began   time.Time // time when the release was applied; zero before that
	isDone  bool      // all objects were ready
}

// keep makes an apply keep the release in place, and check all objects at an interval.
func (r *reporter) keep(every time.Duration, options *session.Options) *keptReporter {
	k := &keptReporter{reporter: r, summary: KeptSummary{Type: "kept"}}
	if every == 0 {
		every = -1
	}
	options.Lock.Keeps = true
	options.Keep = &keep.Options{Every: every, OnEvent: func(event keep.Event) {
		r.keepEvent(event)
		k.summary.count(event)
	}}
	return k
}

// outcome reports the outcome of an apply, failed or not: its objects are kept in place from then on. If an outage of
// the API server has interrupted the apply, it reports the outage.
func (k *keptReporter) outcome(o *session.Outcome) {
	if o.IsInterrupted {
		k.reportOutage(o.Err)
		return
	}
	_ = k.reporter.end(o) // an error of standard output does not end the watch
	if k.began.IsZero() {
		k.began = k.now()
	}
	k.isDone = o.Err == nil
}

// reportOutage reports an outage of the API server.
func (k *keptReporter) reportOutage(outage error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopView()
	k.isDone, k.isFinished = false, false
	fmt.Fprintf(k.streams.Err, "%s: the apply continues when the cluster responds\n", printable.Line(outage.Error()))
}

// finish reports the number of repairs. Ctrl-C is not an error if the release was complete.
func (k *keptReporter) finish(o *session.Outcome) {
	if k == nil || k.began.IsZero() {
		return
	}
	if k.isDone && errors.Is(o.Err, context.Canceled) {
		o.Err = nil
	}
	s := k.summary
	s.Release, s.Version, s.Time, s.Seconds = o.Release, o.Version, k.now().UTC(), k.now().Sub(k.began).Seconds()
	if k.format == core.JSON {
		k.write(s)
		return
	}
	text := printable.Count(s.Repaired, "repair")
	if s.Contested > 0 {
		text += fmt.Sprintf(", %d contested", s.Contested)
	}
	if s.Missed > 0 {
		text += fmt.Sprintf(", %d missed by the watches", s.Missed)
	}
	took := time.Duration(s.Seconds * float64(time.Second)).Round(time.Second)
	fmt.Fprintf(k, "release %s was kept in place for %s: %s\n", s.Release, took, text)
}

// keepEvent reports an event of the keeping of a release.
func (r *reporter) keepEvent(event keep.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.format == core.JSON {
		r.write(event)
		return
	}
	if r.isQuiet {
		return
	}
	text := fmt.Sprintf("%-11s", event.Type)
	if event.Object != nil {
		text += " " + event.Object.String()
	}
	switch {
	case event.Object == nil:
		text += " " + event.Message
	case event.Action != "" && event.Message != "":
		text += fmt.Sprintf(": %s; %s", event.Action, event.Message)
	case event.Action != "":
		text += ": " + string(event.Action)
	default:
		text += ": " + event.Message
	}
	if event.Type == keep.Failing {
		text += fmt.Sprintf(" (%s)", printable.Line(event.File))
	}
	fmt.Fprintln(r.lines(), text)
}

// A KeptSummary is the last event of a release that was kept in place.
type KeptSummary struct {
	Time      time.Time `json:"time"`
	Type      string    `json:"type"` // "kept"
	Release   string    `json:"release"`
	Version   string    `json:"version,omitempty"`
	Repaired  int       `json:"repaired"`
	Contested int       `json:"contested,omitempty"` // objects that other managers change again and again
	Missed    int       `json:"missed,omitempty"`    // drifts that the watches missed
	Seconds   float64   `json:"seconds"`
}

func (s *KeptSummary) count(event keep.Event) {
	switch event.Type {
	case keep.Repaired:
		s.Repaired++
	case keep.Contested:
		s.Contested++
	case keep.Missed:
		s.Missed++
	}
}
