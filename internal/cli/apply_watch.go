package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/keep"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/record"
	"github.com/runlevel/runlevel/pkg/rollout"
)

// watchFlags say how a release is kept in place once it is applied.
type watchFlags struct {
	isAsked bool
	every   time.Duration
}

func addWatchFlags(command *cobra.Command, f *watchFlags) {
	flags := command.Flags()
	flags.BoolVarP(&f.isAsked, "watch", "w", false, "keep in place what is applied, until Ctrl-C: what is changed or deleted is repaired at once")
	flags.DurationVar(&f.every, "recheck", everyHour, "with --watch: how often to look at all objects, whatever the watches say; 0 for never")
}

// everyHour is how often all objects are looked at, unless somebody wants that otherwise.
const everyHour = time.Hour

// checkWatch refuses what does not go together.
func (f *applyFlags) checkWatch() error {
	switch {
	case !f.watch.isAsked && f.watch.every != everyHour:
		return misuse{errors.New("--recheck: only what is kept in place is looked at again: add --watch")}
	case !f.watch.isAsked:
		return nil
	case f.dryRun.isAsked():
		return misuse{errors.New("--watch: a dry run applies nothing that could be kept in place: leave one of them out")}
	case f.noWait:
		return misuse{errors.New("--watch: with --no-wait nobody knows when all is applied: leave one of them out")}
	case f.watch.every < 0:
		return misuse{fmt.Errorf("--recheck: %s is no time to wait; 0 is never", f.watch.every)}
	}
	return nil
}

// watching applies a release and keeps it in place.
func (t *teller) watching(f watchFlags) func(context.Context, *cluster.Cluster, *payload.Payload, rollout.Options) *rollout.Outcome {
	every := f.every
	if every == 0 {
		every = -1
	}
	return func(ctx context.Context, c *cluster.Cluster, release *payload.Payload, options rollout.Options) *rollout.Outcome {
		began, isDone, hasTold := time.Time{}, false, false
		kept := keptSummary{Type: "kept", Release: release.Name, Version: release.Version}
		var keeper *keep.Keeper
		options.Keep = func(ctx context.Context, c *cluster.Cluster, applied apply.Options) rollout.Keeper {
			began = t.now()
			keeper = keep.Start(ctx, c, release, keep.Options{Apply: applied.Objects(), Every: every, Tell: func(event keep.Event) {
				t.kept(event)
				kept.count(event)
			}})
			return keeper
		}
		options.Told = func(o *rollout.Outcome) {
			_ = t.end(o) // whether anybody hears it or not, it is kept in place
			if !hasTold {
				keeper.Announce()
			}
			t.isKept, hasTold, isDone = true, true, o.Err == nil
		}
		outcome := rollout.Run(ctx, c, release, options)
		if isDone && errors.Is(outcome.Err, context.Canceled) {
			outcome.Err = nil // it was kept in place until Ctrl-C
		}
		if hasTold {
			kept.Time, kept.Seconds = t.now().UTC(), t.now().Sub(began).Seconds()
			t.endKept(kept)
		}
		return outcome
	}
}

// mayKeepOn says whether a release that was kept in place can be again: nobody else has it, and the
// cluster only did not answer.
func (t *teller) mayKeepOn(ctx context.Context, outcome *rollout.Outcome) bool {
	isAway := wasAway(outcome.Err) || outcome.Report == nil && gaveNoAnswer(outcome.Err)
	return t.isKept && ctx.Err() == nil && isAway
}

// wasAway says whether a lock was lost only because it could not be renewed: the API server has not
// answered for longer than it lasts.
func wasAway(err error) bool { return errors.Is(err, record.ErrLost) && !record.IsTaken(err) }

// gaveNoAnswer says whether a server was not there, or could not do its work.
func gaveNoAnswer(err error) bool {
	var refused apierrors.APIStatus
	if errors.As(err, &refused) {
		return refused.Status().Code >= http.StatusInternalServerError || apierrors.IsTooManyRequests(err)
	}
	return errors.As(err, new(*url.Error))
}

// answersEvery is how often a server is asked whether it is back.
const answersEvery = time.Second

// again applies a release once more when the lock can be read again, and then keeps it in place. It
// is told once for each outage.
func (t *teller) again(ctx context.Context, lock *record.Store, why error, run func() *rollout.Outcome) *rollout.Outcome {
	t.hide()
	if t.isEnded {
		fmt.Fprintf(t.streams.Err, "%s: it is taken again as soon as the cluster answers\n", printable.Line(why.Error()))
	}
	err := wait.PollUntilContextCancel(ctx, answersEvery, false, func(ctx context.Context) (bool, error) {
		_, err := lock.Holding(ctx)
		return !gaveNoAnswer(err), nil
	})
	if err != nil {
		return &rollout.Outcome{Err: why}
	}
	t.isEnded = false
	return run()
}

// onlyAgain are the options to apply what was applied last: what somebody has applied meanwhile
// stays.
func onlyAgain(options rollout.Options) rollout.Options {
	begins := options.Begins
	options.Apply.Mode = "" // which was for the first time
	options.Begins = func(o *rollout.Outcome) error {
		if !o.IsSame {
			return fmt.Errorf("release %s is not kept in place any more: while the cluster did not answer, somebody has begun to apply something else", o.Release)
		}
		return begins(o)
	}
	return options
}

// kept tells of one thing that happened while a release is kept in place.
func (t *teller) kept(event keep.Event) {
	t.telling.Lock()
	defer t.telling.Unlock()
	if t.format == asJSON {
		t.write(event)
		return
	}
	if t.isQuiet {
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
	fmt.Fprintln(t.lines(), text)
}

// A keptSummary is what is told when a release is not kept in place any more.
type keptSummary struct {
	Time      time.Time `json:"time"`
	Type      string    `json:"type"` // "kept"
	Release   string    `json:"release"`
	Version   string    `json:"version,omitempty"`
	Repaired  int       `json:"repaired"`
	Contested int       `json:"contested,omitempty"` // objects that others make otherwise again and again
	Missed    int       `json:"missed,omitempty"`    // by the watches
	Seconds   float64   `json:"seconds"`
}

func (s *keptSummary) count(event keep.Event) {
	switch event.Type {
	case keep.Repaired:
		s.Repaired++
	case keep.Contested:
		s.Contested++
	case keep.Missed:
		s.Missed++
	}
}

func (t *teller) endKept(s keptSummary) {
	if t.format == asJSON {
		t.write(s)
		return
	}
	took := time.Duration(s.Seconds * float64(time.Second)).Round(time.Second)
	text := printable.Count(s.Repaired, "repair")
	if s.Contested > 0 {
		text += fmt.Sprintf(", %d contested", s.Contested)
	}
	if s.Missed > 0 {
		text += fmt.Sprintf(", %d missed by the watches", s.Missed)
	}
	fmt.Fprintf(t, "release %s was kept in place for %s: %s\n", s.Release, took, text)
}
