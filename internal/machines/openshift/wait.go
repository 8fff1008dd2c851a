package openshift

import (
	"context"
	"errors"
	"fmt"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/machines/openshift/conditions"
)

// gather takes the Snapshot of a machine. It reads only what the phase needs: before the drain is over, no request is
// made to the infrastructure.
func (d *machineDeletion) gather(ctx context.Context) (deletion.Snapshot, error) {
	seen := snapshotOf(d.m, d.known.drain)
	seen.Drain.HasLooked = d.hasLooked || d.options.Now().Before(d.known.drainUntil)
	if seen.Drain.IsDone {
		seen.Infrastructure = d.gatherInfrastructure(ctx)
	}
	if isTerminating := seen.Infrastructure.Exists || seen.Infrastructure.Problem != ""; !isTerminating {
		if err := d.gatherNode(ctx, &seen); err != nil {
			return deletion.Snapshot{}, err
		}
	}
	return seen, nil
}

// gatherNode adds the node to a snapshot. It is read once in a pass: changes by other clients are observed by the next
// pass.
func (d *machineDeletion) gatherNode(ctx context.Context, seen *deletion.Snapshot) error {
	name := seen.Node.Name
	if name == "" {
		return nil
	}
	if err := d.readNode(ctx, name); err != nil {
		return err
	}
	if d.node == nil {
		seen.Node.IsGone = true
		return nil
	}
	// Other finalizers may keep a Node that is being deleted. They don't hold the machine.
	seen.Node.IsGone = d.isNodeDeletionRequested || seen.Drain.IsDone && !d.node.DeletionTimestamp.IsZero()
	seen.Node.IsCordoned, seen.Node.IsControlPlane = d.node.Spec.Unschedulable, isControlPlane(d.node)
	if !seen.Node.IsControlPlane || seen.Node.IsCordoned || seen.Drain.IsDone {
		return nil
	}
	var err error
	seen.Node.OthersCordoned, err = d.othersCordoned(ctx, name)
	return err
}

// readNode reads the node, once in a pass. A node of that name that is not known to be the Machine's own is ignored.
func (d *machineDeletion) readNode(ctx context.Context, name string) error {
	if d.hasNode {
		return nil
	}
	node := &corev1.Node{}
	err := d.server.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case err == nil && deletion.OwnershipOpenShift(node, d.m) == deletion.OwnNode:
		d.node = node
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("get Node %s: %w", name, err)
	}
	d.hasNode = true
	return nil
}

// gatherInfrastructure reads the infrastructure. Invalid infrastructure of a machine that was never provisioned does not exist.
func (d *machineDeletion) gatherInfrastructure(ctx context.Context) deletion.Infrastructure {
	seen := deletion.Infrastructure{
		IsDeleting: d.isDeletionRequested || conditions.Find(d.m.Status.Conditions, machinev1beta1.InstanceExistsCondition).Reason == deletion.InstanceTerminating,
	}
	if d.isEnded {
		return seen
	}
	if wait := d.known.askUntil.Sub(d.options.Now()); d.known.problem != "" && wait > 0 {
		seen.Problem, seen.RetryAfter = d.known.problem, wait
		return seen
	}
	wanted, err := machineForInfra(d.m)
	var instance infra.Instance
	if err == nil {
		instance, err = d.infrastructure.Get(ctx, wanted)
	}
	countFailure(failedDeletes, d.m, err)
	var invalid *infra.InvalidError
	var unserved *infra.UnservedError
	if !isProvisioned(d.m) && (errors.As(err, &invalid) || errors.As(err, &unserved)) {
		return seen
	}
	d.isUnseen = err != nil
	var retry *infra.RetryError
	switch {
	case errors.As(err, &retry):
		seen.Problem, seen.RetryAfter = err.Error(), d.bounded(retry.After)
		return seen
	case err != nil:
		seen.Problem = err.Error()
		return seen
	}
	if d.known.problem != "" && d.known.askUntil.IsZero() { // the delete has just failed
		seen.Problem, d.known.problem = d.known.problem, ""
	}
	seen.Exists, d.isEnded = instance.Exists, !instance.Exists
	seen.IsDeleting = seen.IsDeleting && !instance.Exists || instance.IsDeleting || d.isDeletionRequested
	seen.Name = fmt.Sprintf("%s %s", instance.Kind.Kind, wanted.NamespacedName)
	seen.Finalizers = instance.Finalizers
	return seen
}

// wait writes what the machine waits for, and returns when to reconcile again.
func (d *machineDeletion) wait(ctx context.Context, step deletion.DeletionStep) (ctrl.Result, error) {
	status := *d.m.Status.DeepCopy()
	now := d.options.Now()
	hookConditions(d.m, &status, now)
	switch step.Stage {
	case deletion.Draining:
		d.waitForDrain(&status, step)
	case deletion.Terminating:
		exists := machinev1beta1.Condition{
			Type: machinev1beta1.InstanceExistsCondition, Status: corev1.ConditionTrue,
			Reason: deletion.InstanceTerminating, Message: step.Message,
		}
		switch {
		case d.isUnseen:
			exists.Status, exists.Reason = corev1.ConditionUnknown, machinev1beta1.ErrorCheckingProviderReason
			exists.Message = "Failed to check if machine exists: " + step.Message
		case step.Reason == "InfrastructureProblem":
			exists.Reason, exists.Message = deletion.ErrorDeleting, "Failed to delete the instance: "+step.Message
		}
		status.Conditions = conditions.Set(status.Conditions, exists, now)
	}
	if err := d.writeStatus(ctx, d.m, status); err != nil {
		return ctrl.Result{}, err
	}
	after := d.bounded(step.After)
	if step.Stage == deletion.Draining && step.Reason != "OtherControlPlaneNodeDrains" {
		if d.hasLooked {
			d.known.drainUntil = now.Add(after)
		}
		after = max(d.known.drainUntil.Sub(now), time.Millisecond)
	}
	if step.Reason == "InfrastructureProblem" && after == 0 {
		return ctrl.Result{}, errors.New(step.Message) // the queue backs off
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// waitForDrain writes why the node is not drained. Pods that terminate in time are no failure, but once a failure is
// reported its message is kept up to date.
func (d *machineDeletion) waitForDrain(status *machinev1beta1.MachineStatus, step deletion.DeletionStep) {
	drained := conditions.Find(status.Conditions, machinev1beta1.MachineDrained)
	if step.Reason == "PodsEnd" && drained.Status != corev1.ConditionFalse {
		return
	}
	message := step.Message
	if step.Reason == "OtherControlPlaneNodeDrains" {
		message = "drain not permitted: " + message
	}
	status.Conditions = conditions.Set(status.Conditions, machinev1beta1.Condition{
		Type: machinev1beta1.MachineDrained, Status: corev1.ConditionFalse, Reason: machinev1beta1.MachineDrainError,
		Severity: machinev1beta1.ConditionSeverityWarning, Message: "could not drain machine: " + message,
	}, d.options.Now())
	if step.Reason != "PodsEnd" {
		d.recordDrainEvent("DrainRequeued", "Node drain requeued: "+message, "")
	}
}
