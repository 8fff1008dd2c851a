package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/runlevel/runlevel/internal/live"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/ownership"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/reason"
	"github.com/runlevel/runlevel/pkg/record"
	"github.com/runlevel/runlevel/pkg/rollout"
)

// A teller tells what an apply does: for people a live view or lines on standard error, and a
// summary on standard output; or one JSON object for each thing, all on standard output.
type teller struct {
	streams Streams
	format  output
	isQuiet bool
	isDry   bool             // nothing is done, and all is told as what would be
	now     func() time.Time // the cluster's
	unheard error            // why standard output does not have it all
	isEnded bool             // the outcome was told
	isKept  bool             // what was applied is kept in place, or was
	waits   waitLines        // those that were printed

	telling   sync.Mutex // the apply, and what keeps it in place, tell at the same time
	terminal  *os.File   // for a live view; nil if there is to be none
	view      *live.View
	looksAway func() // ends what looks at the cluster for the view
}

func newTeller(streams Streams, format output, isQuiet bool, now func() time.Time) *teller {
	t := &teller{streams: streams, format: format, isQuiet: isQuiet, now: now}
	if format == asText && !isQuiet {
		t.terminal = terminalOf(streams)
	}
	return t
}

// A startEvent is the first of the stream.
type startEvent struct {
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
}

// begins tells what is about to be done.
func (t *teller) begins(ctx context.Context, c *cluster.Cluster, manifests []*payload.Manifest) func(*rollout.Outcome) error {
	objects := len(manifests)
	return func(o *rollout.Outcome) error {
		if t.format == asJSON {
			t.write(startEvent{
				Time: t.now().UTC(), Type: "start", Release: o.Release, Version: o.Version, Previous: o.Previous, Mode: string(o.Mode),
				Objects: objects, Gate: o.Findings, Forced: o.Forced, DryRun: t.isDry,
			})
			return nil
		}
		if !t.isQuiet || t.wouldRefuse(o) {
			t.findings(o)
		}
		if t.isQuiet {
			return nil
		}
		if len(o.Forced) > 0 && !t.isDry {
			fmt.Fprintf(t.streams.Err, "going on all the same, as --force says; the record keeps it: %s\n", strings.Join(o.Forced, ", "))
		}
		how := ""
		if t.isDry {
			how = "; a dry run, which changes nothing"
		}
		fmt.Fprintf(t.streams.Err, "%s of %s, %s%s\n", o.Mode, titleOf(o), printable.Count(objects, "object"), how)
		if t.terminal != nil && !t.isDry {
			t.show(ctx, c, o, manifests)
		}
		return nil
	}
}

// findings tells what the gate says.
func (t *teller) findings(o *rollout.Outcome) {
	for _, found := range o.Findings {
		fmt.Fprintln(t.streams.Err, found.Text())
	}
}

// titleOf names what is applied.
func titleOf(o *rollout.Outcome) string {
	title := "release " + o.Release
	if o.Version != "" {
		title += " " + o.Version
	}
	if o.Previous != "" && o.Previous != o.Version {
		title += ", after " + o.Previous
	}
	return printable.Line(title)
}

// held tells who has the lock, while we wait.
func (t *teller) held(by record.Held) {
	fmt.Fprintf(t.streams.Err, "the release is being applied by %s since %s: waiting for its turn, or a sign of life\n", printable.Line(by.Holder), by.Since.UTC().Format(time.RFC3339))
}

// event tells of one thing that happened.
func (t *teller) event(event apply.Event) {
	t.telling.Lock()
	defer t.telling.Unlock()
	switch {
	case t.format == asJSON:
		t.write(dryEvent{event, t.isDry})
	case t.view != nil:
		t.view.Event(event)
		if stays(event) {
			t.line(t.view, event)
		}
	case !t.isQuiet && t.waits.isDue(event) && isWorthALine(event):
		t.line(t.streams.Err, event)
	}
}

// lines is where lines for people go.
func (t *teller) lines() io.Writer {
	if t.view != nil {
		return t.view
	}
	return t.streams.Err
}

// isWorthALine says whether people are told of something in a line of its own.
func isWorthALine(event apply.Event) bool {
	switch event.Type {
	case apply.Began, apply.Ended:
		return false
	default:
		return event.Action != object.Unchanged && event.Action != object.Absent
	}
}

