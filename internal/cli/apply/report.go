package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cli/live"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// A reporter reports the events of an apply: as a live view or lines on standard error, with a summary on standard
// output; or as one JSON object for each event on standard output.
type reporter struct {
	streams    core.Streams
	format     core.Output
	isQuiet    bool
	isDry      bool             // a dry run
	now        func() time.Time // returns the server time
	writeErr   error            // the first error of standard output
	isFinished bool             // the outcome was reported
	waits      waitLines        // the waits that were printed

	mu            sync.Mutex // the apply and the repairs report at the same time
	terminal      *os.File   // terminal of the live view; nil if there is none
	view          *live.View
	stopFollowing func() // ends the reading of pending deletes for the view
}

func newReporter(streams core.Streams, format core.Output, isQuiet bool, now func() time.Time) *reporter {
	r := &reporter{streams: streams, format: format, isQuiet: isQuiet, now: now}
	if format == core.Text && !isQuiet {
		r.terminal = live.TerminalOf(streams.Err)
	}
	return r
}

// A StartEvent is the first event of the stream.
type StartEvent struct {
	Time     time.Time              `json:"time"`
	Type     string                 `json:"type"` // "start"
	Release  string                 `json:"release"`
	Version  string                 `json:"version,omitempty"`
	Previous string                 `json:"previous,omitempty"`
	Mode     string                 `json:"mode"`
	Objects  int                    `json:"objects"`
	Gate     []precondition.Finding `json:"gate,omitempty"`
	Forced   []string               `json:"forced,omitempty"`
	DryRun   bool                   `json:"dryRun,omitempty"`
	Rollback *record.Rollback       `json:"rollback,omitempty"` // nil if it is none
}

// An applyObserver reports the stages of an apply.
type applyObserver struct {
	*reporter
	ctx       context.Context // context of the live view
	cluster   *cluster.Cluster
	manifests []*payload.Manifest
	rollback  *record.Rollback
	kept      *keptReporter // nil if the release is not kept in place
	isBegun   *bool         // set when the record has the update
}

// OnBegin reports the start of an apply.
func (a *applyObserver) OnBegin(o *session.Outcome) error {
	a.isFinished = false // an apply may begin again after an outage
	if a.format == core.JSON {
		a.write(StartEvent{
			Time: a.now().UTC(), Type: "start", Release: o.Release, Version: o.Version, Previous: o.Previous,
			Mode: string(o.Mode), Objects: len(a.manifests), Gate: o.Findings, Forced: o.Forced, DryRun: a.isDry,
			Rollback: a.rollback,
		})
		return nil
	}
	if !a.isQuiet || a.wouldRefuse(o) {
		a.findings(o)
	}
	if a.isQuiet {
		return nil
	}
	if len(o.Forced) > 0 && !a.isDry {
		fmt.Fprintf(a.streams.Err, "continuing because of --force, which the record notes: %s\n",
			strings.Join(o.Forced, ", "))
	}
	suffix := ""
	if a.isDry {
		suffix = "; a dry run, which changes nothing"
	}
	objects := printable.Count(len(a.manifests), "object")
	fmt.Fprintf(a.streams.Err, "%s of %s, %s%s\n", o.Mode, titleOf(o), objects, suffix)
	if a.terminal != nil && !a.isDry {
		a.startView(a.ctx, a.cluster, o, a.manifests)
	}
	return nil
}

// OnRecorded notes that the record has the update.
func (a *applyObserver) OnRecorded(context.Context, *cluster.Cluster) error {
	*a.isBegun = true
	return nil
}

// OnOutcome reports an outcome while the release is kept in place.
func (a *applyObserver) OnOutcome(o *session.Outcome) { a.kept.outcome(o) }

// findings prints the findings of the gate.
func (r *reporter) findings(o *session.Outcome) {
	for _, found := range o.Findings {
		fmt.Fprintln(r.streams.Err, gateText(found))
	}
}

// titleOf returns the release, the version and the previous version as text.
func titleOf(o *session.Outcome) string {
	title := "release " + o.Release
	if o.Version != "" {
		title += " " + o.Version
	}
	if o.Previous != "" && o.Previous != o.Version {
		title += ", after " + o.Previous
	}
	return printable.Line(title)
}

// onHeld reports the holder of the lock, before the apply waits for the lock.
func (r *reporter) onHeld(by lock.Holder) {
	fmt.Fprintf(r.streams.Err,
		"the lock of the release is held by %s since %s: waiting until it is released or renewed\n",
		printable.Line(by.Name), by.Since.UTC().Format(time.RFC3339))
}

// event reports an event of the apply.
func (r *reporter) event(event apply.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case event.Type == apply.StateChanged && r.view != nil:
		r.view.State(event.State)
	case event.Type == apply.StateChanged: // the live view has ended
	case r.format == core.JSON:
		r.write(DryEvent{event, r.isDry})
	case r.view != nil:
		r.view.Event(event)
		if isPersistent(event) {
			r.line(r.view, event)
		}
	case !r.isQuiet && r.waits.isDue(event) && isPrinted(event):
		r.line(r.streams.Err, event)
	}
}

