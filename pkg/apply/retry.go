package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/reason"
)

// backoff is how long to wait after a failure: half a second, then longer and longer.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 20, Cap: 15 * time.Second}
}

// inThisRunFor is how long a failure may come from servers that have not seen yet what
// this run has written.
const inThisRunFor = time.Minute

// atFirstFor is the same for a failure that is most likely one for good: servers see a changed
// definition after a moment.
const atFirstFor = 5 * time.Second

// A result is what came of a try of a step.
type result struct {
	isDone bool
	retry  error // why it is to be tried again; nil if it is not
	began  time.Time
}

// try tries a step once, and notes what came of it.
func (r *run) try(ctx context.Context, i int) result {
	began := time.Now()
	if ctx.Err() != nil {
		return result{} // it was never its turn
	}
	isAhead := r.isAhead(i)
	change, err := r.act(r.order.steps[i].Manifest)
	if err == nil {
		r.done(i, change)
		return result{isDone: true}
	}
	if isInterruption(err) && ctx.Err() != nil {
		err = cutOff{context.Cause(ctx)}
	}
	if ctx.Err() != nil || !isAhead && !r.heals(i, err) {
		r.failed(ctx, i, err)
		return result{}
	}
	return result{retry: err, began: began}
}

// pauseFor waits, unless something ends before.
func pauseFor(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// heals says whether a failure may go away by itself.
func (r *run) heals(i int, err error) bool {
	switch remedyFor(err).heals {
	case byItself:
		return true
	case inThisRun:
		return r.hasWritten(r.order.steps[i].GroupVersionKind().Group)
	case atFirst:
		return r.hasWrittenWithin(atFirstFor, r.order.steps[i].GroupVersionKind().Group)
	default:
		return false
	}
}

// wantedPause is how long the server wants to be left alone.
func wantedPause(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second
}

// hasWritten says whether this run has just written the definition, or the APIService, of
// a group.
func (r *run) hasWritten(group string) bool { return r.hasWrittenWithin(inThisRunFor, group) }

func (r *run) hasWrittenWithin(a time.Duration, group string) bool {
	written, found := r.written.Load(group)
	return found && time.Since(written.(time.Time)) < a
}

// A Failure is why something could not be done.
type Failure struct {
	ID     kinds.ID
	Path   string // of the manifest
	Line   int
	Node   string // the level and component
	Reason string // upstream's, such as UpdatePayloadResourceInvalid
	Effect reason.Effect
	Err    error
	Why    []string // what keeps its pods, and their last log lines

	isFinal bool // trying it again does not help
}

func (f *Failure) Error() string { return f.text(0) }

// text is the failure, and that more objects have failed for the same cause.
func (f *Failure) text(more int) string {
	where := fmt.Sprintf("%s:%d", f.Path, f.Line)
	if f.Node != "" {
		where += ", " + f.Node
	}
	message := strings.TrimPrefix(oneLine(f.Err), f.ID.String()+": ")
	name := f.ID.String()
	if more > 0 {
		name += fmt.Sprintf(" and %d more", more)
	}
	lines := []string{fmt.Sprintf("%s (%s): %s", name, printable.Line(where), message)}
	return strings.Join(append(lines, f.Why...), "\n  ")
}

// cause is what failures have in common that are the same but for the names of their objects.
func (f *Failure) cause() string {
	return strings.Join(append([]string{f.Reason, f.ID.Without(oneLine(f.Err))}, f.Why...), "\n")
}

func (f *Failure) Unwrap() error { return f.Err }

// failureOf says of an error where it is from.
func failureOf(m *payload.Manifest, err error) *Failure {
	failure := &Failure{ID: m.ID(), Path: m.Path, Line: m.Line, Node: nodeName(m), Effect: reason.EffectOf(err), Err: masked(m, err)}
	var ours refusal
	switch {
	case errors.As(err, &ours):
		failure.Reason = ours.reason
	case reason.Of(err) != "":
		failure.Reason = reason.Of(err)
	default:
		failure.Reason = remedyFor(err).reason
	}
	if tooLarge(err) {
		failure.Err = fmt.Errorf("it is too large: %w", failure.Err) // for what etcd says is only for those who know it
	}
	return failure
}

// nodeName is the level and the component of a manifest, as its file says.
func nodeName(m *payload.Manifest) string { return graph.ParseName(m.File()).Words() }

// oneLine is an error in a line.
func oneLine(err error) string { return printable.Line(err.Error()) }
