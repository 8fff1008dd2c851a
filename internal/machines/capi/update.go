package capi

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
)

// What is told of an update begins so: Cluster API's words, with what the extension says behind them.
const updateMessage, hookFailed = "In-place update in progress", "UpdateMachine hook failed: "

// busyPause is when to look again while as many extensions as may be are waited for.
const busyPause = time.Second

const (
	// longestPause is the longest pause between two calls of an extension. Nothing but a call shows that an extension which asked
	// for a longer one was wrong, or was repaired since, and until then it holds the Machine.
	longestPause = 10 * time.Minute
	// notablePause is the shortest pause whose end the condition names: a person would wait for it.
	notablePause = time.Minute
)

// An updatePass is one pass of an update in place: the owner of a Machine has written what it is to be into the Machine, its
// infrastructure and its bootstrap config, and an extension does it. It asks the extension until that says that it is done.
type updatePass struct {
	*machinePass
}

// update does what is due for an update in place, and returns when to look again. What an extension can't do is no error of the
// pass: it is told by the condition, and tried again at the time that is returned.
func (u *updatePass) update(ctx context.Context) (time.Duration, error) {
	if !rolloutrules.IsUpdating(u.m) {
		return u.cleanUp(ctx)
	}
	u.setUpdating(clusterv1.MachineInPlaceUpdatingReason, updateMessage)
	if !isTriggered(u.m) { // its owner has not written everything yet
		return 0, nil
	}
	if u.infrastructure.problem != nil || u.bootstrap.problem != nil { // the pass fails with it
		u.keepCondition()
		return 0, nil
	}
	if u.infrastructure.isGone {
		u.setUpdating(clusterv1.MachineInPlaceUpdateFailedReason, "In-place update not possible: InfraMachine not found")
		return 0, nil
	}
	if missing := u.missing(); missing != "" {
		u.setUpdating(clusterv1.MachineInPlaceUpdatingReason, updateMessage+": waiting for "+missing)
		return 0, nil
	}
	if last, wait := u.updates.last(u.m.UID, u.options.Now()); wait > 0 {
		u.setUpdating(last.reason, last.message)
		return u.bounded(wait), nil
	}
	if !u.updates.begin(u.options.Concurrency) {
		u.keepCondition()
		return u.bounded(busyPause), nil
	}
	defer u.updates.end()
	if isCurrent, err := u.isCurrent(ctx); err != nil || !isCurrent {
		u.keepCondition()
		return conflictPause, err
	}
	return u.goOn(ctx)
}

// goOn drains the node, if the extension's settings ask for that, and calls the extension.
func (u *updatePass) goOn(ctx context.Context) (time.Duration, error) {
	isRequested, err := u.isDrainRequested(ctx)
	if err != nil {
		return u.failed(ctx, hookFailed+err.Error()), nil
	}
	if isRequested {
		left, err := u.makeRoom(ctx)
		switch {
		case apierrors.IsConflict(err):
			u.keepCondition()
			return 0, err
		case err != nil:
			return u.failed(ctx, fmt.Sprintf("Draining Node %s for the in-place update failed: %v", u.status.NodeRef.Name, err)), nil
		case left != "":
			u.setUpdating(clusterv1.MachineInPlaceUpdatingReason, updateMessage+": draining Node "+u.status.NodeRef.Name+": "+left)
			return u.bounded(drainPause), nil
		}
	}
	return u.call(ctx)
}

// call calls the extension, and ends the update if it is done.
func (u *updatePass) call(ctx context.Context) (time.Duration, error) {
	progress, err := u.hooks.UpdateMachine(ctx, u.request())
	switch {
	case ctx.Err() != nil: // the controller stops
		u.keepCondition()
		return 0, ctx.Err()
	case err != nil:
		return u.failed(ctx, hookFailed+err.Error()), nil
	case !progress.Done:
		return u.goesOn(progress), nil
	}
	u.keepCondition() // until the Machine is written
	return u.finish(ctx)
}

// request returns what the extension is asked for: names, labels, annotations and specs.
func (u *updatePass) request() *hooksv1.UpdateMachineRequest {
	desired := runtimehook.NewMachineObjects(u.m, u.infrastructure.unstructured(), u.bootstrap.unstructured())
	return &hooksv1.UpdateMachineRequest{Desired: hooksv1.UpdateMachineRequestObjects(desired)}
}

