package uninstall

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/cluster/waiter"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/notify"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
)

const (
	deletesAtOnce = 16
	// The pause between two looks at the objects of a stage is a tenth of the time that the stage has taken, within
	// bounds.
	pauseShare    = 10
	shortestPause = 50 * time.Millisecond
	longestPause  = 2 * time.Second
	// reportInterval is how often the state of objects that do not end is read and recorded.
	reportInterval = 10 * time.Second
	firstReport    = 3 * time.Second
	mostDescribed  = 20 // objects at a time
)

// A remover deletes the objects of a release, stage by stage.
type remover struct {
	*looker
	hold   *lock.Hold // nil once the record is gone
	plan   *Plan
	report *Report

	notifier *notify.Notifier
	recordID types.UID // of the record's ConfigMap; "" until the uninstall has begun

	deleted []objectmeta.LiveMetadata // gone, in order
	current []objectmeta.LiveMetadata // of the stage: not gone
	total   int                       // objects of the stage
	left    int                       // objects of all stages that are not gone

	mu        sync.Mutex
	sent      map[types.UID]bool // the delete was accepted
	failing   map[kinds.ID]error // the last refusal of a delete
	described map[kinds.ID]string
}

func newRemover(l *looker, report *Report) *remover {
	return &remover{
		looker:    l,
		report:    report,
		sent:      map[types.UID]bool{},
		failing:   map[kinds.ID]error{},
		described: map[kinds.ID]string{},
	}
}

// deleteStage deletes the objects of a stage, and waits until they are deleted, and then until the pods of its
// workloads are. Each look decides by the objects that exist: an object that was written or created again in between is
// judged again, and a restart takes no other path.
func (r *remover) deleteStage(ctx context.Context, stage Stage) error {
	r.current, r.total = stage.Objects, len(stage.Objects)
	r.emit(Event{Type: StageBegan, Stage: stage.Name})
	owners, kinds := r.findPodOwners(ctx, stage), kindsOf(stage.Objects)
	deletes := r.newWaiter(func(ctx context.Context) error { return r.reportWaits(ctx, stage) })
	if err := deletes.Until(ctx, func(ctx context.Context) (waiter.Result, error) {
		return r.deleteOnce(ctx, stage, kinds)
	}); err != nil {
		return err
	}
	return r.awaitPods(ctx, stage, owners)
}

// newWaiter returns a waiter for deletes. Its report is called while they do not end.
func (r *remover) newWaiter(report func(context.Context) error) waiter.Waiter {
	return waiter.Waiter{
		Pause:          waiter.Pause{Shortest: shortestPause, Longest: longestPause, PerWait: pauseShare},
		Report:         func(ctx context.Context, _ error) error { return report(ctx) },
		ReportAfter:    firstReport,
		ReportInterval: reportInterval,
	}
}

// deleteOnce reads the objects of the stage, and requests the deletes that were not accepted before.
func (r *remover) deleteOnce(
	ctx context.Context, stage Stage, kinds []schema.GroupKind,
) (waiter.Result, error) {
	if err := r.observe(ctx, stage, kinds); err != nil {
		return waiter.Again, err
	}
	isAccepted, err := r.request(ctx, stage)
	switch {
	case err != nil:
		return waiter.Again, err
	case len(r.current) == 0:
		return waiter.Done, nil
	case isAccepted: // most objects are deleted already
		return waiter.AtOnce, nil
	default:
		return waiter.Again, nil
	}
}

// observe reads the objects of the stage, and decides which are still to be deleted.
func (r *remover) observe(ctx context.Context, stage Stage, of []schema.GroupKind) error {
	labelled, err := r.labelled(ctx, of, of)
	if err != nil {
		return err
	}
	if r.hold != nil {
		labelled, _ = splitNamespace(labelled, r.options.Namespace)
	}
	selected := r.plan.chooser(r.options.Choice).choose(labelled)
	if err := r.keepHolders(ctx, &selected); err != nil {
		return err
	}
	for _, kept := range selected.kept[len(r.plan.Kept):] {
		r.emit(Event{Type: ObjectKept, Object: kept.Object, Message: kept.Message, Stage: stage.Name})
	}
	now, exists := selected.deleted, map[types.UID]bool{}
	for _, head := range slices.Concat(labelled, now) {
		exists[head.UID] = true
	}
	var gone []objectmeta.LiveMetadata
	for _, head := range r.current {
		if exists[head.UID] {
			continue
		}
		switch found, err := r.confirmGone(ctx, head); {
		case err != nil:
			return err
		case found == nil:
			gone = append(gone, head)
		case found.Terminating:
			now = append(now, *found)
		default:
			selected.keep(*found, KeptTakenOver, "its label "+objectmeta.ReleaseLabel+" was removed")
		}
	}
	r.left += len(now) - len(r.current)
	r.current, r.plan.Kept, r.report.Kept = now, selected.kept, selected.kept
	r.deleted = append(r.deleted, gone...)
	for _, head := range gone {
		r.emit(Event{Type: ObjectDeleted, Object: head.ID, Stage: stage.Name})
	}
	return nil
}

