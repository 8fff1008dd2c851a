package machinehook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// maxMessage is the maximum length of the text of an event.
const maxMessage = 1024

// defaultRequeue is the time until the next call of Act if Act returns none.
const defaultRequeue = 10 * time.Second

// conflictPause is the time until the retry after a conflict.
const conflictPause = 100 * time.Millisecond

// A hookReconciler is the controller of one hook on the machines of one API.
type hookReconciler struct {
	hook      Hook
	api       machineAPI
	client    client.Client
	server    client.Reader // reads past the cache
	events    events.EventRecorder
	now       func() time.Time
	additions additions
}

// machineChanges ignores changes of a machine by which hooks report their status: a message that changes
// each time would cause the next reconciliation.
var machineChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !equality.Semantic.DeepEqual(withoutStatus(e.ObjectOld), withoutStatus(e.ObjectNew))
}}

func withoutStatus(o client.Object) client.Object {
	o = o.DeepCopyObject().(client.Object)
	for key := range o.GetAnnotations() {
		if domain, _, _ := strings.Cut(key, "/"); strings.HasSuffix(domain, annotation.HookStatusDomain) {
			annotate(o, key, "")
		}
	}
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	return o
}

// Reconcile adds the hook to a machine, or serves it while the machine is being deleted.
func (r *hookReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	m := r.hook.Machine.DeepCopyObject().(client.Object)
	err := r.client.Get(ctx, request.NamespacedName, m)
	if apierrors.IsNotFound(err) {
		r.additions.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get the Machine: %w", err)
	}
	result, err := r.reconcile(ctx, m)
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	case apierrors.IsNotFound(err): // the machine was deleted meanwhile
		return ctrl.Result{}, nil
	}
	return result, err
}

func (r *hookReconciler) reconcile(ctx context.Context, m client.Object) (ctrl.Result, error) {
	if m.GetDeletionTimestamp().IsZero() {
		return r.add(ctx, m)
	}
	// The cached machine may still have the hook, or be in an earlier stage.
	if err := r.server.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
		return ctrl.Result{}, err
	}
	if !r.isHeld(m) {
		return ctrl.Result{}, nil
	}
	switch r.api.progress(m, r.hook.Stage) {
	case stageReached:
		return r.act(ctx, m)
	case stagePassed:
		return ctrl.Result{}, r.report(ctx, m, hookStatus{corev1.EventTypeWarning, "HookSkipped",
			"skipped: the machine is past its stage, so that this hook does not hold it; nothing was done for it now"})
	}
	return ctrl.Result{}, nil
}

// isHeld reports whether a machine has the hook. With another owner it counts only if the machine is selected.
func (r *hookReconciler) isHeld(m client.Object) bool {
	owner, exists := r.api.owner(m, r.hook)
	return exists && (owner == r.hook.Owner || r.isSelected(m))
}

func (r *hookReconciler) isSelected(m client.Object) bool {
	return r.hook.Selector.Matches(labels.Set(m.GetLabels()))
}

// isMissing reports whether the hook must be added to a machine.
func (r *hookReconciler) isMissing(m client.Object) bool {
	owner, exists := r.api.owner(m, r.hook)
	return m.GetDeletionTimestamp().IsZero() && r.isSelected(m) && (!exists || owner != r.hook.Owner)
}

// add adds the hook to a machine not being deleted. The write is refused if the machine has changed since it
// was read: the deletion may have begun.
func (r *hookReconciler) add(ctx context.Context, m client.Object) (ctrl.Result, error) {
	if !r.isMissing(m) {
		return ctrl.Result{}, nil
	}
	if err := r.server.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil || !r.isMissing(m) {
		return ctrl.Result{}, err
	}
	last, isNew := r.additions.noteRemoval(m)
	if isNew {
		r.events.Eventf(m, nil, corev1.EventTypeWarning, "HookPruned", "Hook",
			"hook %s was removed or changed by another writer; it is put back %s after it was added last, and the "+
				"machine is not "+
				"protected until then: have that writer leave hooks alone", r.hook.Name, last.pause)
	}
	if wait := last.at.Add(last.pause).Sub(r.now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	base := m.DeepCopyObject().(client.Object)
	r.api.set(m, r.hook, true)
	if err := r.patch(ctx, base, m); err != nil {
		return ctrl.Result{}, fmt.Errorf("add hook %s: %w", r.hook.Name, err)
	}
	r.additions.record(m, r.now())
	return ctrl.Result{}, nil
}

// act calls Act, and removes the hook or reports its status.
func (r *hookReconciler) act(ctx context.Context, m client.Object) (ctrl.Result, error) {
	result, err := r.call(ctx, m)
	switch {
	case ctx.Err() != nil: // the controller ends: the answer does not count
		return ctrl.Result{}, ctx.Err()
	case err != nil:
		reportErr := r.report(ctx, m, hookStatus{corev1.EventTypeWarning, "HookFailed", "failed: " + err.Error()})
		// Without %w: a NotFound error of Act does not mean that the machine was deleted.
		return ctrl.Result{}, errors.Join(fmt.Errorf("hook %s: %v", r.hook.Name, err), client.IgnoreNotFound(reportErr))
	case result.IsDone:
		return ctrl.Result{}, r.remove(ctx, m)
	}
	message := cmp.Or(result.Message, "its part is not done")
	err = r.report(ctx, m, hookStatus{corev1.EventTypeNormal, "HookWaits", "waits: " + message})
	return ctrl.Result{RequeueAfter: cmp.Or(max(result.After, 0), defaultRequeue)}, err
}

// call calls Act, and returns a panic as an error.
func (r *hookReconciler) call(ctx context.Context, m client.Object) (result HookAnswer, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
			ctrl.LoggerFrom(ctx).Error(err, "a hook panicked", "stack", string(debug.Stack()))
		}
	}()
	return r.hook.Act(ctx, r.api.view(m.DeepCopyObject().(client.Object)))
}