// goesOn notes that the extension is not done, and returns when it is to be called again.
func (u *updatePass) goesOn(progress runtimehook.UpdateProgress) time.Duration {
	message := updateMessage
	if progress.Message != "" {
		message += ": " + progress.Message
	}
	pause := min(progress.RetryAfter, longestPause)
	next := u.options.Now().Add(pause)
	switch at := next.UTC().Format(time.RFC3339); {
	case progress.RetryAfter > pause:
		message += fmt.Sprintf("; the extension asked for %.0f s, and is called again after %s, at %s",
			progress.RetryAfter.Seconds(), duration.ShortHumanDuration(pause), at)
	case pause >= notablePause:
		message += "; the extension is called again at " + at
	}
	u.setUpdating(clusterv1.MachineInPlaceUpdatingReason, message)
	u.updates.add(u.m.UID, updateCall{next: next, reason: u.updateReason, message: message})
	return u.bounded(pause)
}

// failed notes why the update does not go on, and returns when it is tried again: at growing pauses, whatever events there are in
// between: the condition UpToDate repeats the message, so that a new one brings about another pass.
func (u *updatePass) failed(ctx context.Context, message string) time.Duration {
	u.setUpdating(clusterv1.MachineInPlaceUpdateFailedReason, message)
	pause := u.updates.fail(u.m.UID, u.options.Now(), message)
	ctrl.LoggerFrom(ctx).Info("an update in place failed, and is tried again", "message", message, "after", pause)
	u.recordEvent(u.m, corev1.EventTypeWarning, "FailedInPlaceUpdate", message)
	return u.bounded(pause)
}

// isCurrent says that the Machine is as it was read, and not deleted: a cached one may lack its deletion, or the end of the update.
func (u *updatePass) isCurrent(ctx context.Context) (bool, error) {
	newest := &clusterv1.Machine{}
	if err := u.server.Get(ctx, client.ObjectKeyFromObject(u.m), newest); err != nil {
		return false, fmt.Errorf("get the Machine before its update goes on: %w", err)
	}
	return newest.UID == u.m.UID && newest.ResourceVersion == u.m.ResourceVersion, nil
}

// setUpdating sets what the condition Updating tells.
func (u *updatePass) setUpdating(reason, message string) {
	u.updateReason, u.updateText = reason, message
}

// keepCondition has the condition Updating tell what it told before.
func (u *updatePass) keepCondition() {
	if reported := meta.FindStatusCondition(u.status.Conditions, clusterv1.MachineUpdatingCondition); reported != nil && reported.Message != "" {
		u.setUpdating(reported.Reason, reported.Message)
	}
}

// missing returns what an update that was triggered waits for; nothing if it can go on.
func (f *passFacts) missing() string {
	infrastructure, config := f.m.Spec.InfrastructureRef, f.m.Spec.Bootstrap.ConfigRef
	initialization := f.status.Initialization
	switch {
	case !ptr.Deref(initialization.InfrastructureProvisioned, false):
		return fmt.Sprintf("%s %s to be provisioned", infrastructure.Kind, infrastructure.Name)
	case config.IsDefined() && !ptr.Deref(initialization.BootstrapDataSecretCreated, false):
		return fmt.Sprintf("%s %s to have its data", config.Kind, config.Name)
	case f.status.NodeRef.Name == "":
		return "the Node of the Machine"
	case !f.infrastructure.isAnnotated():
		return annotationOf(infrastructure)
	case config.IsDefined() && f.bootstrap.isGone:
		return fmt.Sprintf("%s %s, which does not exist", config.Kind, config.Name)
	case config.IsDefined() && !f.bootstrap.isAnnotated():
		return annotationOf(config)
	}
	return ""
}

// annotationOf says in words which annotation is missing.
func annotationOf(to clusterv1.ContractVersionedObjectReference) string {
	return fmt.Sprintf("the annotation %s of %s %s", clusterv1.UpdateInProgressAnnotation, to.Kind, to.Name)
}