// lines returns the writer of text lines.
func (r *reporter) lines() io.Writer {
	if r.view != nil {
		return r.view
	}
	return r.streams.Err
}

// isPrinted reports whether an event is printed as text.
func isPrinted(event apply.Event) bool {
	switch event.Type {
	case apply.Began, apply.Ended:
		return false
	default:
		return event.Action != object.Unchanged && event.Action != object.Absent && event.Action != object.NotNeeded
	}
}

func (r *reporter) write(value any) { _ = core.JSON.PrintNext(r, value) } // Write keeps the error

// Write writes to standard output. If that fails, the apply continues, and the error is reported at the end.
func (r *reporter) Write(text []byte) (int, error) {
	n, err := r.streams.Out.Write(text)
	if err != nil && r.writeErr == nil {
		r.writeErr = fmt.Errorf("the output is incomplete: %w", err)
	}
	return n, err
}

// line prints an event as text.
func (r *reporter) line(out io.Writer, event apply.Event) {
	text := printable.Line(live.Line(event))
	if event.Since != nil {
		text += ", for " + printable.Age(r.now(), *event.Since)
	}
	for _, reason := range event.Why {
		text += fmt.Sprintf("\n%-11s   %s", "", printable.Line(reason))
	}
	fmt.Fprintln(out, text)
}

// A Summary is the last event of the stream, and the content of the summary in text.
type Summary struct {
	Time      time.Time              `json:"time"`
	Type      string                 `json:"type"` // "summary"
	Release   string                 `json:"release"`
	Version   string                 `json:"version,omitempty"`
	Previous  string                 `json:"previous,omitempty"`
	Mode      string                 `json:"mode,omitempty"`
	DryRun    bool                   `json:"dryRun,omitempty"`
	Done      bool                   `json:"done"`
	Counts    map[object.Action]int  `json:"counts,omitempty"`
	Hooks     map[object.Action]int  `json:"hooks,omitempty"` // counts of lifecycle hooks
	Failures  []failure              `json:"failures,omitempty"`
	Waits     []apply.Wait           `json:"waits,omitempty"`
	NotDone   []undoneStep           `json:"notDone,omitempty"`
	Deletes   []state.PendingDelete  `json:"deletes,omitempty"`
	Orphans   []orphan               `json:"orphans,omitempty"`
	Adopted   []adoption             `json:"adopted,omitempty"`
	Overruled []overwrite            `json:"overruled,omitempty"`
	Warnings  []apply.Warning        `json:"warnings,omitempty"`
	Gate      []precondition.Finding `json:"gate,omitempty"`
	Notes     []string               `json:"notes,omitempty"` // facts that are unknown
	// reasons why files of the release are not stored, or older files are not removed
	FileWarnings []string `json:"fileWarnings,omitempty"`
	Seconds      float64  `json:"seconds"`
	Reason       string   `json:"reason,omitempty"`
	Error        string   `json:"error,omitempty"`
}

type failure struct {
	Object kinds.ID `json:"object"`
	Hook   string   `json:"hook,omitempty"`
	File   string   `json:"file"`
	Line   int      `json:"line"`
	Node   string   `json:"node,omitempty"`
	Reason string   `json:"reason"`
	Error  string   `json:"error"`
}

type undoneStep struct {
	Object kinds.ID `json:"object"`
	Hook   string   `json:"hook,omitempty"`
	File   string   `json:"file"`
	Why    string   `json:"why,omitempty"`
}

type adoption struct {
	Object kinds.ID `json:"object"`
	File   string   `json:"file"`
	From   []string `json:"from"`
}

type overwrite struct {
	Object kinds.ID             `json:"object"`
	File   string               `json:"file"`
	Lost   []ownership.Conflict `json:"lost"`
}

type orphan struct {
	Object    kinds.ID `json:"object"`
	Tombstone string   `json:"tombstone"`
}

// finishOnce reports the outcome, unless it has been reported.
func (r *reporter) finishOnce(o *session.Outcome) error {
	if r.isFinished {
		return errors.Join(o.Err, r.writeErr)
	}
	return r.end(o)
}

// end reports the outcome, and returns the error of the command.
func (r *reporter) end(o *session.Outcome) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isFinished = true
	r.stopView()
	s := summarize(o, r.now())
	s.DryRun = r.isDry
	if r.format == core.JSON {
		r.write(s)
	} else if o.Report != nil {
		s.print(r, r.now())
	}
	if r.isDry {
		return r.finishDry(o)
	}
	if reason.Of(o.Err) != precondition.ReasonFailed {
		return errors.Join(o.Err, r.writeErr)
	}
	if r.format != core.JSON {
		r.findings(o)
	}
	return gateError("stops", o)
}