func (t *teller) write(value any) {
	line, err := json.Marshal(value)
	if err != nil {
		return // of values that are ours, and can all be written
	}
	_, _ = t.Write(append(printable.JSON(line), '\n'))
}

// Write writes to standard output. Where nobody reads it, the apply goes on: what is half
// done is worse than what is not told.
func (t *teller) Write(text []byte) (int, error) {
	n, err := t.streams.Out.Write(text)
	if err != nil && t.unheard == nil {
		t.unheard = fmt.Errorf("not all of what was done could be told: %w", err)
	}
	return n, err
}

// line is an event for people.
func (t *teller) line(out io.Writer, event apply.Event) {
	text := printable.Line(live.Line(event))
	if event.Since != nil {
		text += ", for " + age(t.now(), *event.Since)
	}
	for _, why := range event.Why {
		text += fmt.Sprintf("\n%-11s   %s", "", printable.Line(why))
	}
	fmt.Fprintln(out, text)
}

// age is how long ago something was, in few letters; never less than nothing.
func age(now, then time.Time) string {
	return duration.HumanDuration(max(now.Sub(then), 0))
}

// An applySummary is the last object of the stream, and what the text at the end says.
type applySummary struct {
	Time      time.Time              `json:"time"`
	Type      string                 `json:"type"` // "summary"
	Release   string                 `json:"release"`
	Version   string                 `json:"version,omitempty"`
	Previous  string                 `json:"previous,omitempty"`
	Mode      string                 `json:"mode,omitempty"`
	DryRun    bool                   `json:"dryRun,omitempty"`
	Done      bool                   `json:"done"`
	Counts    map[object.Action]int  `json:"counts,omitempty"`
	Failures  []failure              `json:"failures,omitempty"`
	Waits     []apply.Wait           `json:"waits,omitempty"`
	NotDone   []notDone              `json:"notDone,omitempty"`
	Deletes   []pendingDelete        `json:"deletes,omitempty"`
	Orphans   []orphan               `json:"orphans,omitempty"`
	Adopted   []adopted              `json:"adopted,omitempty"`
	Overruled []overruled            `json:"overruled,omitempty"`
	Warnings  []apply.Warning        `json:"warnings,omitempty"`
	Gate      []precondition.Finding `json:"gate,omitempty"`
	Notes     []string               `json:"notes,omitempty"` // on what could not be found out
	Seconds   float64                `json:"seconds"`
	Reason    string                 `json:"reason,omitempty"`
	Error     string                 `json:"error,omitempty"`
}

type failure struct {
	Object payload.ID `json:"object"`
	File   string     `json:"file"`
	Line   int        `json:"line"`
	Node   string     `json:"node,omitempty"`
	Reason string     `json:"reason"`
	Error  string     `json:"error"`
}

type notDone struct {
	Object payload.ID `json:"object"`
	File   string     `json:"file"`
	Why    string     `json:"why,omitempty"`
}

type adopted struct {
	Object payload.ID `json:"object"`
	File   string     `json:"file"`
	From   []string   `json:"from"`
}

type overruled struct {
	Object payload.ID       `json:"object"`
	File   string           `json:"file"`
	Lost   []ownership.Loss `json:"lost"`
}

type orphan struct {
	Object    payload.ID `json:"object"`
	Tombstone string     `json:"tombstone"`
}

// endOnce is end, if the outcome was not told before.
func (t *teller) endOnce(o *rollout.Outcome) error {
	if t.isEnded {
		return errors.Join(o.Err, t.unheard)
	}
	return t.end(o)
}

// end tells the outcome, and is the error of the command.
func (t *teller) end(o *rollout.Outcome) error {
	t.telling.Lock()
	defer t.telling.Unlock()
	t.isEnded = true
	t.hide()
	s := summarize(o, t.now())
	s.DryRun = t.isDry
	if t.format == asJSON {
		t.write(s)
	} else if o.Report != nil {
		s.print(t, t.now())
	}
	if t.isDry {
		return t.endDry(o)
	}
	if reason.Of(o.Err) == precondition.ReasonFailed {
		return t.refused(o)
	}
	return errors.Join(o.Err, t.unheard)
}

// refused tells of an apply that the gate stops, in the words of "runlevel gate".
func (t *teller) refused(o *rollout.Outcome) error {
	if t.format != asJSON {
		t.findings(o)
	}
	return fmt.Errorf("the gate stops the %s of %s: lift what blocks it, or go on all the same with --force", o.Mode, titleOf(o))
}