// remove removes the hook from a machine, with its status annotation.
func (r *hookReconciler) remove(ctx context.Context, m client.Object) error {
	isChanged, err := r.change(ctx, m, func(m client.Object) {
		r.api.set(m, r.hook, false)
		annotate(m, r.statusKey(), "")
	})
	if err != nil {
		return fmt.Errorf("remove hook %s: %w", r.hook.Name, err)
	}
	if isChanged {
		r.events.Eventf(m, nil, corev1.EventTypeNormal, "HookDone", "Hook", "hook %s is done and removed", r.hook.Name)
	}
	return nil
}

// A hookStatus is the status of a hook, for an event and an annotation.
type hookStatus struct{ kind, reason, message string }

// report reports the status of the hook on a machine. The annotation has the last message, so that it is reported once.
func (r *hookReconciler) report(ctx context.Context, m client.Object, t hookStatus) error {
	message := printable.Truncate(printable.Line(t.message), maxMessage)
	isChanged, err := r.change(ctx, m, func(m client.Object) { annotate(m, r.statusKey(), message) })
	if err != nil {
		return fmt.Errorf("report the status of hook %s: %w", r.hook.Name, err)
	}
	if isChanged {
		note := printable.Truncate(fmt.Sprintf("hook %s: %s", r.hook.Name, message), maxMessage)
		r.events.Eventf(m, nil, t.kind, t.reason, "Hook", "%s", note)
	}
	return nil
}

func (r *hookReconciler) statusKey() string {
	return deletion.HookStatusAnnotation(r.hook.Stage, r.hook.Name)
}

// change changes a machine that has the hook, and reports whether it did. Act may have taken long, and have changed the
// machine itself, so each try reads it again.
func (r *hookReconciler) change(ctx context.Context, m client.Object, change func(client.Object)) (bool, error) {
	uid, isChanged := m.GetUID(), false
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		isChanged = false
		if err := r.server.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return err
		}
		base := m.DeepCopyObject().(client.Object)
		change(m)
		if m.GetUID() != uid || !r.isHeld(base) || equality.Semantic.DeepEqual(base, m) {
			return nil
		}
		isChanged = true
		return r.patch(ctx, base, m)
	})
	return isChanged, err
}

// patch writes a machine, unless it has changed since it was read.
func (r *hookReconciler) patch(ctx context.Context, base, m client.Object) error {
	return patch.WithLock(ctx, r.client, m, base)
}

// A hook that another writer removes is added again after firstPause, and then after twice as long each time, up to
// longestPause. A hook that was kept for calm is added again at once.
const firstPause, longestPause, calm = time.Second, 5 * time.Minute, 20 * time.Minute

// additions records when the hook was added to each machine. A restart of the process resets the
// pauses.
type additions struct {
	mu        sync.Mutex
	byMachine map[types.NamespacedName]*addition
}

// An addition is the last time that the hook was added to a machine.
type addition struct {
	uid        types.UID
	at         time.Time
	pause      time.Duration // pause before the hook may be added again
	isReported bool
}

// noteRemoval notes that a machine lacks the hook, and returns the last addition of the hook to the machine, if there
// is one. The first call after an addition is new.
func (a *additions) noteRemoval(m client.Object) (last addition, isNew bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.byMachine[client.ObjectKeyFromObject(m)]
	if known == nil || known.uid != m.GetUID() {
		return addition{}, false
	}
	last, known.isReported = *known, true
	return last, !last.isReported
}

// record records that the hook was added to a machine.
func (a *additions) record(m client.Object, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := client.ObjectKeyFromObject(m)
	next := &addition{uid: m.GetUID(), at: now, pause: firstPause}
	if last := a.byMachine[key]; last != nil && last.uid == next.uid && now.Sub(last.at) < calm {
		next.pause = min(2*last.pause, longestPause)
	}
	if a.byMachine == nil {
		a.byMachine = map[types.NamespacedName]*addition{}
	}
	a.byMachine[key] = next
}

func (a *additions) forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byMachine, key)
}
