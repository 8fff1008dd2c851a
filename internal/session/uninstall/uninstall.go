// Package uninstall removes a release from a cluster: first the objects that it has applied, users of an object
// before the object, and then its record. It keeps data, Namespaces that contain other objects, and objects that
// another manager has taken over.
//
// It does not remove the operator (package setup of internal/operator does), and runs no lifecycle hooks. The
// decisions about objects (choose.go) and their order (stages.go) need no requests.
//
// Look returns the plan. Run deletes the objects, under the lock of the release, and continues an uninstall that was
// killed. DryRun sends the deletes as dry runs. Start with Look.
package uninstall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/notify"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// The reasons of this package's failures.
const (
	ReasonKept     = "ReleaseKeptInPlace" // a process would recreate deleted objects
	ReasonUnlisted = "ReleaseNotListed"   // the objects of the release can't be listed
	ReasonDenied   = "UninstallDenied"    // rights are missing
	// another version was applied since the user has confirmed the plan
	ReasonChanged = "ReleaseChanged"
	ReasonRefused = "UninstallDeleteRefused" // the API server refuses a delete permanently
	ReasonTimeout = "UninstallTimeout"       // objects still existed after the timeout
)

// Options configure an uninstall.
type Options struct {
	Release   string
	Namespace string   // namespace of the record
	In        []string // namespaces to search for objects of kinds that may not be listed in the whole cluster
	Choice    Choice
	Lock      lock.Options
	Timeout   time.Duration // timeout of the deletes; starts when the lock is held
	OnEvent   func(Event)   // called for each event; nil ignores events
	Notify    *notify.Sender
}

// An EventType is what happens in an uninstall.
type EventType string

// The types of events.
const (
	StageBegan    EventType = "stage"
	ObjectDeleted EventType = "deleted" // the object does not exist any more
	ObjectWaiting EventType = "waiting" // the object has been terminating for some time
	ObjectFailing EventType = "failing" // the delete of the object is refused
	ObjectKept    EventType = "kept"    // the object is kept, although the plan has deleted it
)

// An Event is one thing that happens in an uninstall.
type Event struct {
	Type    EventType
	Object  kinds.ID
	Message string
	Stage   string // the stage that it belongs to
	Left    int    // objects of the stage that still exist
	Total   int    // objects of the stage
}

// A Report is the result of an uninstall, or of its dry run.
type Report struct {
	Release string             `json:"release"`
	Version string             `json:"version,omitempty"`
	DryRun  bool               `json:"dryRun,omitempty"`
	Done    bool               `json:"done"`              // the record and all objects of the plan were deleted
	Counts  kinds.ObjectCounts `json:"counts"`            // number of deleted objects of each kind
	Deleted []kinds.ID         `json:"deleted,omitempty"` // objects that were or would be deleted, in order
	Kept    []KeptObject       `json:"kept,omitempty"`
	Left    []LeftObject       `json:"left,omitempty"`  // objects that still exist
	Hooks   []kinds.ID         `json:"hooks,omitempty"` // Deployments with lifecycle hooks, none of which was run
	Notes   []string           `json:"notes,omitempty"`
	Seconds float64            `json:"seconds"`
	Reason  string             `json:"reason,omitempty"`
	Error   string             `json:"error,omitempty"`

	Err error `json:"-"`
}

// A LeftObject is an object of the plan that still exists.
type LeftObject struct {
	Object  kinds.ID `json:"object"`
	Message string   `json:"message"` // its state, and what holds it
}

// newReport returns the report of an uninstall that has not deleted anything yet.
func newReport(p *Plan) *Report {
	return &Report{Release: p.Release, Version: p.Version, Kept: p.Kept, Hooks: p.Hooks, Notes: p.Notes}
}

// finish sets the result.
func (r *Report) finish(began time.Time, deleted []objectmeta.LiveMetadata, err error) *Report {
	r.Counts = countsOf(deleted)
	for _, head := range deleted {
		r.Deleted = append(r.Deleted, head.ID)
	}
	r.Seconds = time.Since(began).Round(time.Millisecond).Seconds()
	if r.Done, r.Err = err == nil && !r.DryRun, err; err != nil {
		r.Reason, r.Error = reason.Of(err), printable.Error(err).Error()
	}
	return r
}

// Run uninstalls a release. Confirmed is the plan that the user has confirmed: if another version was applied since,
// Run deletes nothing.
func Run(ctx context.Context, c *cluster.Cluster, o Options, confirmed *Plan) *Report {
	began, report := time.Now(), newReport(confirmed)
	l := &looker{cluster: c, options: o}
	hold, err := l.lock().Acquire(ctx, o.Lock)
	if err != nil {
		return report.finish(began, nil, err)
	}
	fenced, err := c.Fenced(hold.Check)
	if err != nil {
		return report.finish(began, nil, hold.Release(err))
	}
	r := newRemover(&looker{
		cluster:   fenced,
		options:   o,
		store:     record.NewStore(fenced.Client, o.Namespace, o.Release),
		confirmed: confirmed,
	}, report)
	r.hold, r.notifier = hold, &notify.Notifier{Cluster: c, Namespace: o.Namespace, Release: o.Release}
	defer r.notifyEnd(ctx)
	if err = r.run(hold.Context(), confirmed); err != nil {
		return report.finish(began, r.deleted, hold.Release(err))
	}
	if last := r.plan.last; len(last) > 0 { // a terminating Namespace can't have a lock
		unlocked := newRemover(l, report)
		unlocked.plan = r.plan
		limited, cancel := context.WithTimeoutCause(ctx, cmp.Or(o.Timeout, forever), errTimeout)
		defer cancel()
		err = unlocked.deleteStage(limited, Stage{Name: kinds.NamespaceStage.String(), Objects: last})
		r.deleted = append(r.deleted, unlocked.deleted...)
	}
	return report.finish(began, r.deleted, err)
}

