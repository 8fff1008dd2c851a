package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/cluster/waiter"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/notify"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

const (
	requestsAtOnce = 16
	// The pause between two reads of the objects of a stage is a tenth of the time since the stage began, within
	// bounds.
	pauseShare    = 0.1
	shortestPause = 50 * time.Millisecond
	longestPause  = 2 * time.Second
	// reportInterval is the time from one read and record of the objects that still exist to the next.
	reportInterval = 10 * time.Second
	firstReport    = 3 * time.Second
	maxDescribed   = 20 // objects at a time
)

// A remover deletes the objects of a release, stage by stage.
type remover struct {
	*looker
	hold   *lock.Hold // nil after the record was deleted
	plan   *Plan
	report *Report

	notifier *notify.Notifier
	recordID types.UID // UID of the record's ConfigMap; "" until the uninstall has begun

	stage   Stage                     // the current one
	deleted []objectmeta.LiveMetadata // objects of all stages, in order
	current []objectmeta.LiveMetadata // objects of the stage that still exist
	left    int                       // objects of all stages that still exist

	mu        sync.Mutex
	sent      map[types.UID]bool // objects whose delete was accepted
	failing   map[kinds.ID]error // why the last delete was refused
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
	r.stage, r.current = stage, stage.Objects
	r.emit(Event{Type: StageBegan})
	owners := r.findPodOwners(ctx)
	if err := r.newWaiter(r.reportWaits).Until(ctx, r.deleteOnce); err != nil {
		return err
	}
	return r.awaitPods(ctx, owners)
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
func (r *remover) deleteOnce(ctx context.Context) (waiter.Result, error) {
	if err := r.observe(ctx); err != nil {
		return waiter.Again, err
	}
	isAccepted, err := r.request(ctx)
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

// observe reads the objects of the stage, and decides which still have to be deleted.
func (r *remover) observe(ctx context.Context) error {
	kinds := kindsOf(r.stage.Objects)
	labelled, err := r.labelled(ctx, kinds, kinds)
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
		r.emit(Event{Type: ObjectKept, Object: kept.Object, Message: kept.Message})
	}
	remaining, exists := selected.deleted, map[types.UID]bool{}
	for _, head := range slices.Concat(labelled, remaining) {
		exists[head.UID] = true
	}
	var deleted []objectmeta.LiveMetadata
	for _, head := range r.current {
		if exists[head.UID] {
			continue
		}
		switch found, err := r.confirmDeleted(ctx, head); {
		case err != nil:
			return err
		case found == nil:
			deleted = append(deleted, head)
		case found.Terminating:
			remaining = append(remaining, *found)
		default:
			selected.keep(*found, KeptTakenOver, "its label "+objectmeta.ReleaseLabel+" was removed")
		}
	}
	r.left += len(remaining) - len(r.current)
	r.current, r.plan.Kept, r.report.Kept = remaining, selected.kept, selected.kept
	r.deleted = append(r.deleted, deleted...)
	for _, head := range deleted {
		r.emit(Event{Type: ObjectDeleted, Object: head.ID})
	}
	return nil
}

// confirmDeleted returns an object that was not listed any more, if it still exists: it may have lost its label. An
// object whose delete was accepted, and that was not seen since, does not exist.
func (r *remover) confirmDeleted(ctx context.Context, head objectmeta.LiveMetadata) (*objectmeta.LiveMetadata, error) {
	if r.sent[head.UID] && !head.Terminating {
		return nil, nil
	}
	found, err := r.read(ctx, head.ID)
	if err != nil || found == nil || found.UID != head.UID {
		return nil, err
	}
	return found, nil
}

// request requests the deletes that were not accepted before, of the objects as they were read. If an object was
// written since, the next look decides about it. An error means that a delete is refused permanently.
func (r *remover) request(ctx context.Context) (isAccepted bool, err error) {
	unsent := slices.DeleteFunc(slices.Clone(r.current), func(head objectmeta.LiveMetadata) bool {
		return r.sent[head.UID] || head.Terminating
	})
	forEach(unsent, func(_ int, head objectmeta.LiveMetadata) {
		err := cluster.DeleteUnchanged(ctx, r.cluster, head.Resource, head.Object())
		r.mu.Lock()
		defer r.mu.Unlock()
		switch {
		case err == nil, apierrors.IsNotFound(err):
			r.sent[head.UID], isAccepted = true, true
			delete(r.failing, head.ID)
		case !apierrors.IsConflict(err) && ctx.Err() == nil:
			if known := r.failing[head.ID]; known == nil || known.Error() != err.Error() {
				r.emit(Event{Type: ObjectFailing, Object: head.ID, Message: printable.Line(err.Error())})
			}
			r.failing[head.ID] = err
		}
	})
	for _, head := range r.current {
		if err := r.failing[head.ID]; isFinal(err) {
			return false, &reason.Error{
				Reason:  ReasonRefused,
				Message: "the delete of " + head.ID.String() + " is refused",
				Err:     printable.Error(err),
			}
		}
	}
	return isAccepted, nil
}

// forEach calls a function for each object, for several at a time.
func forEach(objects []objectmeta.LiveMetadata, call func(i int, head objectmeta.LiveMetadata)) {
	var group errgroup.Group
	group.SetLimit(requestsAtOnce)
	for i, head := range objects {
		group.Go(func() error {
			call(i, head)
			return nil
		})
	}
	_ = group.Wait()
}

// isFinal reports whether a delete that was refused can't succeed later.
func isFinal(err error) bool {
	return errors.Is(err, lock.ErrLost) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsBadRequest(err)
}

// reportWaits reports why objects of the stage still exist, and records how many do.
func (r *remover) reportWaits(ctx context.Context) error {
	for _, remaining := range r.describe(ctx, r.current) {
		if r.described[remaining.Object] != remaining.Message {
			r.described[remaining.Object] = remaining.Message
			r.emit(Event{Type: ObjectWaiting, Object: remaining.Object, Message: remaining.Message})
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

// describe returns the states of objects that still exist, and what holds them.
func (r *remover) describe(ctx context.Context, objects []objectmeta.LiveMetadata) []LeftObject {
	objects = objects[:min(len(objects), maxDescribed)]
	described := make([]LeftObject, len(objects))
	forEach(objects, func(i int, head objectmeta.LiveMetadata) {
		described[i] = LeftObject{Object: head.ID}
		if refused := r.failing[head.ID]; refused != nil {
			described[i].Message = "its delete is refused: " + printable.Line(refused.Error())
			return
		}
		observation := tombstone.Observe(ctx, r.cluster, head.ID, head.UID)
		if observation.State != tombstone.Absent {
			described[i].Message = observation.DescribeSince()
		}
	})
	return slices.DeleteFunc(described, func(remaining LeftObject) bool { return remaining.Message == "" })
}

// describeLeft reports the objects that still exist: those of the current stage with their states.
func (r *remover) describeLeft(ctx context.Context) {
	r.report.Left = r.describe(ctx, r.current)
	known := map[kinds.ID]bool{}
	for _, remaining := range r.report.Left {
		known[remaining.Object] = true
	}
	for _, head := range r.plan.Objects() {
		isDeleted := slices.ContainsFunc(r.deleted, func(deleted objectmeta.LiveMetadata) bool {
			return deleted.UID == head.UID
		})
		isKept := slices.ContainsFunc(r.plan.Kept, func(kept KeptObject) bool { return kept.Object == head.ID })
		if !isDeleted && !isKept && !known[head.ID] {
			r.report.Left = append(r.report.Left,
				LeftObject{Object: head.ID, Message: "its delete was not requested yet"})
		}
	}
}

// emit calls OnEvent, with the progress of the stage.
func (r *remover) emit(event Event) {
	event.Stage, event.Left, event.Total = r.stage.Name, len(r.current), len(r.stage.Objects)
	if r.options.OnEvent != nil {
		r.options.OnEvent(event)
	}
}

// maxFailures bounds how many of the remaining objects an event names.
const maxFailures = 5

// notifyBegun reports that the uninstall has begun. The record was written before.
func (r *remover) notifyBegun(ctx context.Context) {
	r.recordID = r.store.UID()
	event := r.event(notify.Begun)
	event.By, event.IsResumed = r.hold.Holder(), r.plan.Begun != nil
	r.notifier.Notify(ctx, r.options.Notify, r.recordID, event)
}

// notifyEnd reports the end of an uninstall that has begun. If all objects were deleted, the record of the event was
// deleted, too.
func (r *remover) notifyEnd(ctx context.Context) {
	if r.recordID == "" {
		return
	}
	event := r.event(notify.Uninstalled)
	event.Seconds, event.Counts = r.report.Seconds, map[object.Action]int{object.Deleted: r.report.Counts.Objects}
	if kept := len(r.report.Kept); kept > 0 {
		event.Counts[object.Kept] = kept
	}
	if r.report.Err != nil {
		event.Outcome, event.Reason, event.Message = notify.Failed, r.report.Reason, r.report.Error
		for _, remaining := range r.report.Left {
			event.Failures = append(event.Failures,
				record.ObjectFailure{ID: remaining.Object, Message: remaining.Message})
		}
		if event.More = max(len(event.Failures)-maxFailures, 0); event.More > 0 {
			event.Failures = event.Failures[:maxFailures]
		}
	}
	r.notifier.Notify(ctx, r.options.Notify, r.recordID, event)
}

// event returns an event of the uninstall.
func (r *remover) event(outcome notify.EventType) notify.Event {
	return notify.Event{Outcome: outcome, Action: notify.Uninstall, Version: r.plan.Version}
}

// markKept marks the kept objects of the release, which are not to be taken for those of a release whose record is
// lost. They keep their labels: a later uninstall finds them. A refused mark is a note, and holds nothing up.
func (r *remover) markKept(ctx context.Context) error {
	now := r.cluster.Now().UTC().Format(time.RFC3339)
	var owned []objectmeta.LiveMetadata
	for _, kept := range r.plan.Kept {
		if kept.head.IsOf(r.options.Release) {
			owned = append(owned, kept.head)
		}
	}
	forEach(owned, func(_ int, head objectmeta.LiveMetadata) {
		_, err := r.cluster.Patch(ctx, head.Resource, head.ID.Namespace, head.ID.Name, markOf(head, now))
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.report.Notes = append(r.report.Notes, fmt.Sprintf(
				"%s is kept and could not be marked, so status may report a lost record: %s", head.ID,
				printable.Line(err.Error())))
		}
	})
	return context.Cause(ctx)
}

// markOf returns the JSON patch that marks an object, if it is the same one.
func markOf(head objectmeta.LiveMetadata, now string) []byte {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	key := strings.ReplaceAll(objectmeta.UninstalledAnnotation, "/", "~1")
	mark := operation{"add", "/metadata/annotations/" + key, now}
	if len(head.Object().GetAnnotations()) == 0 {
		mark = operation{"add", "/metadata/annotations", map[string]string{objectmeta.UninstalledAnnotation: now}}
	}
	patch, _ := json.Marshal([]operation{{"test", "/metadata/uid", head.UID}, mark})
	return patch
}