// confirmGone returns an object that was not listed any more, if it exists nevertheless: it may have lost its label. An
// object whose delete was accepted, and that was never seen since, is gone.
func (r *remover) confirmGone(ctx context.Context, head objectmeta.LiveMetadata) (*objectmeta.LiveMetadata, error) {
	if r.sent[head.UID] && !head.Terminating {
		return nil, nil
	}
	found, err := r.read(ctx, head.ID)
	if err != nil || found == nil || found.UID != head.UID {
		return nil, err
	}
	return found, nil
}

// request requests the deletes that were not accepted before, of the objects as they were read. An object that was
// written since is left for the next look. An error means that a delete is refused for good.
func (r *remover) request(ctx context.Context, stage Stage) (isAny bool, err error) {
	unsent := slices.DeleteFunc(slices.Clone(r.current), func(head objectmeta.LiveMetadata) bool {
		return r.sent[head.UID] || head.Terminating
	})
	var group errgroup.Group
	group.SetLimit(deletesAtOnce)
	for _, head := range unsent {
		group.Go(func() error {
			err := cluster.DeleteUnchanged(ctx, r.cluster, head.Resource, head.Object())
			r.mu.Lock()
			defer r.mu.Unlock()
			switch {
			case err == nil, apierrors.IsNotFound(err):
				r.sent[head.UID], isAny = true, true
				delete(r.failing, head.ID)
			case !apierrors.IsConflict(err) && ctx.Err() == nil:
				if known := r.failing[head.ID]; known == nil || known.Error() != err.Error() {
					r.emit(Event{
						Type:    ObjectFailing,
						Object:  head.ID,
						Message: printable.Line(err.Error()),
						Stage:   stage.Name,
					})
				}
				r.failing[head.ID] = err
			}
			return nil
		})
	}
	_ = group.Wait()
	for _, head := range r.current {
		if err := r.failing[head.ID]; isFinal(err) {
			return false, &reason.Error{
				Reason:  ReasonRefused,
				Message: "the delete of " + head.ID.String() + " is refused",
				Err:     printable.Error(err),
			}
		}
	}
	return isAny, nil
}

// isFinal reports whether a refusal of a delete does not end by itself.
func isFinal(err error) bool {
	return errors.Is(err, lock.ErrLost) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsBadRequest(err)
}

// reportWaits reports what the stage waits for, and records how many objects are left.
func (r *remover) reportWaits(ctx context.Context, stage Stage) error {
	for _, left := range r.describe(ctx, r.current) {
		if r.described[left.Object] != left.Message {
			r.described[left.Object] = left.Message
			r.emit(Event{Type: ObjectWaiting, Object: left.Object, Message: left.Message, Stage: stage.Name})
		}
	}
	if r.hold == nil {
		return nil
	}
	if err := r.save(ctx); err != nil && !cluster.IsOutage(err) {
		return err
	}
	return nil
}

// describe returns the states of objects that are not gone, and what holds them.
func (r *remover) describe(ctx context.Context, objects []objectmeta.LiveMetadata) []LeftObject {
	objects = objects[:min(len(objects), mostDescribed)]
	described := make([]LeftObject, len(objects))
	var group errgroup.Group
	group.SetLimit(deletesAtOnce)
	for i, head := range objects {
		group.Go(func() error {
			described[i] = LeftObject{Object: head.ID}
			if refused := r.failing[head.ID]; refused != nil {
				described[i].Message = "its delete is refused: " + printable.Line(refused.Error())
				return nil
			}
			described[i].Message = tombstone.Observe(ctx, r.cluster, head.ID, head.UID).DescribeSince()
			return nil
		})
	}
	_ = group.Wait()
	return slices.DeleteFunc(described, func(left LeftObject) bool { return left.Message == "gone" })
}

// describeLeft reports the objects that are not gone: with their states those of the stage that has not ended, and the
// names of the others.
func (r *remover) describeLeft(ctx context.Context) {
	r.report.Left = r.describe(ctx, r.current)
	known := map[kinds.ID]bool{}
	for _, left := range r.report.Left {
		known[left.Object] = true
	}
	for _, head := range r.plan.Objects() {
		isGone := slices.ContainsFunc(r.deleted, func(gone objectmeta.LiveMetadata) bool {
			return gone.UID == head.UID
		})
		isKept := slices.ContainsFunc(r.plan.Kept, func(kept KeptObject) bool { return kept.Object == head.ID })
		if !isGone && !isKept && !known[head.ID] {
			r.report.Left = append(r.report.Left,
				LeftObject{Object: head.ID, Message: "its delete was not requested yet"})
		}
	}
}

// emit calls OnEvent, with the progress of the stage.
func (r *remover) emit(event Event) {
	event.Left, event.Total = len(r.current), r.total
	if r.options.OnEvent != nil {
		r.options.OnEvent(event)
	}
}