// DryRun sends the deletes of a plan as dry runs, and reports those that would be refused. It takes no lock.
func DryRun(ctx context.Context, c *cluster.Cluster, p *Plan) *Report {
	began, report := time.Now(), newReport(p)
	report.DryRun = true
	objects := p.Objects()
	refused := make([]error, len(objects))
	forEach(objects, func(i int, head objectmeta.LiveMetadata) {
		if !head.Terminating {
			refused[i] = c.DryRunDelete(ctx, head.Resource, head.ID.Namespace, head.ID.Name, head.UID)
		}
	})
	if ctx.Err() != nil {
		return report.finish(began, nil, context.Cause(ctx))
	}
	var accepted []objectmeta.LiveMetadata
	for i, err := range refused {
		if err != nil && !apierrors.IsNotFound(err) {
			report.Left = append(report.Left, LeftObject{
				Object:  objects[i].ID,
				Message: "its delete would be refused: " + printable.Line(err.Error()),
			})
		} else {
			accepted = append(accepted, objects[i])
		}
	}
	var err error
	if len(report.Left) > 0 {
		err = &reason.Error{
			Reason:  ReasonRefused,
			Message: printable.Count(len(report.Left), "delete") + " would be refused",
		}
	}
	return report.finish(began, accepted, err)
}

// forever is a timeout that no one waits for.
const forever = 10 * 365 * 24 * time.Hour

// run deletes the objects and the record, under the lock.
func (r *remover) run(ctx context.Context, confirmed *Plan) error {
	p, err := r.look(ctx)
	if err != nil {
		return err
	}
	if before, now := confirmed.record.Newest(), p.record.Newest(); before != nil && now != nil &&
		(before.Hash != now.Hash || !before.Started.Equal(&now.Started)) {
		return &reason.Error{
			Reason:  ReasonChanged,
			Message: fmt.Sprintf("release %s was applied in the meantime: read the plan again", p.Release),
		}
	}
	r.plan, r.report.Kept, r.report.Hooks, r.report.Notes = p, p.Kept, p.Hooks, p.Notes
	now := metav1.NewTime(r.cluster.Now().Truncate(time.Second))
	r.left = len(p.Objects())
	p.record.BeginUninstall(record.Uninstall{Since: now, By: r.hold.Holder(), Left: r.left, ReportedAt: now})
	if err := r.store.Save(ctx, p.record); err != nil {
		return err
	}
	r.notifyBegun(ctx)
	limited, cancel := context.WithTimeoutCause(ctx, cmp.Or(r.options.Timeout, forever), errTimeout)
	defer cancel()
	if err := r.deleteAll(limited); err != nil {
		return r.interrupted(ctx, err)
	}
	return r.end(ctx)
}

// errTimeout is the cause of the end of a context.
var errTimeout = errors.New("timeout")

// deleteAll deletes the objects, stage by stage.
func (r *remover) deleteAll(ctx context.Context) error {
	for _, stage := range r.plan.Stages {
		if err := r.deleteStage(ctx, stage); err != nil {
			return err
		}
	}
	return nil
}

// end marks the kept objects, deletes the copies of the files, and then deletes the record. If the process is killed
// before it deletes the Lease, the Lease still has a copy of the record.
func (r *remover) end(ctx context.Context) error {
	if err := r.markKept(ctx); err != nil {
		return err
	}
	if r.plan.record.History.HasFiles() {
		if err := r.copies().RemoveAll(ctx); err != nil {
			return err
		}
	}
	if err := r.store.Delete(ctx); err != nil {
		return err
	}
	requests, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	return r.hold.Delete(requests)
}

// requestTimeout bounds the requests after the end of the context.
const requestTimeout = 20 * time.Second

// interrupted records how many objects still exist, unless the lock is lost, and reports what holds them.
func (r *remover) interrupted(ctx context.Context, err error) error {
	if errors.Is(err, lock.ErrLost) {
		return err
	}
	requests, stop := r.hold.Requests(ctx)
	defer stop()
	requests, cancel := context.WithTimeout(requests, requestTimeout)
	defer cancel()
	r.describeLeft(requests)
	err = errors.Join(err, r.save(requests))
	if !errors.Is(err, errTimeout) {
		return err
	}
	return &reason.Error{Reason: ReasonTimeout,
		Message: fmt.Sprintf("%s not deleted after %s: resolve what holds them, and run the uninstall again",
			printable.Count(r.left, "object"), r.options.Timeout)}
}

// save records how many objects are left.
func (r *remover) save(ctx context.Context) error {
	uninstall := *r.plan.record.Uninstall
	uninstall.Left, uninstall.ReportedAt = r.left, metav1.NewTime(r.cluster.Now().Truncate(time.Second))
	r.plan.record.Uninstall = &uninstall
	return r.store.Save(ctx, r.plan.record)
}
