package openshift

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/machines/openshift/conditions"
)

// A machineDeletion is one pass over a machine that is being deleted.
type machineDeletion struct {
	*MachineReconciler
	m                       *machinev1beta1.Machine
	known                   *remembered
	node                    *corev1.Node // nil if there is none
	hasNode                 bool         // the node was read in this pass
	hasLooked               bool         // pods were evicted in this pass
	isDeletionRequested     bool         // of the infrastructure, in this pass
	isEnded                 bool         // the infrastructure was observed to be gone in this pass
	isNodeDeletionRequested bool         // in this pass
	isUnseen                bool         // the infrastructure can't be read
}

// reconcileDeletion does the steps of a deletion until one has to wait, or the finalizer is removed.
func (r *MachineReconciler) reconcileDeletion(ctx context.Context, m *machinev1beta1.Machine) (ctrl.Result, error) {
	d := &machineDeletion{MachineReconciler: r, m: m, known: r.memory.of(m)}
	status := *m.Status.DeepCopy()
	status.Phase, status.ErrorReason, status.ErrorMessage = ptr.To(machinev1beta1.PhaseDeleting), nil, nil
	hookConditions(m, &status, r.options.Now())
	if err := r.writeStatus(ctx, m, status); err != nil {
		return ctrl.Result{}, err
	}
	for {
		seen, err := d.gather(ctx)
		if err != nil {
			return ctrl.Result{}, err
		}
		step := deletion.OpenShift.Next(seen)
		d.announce(step)
		switch step.Action {
		case deletion.Wait:
			return d.wait(ctx, step)
		case deletion.Release:
			return ctrl.Result{}, d.release(ctx)
		}
		if err := d.perform(ctx, step); err != nil {
			return ctrl.Result{}, err
		}
	}
}

// perform executes the action of a step.
func (d *machineDeletion) perform(ctx context.Context, step deletion.DeletionStep) error {
	switch step.Action {
	case deletion.Cordon:
		return d.cordon(ctx)
	case deletion.Evict:
		d.evict(ctx)
	case deletion.SkipDrain, deletion.RecordDrained:
		return d.recordDrained(ctx, step)
	case deletion.DeleteInfrastructure:
		d.terminate(ctx)
	case deletion.DeleteNode:
		d.isNodeDeletionRequested = true
		uid := d.node.UID
		err := d.client.Delete(ctx, d.node, client.Preconditions{UID: &uid})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Node %s: %w", d.node.Name, err)
		}
	default:
		return fmt.Errorf("delete the machine: no way to %s", step.Action)
	}
	return nil
}

// cordon cordons the node. Nodes of the control plane are cordoned one at a time: if another node is cordoned, the next step waits.
func (d *machineDeletion) cordon(ctx context.Context) error {
	if isControlPlane(d.node) {
		d.cordoning.Lock()
		defer d.cordoning.Unlock()
		others, err := d.othersCordoned(ctx, d.node.Name)
		if err != nil || len(others) > 0 {
			return err
		}
	}
	if err := drain.Cordon(ctx, d.kubernetes, d.node); err != nil {
		return err
	}
	d.node.Spec.Unschedulable, d.known.cordonedPods = true, nil
	return nil
}

// recordDrained writes that the node is drained before the next step.
func (d *machineDeletion) recordDrained(ctx context.Context, step deletion.DeletionStep) error {
	status := *d.m.Status.DeepCopy()
	status.Conditions = conditions.Set(status.Conditions, machinev1beta1.Condition{
		Type: machinev1beta1.MachineDrained, Status: corev1.ConditionTrue, Message: step.Message,
	}, d.options.Now())
	if err := d.writeStatus(ctx, d.m, status); err != nil {
		return err
	}
	if step.Action == deletion.SkipDrain {
		d.recordDrainEvent("DrainSkipped", "Node drain skipped", "")
		return nil
	}
	if d.node != nil {
		d.recordDrainEvent("Deleted", fmt.Sprintf("Node %q drained", d.node.Name), "")
	}
	d.recordDrainEvent("DrainSucceeded", "Node drain succeeded", "")
	return nil
}

// terminate requests the deletion of the infrastructure.
func (d *machineDeletion) terminate(ctx context.Context) {
	wanted, err := machineForInfra(d.m)
	if err == nil {
		_, err = d.infrastructure.Delete(ctx, wanted)
	}
	countFailure(failedDeletes, d.m, err)
	if err == nil {
		d.isDeletionRequested, d.known.problem = true, ""
		return
	}
	d.known.problem, d.known.askUntil = err.Error(), time.Time{}
	var retry *infra.RetryError
	if errors.As(err, &retry) {
		d.known.askUntil = d.options.Now().Add(d.bounded(retry.After))
	}
	d.recordEvent(d.m, machineEvent{kind: corev1.EventTypeWarning, reason: "FailedDelete", action: "Delete", note: err.Error()})
}

// release removes the finalizer. The write fails if the Machine has changed since it was read, so that it can
// neither remove finalizers of other controllers nor miss a hook.
func (d *machineDeletion) release(ctx context.Context) error {
	base := d.m.DeepCopy()
	controllerutil.RemoveFinalizer(d.m, machinev1beta1.MachineFinalizer)
	if err := d.client.Patch(ctx, d.m, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("remove the finalizer of the Machine: %w", err)
	}
	if len(d.m.Finalizers) > 0 {
		d.recordEvent(d.m, machineEvent{kind: corev1.EventTypeNormal, reason: "FinalizersRemain", action: "Delete", note: fmt.Sprintf(
			"Node and infrastructure are gone; these finalizers of others hold the Machine: %s", strings.Join(d.m.Finalizers, ", "))})
	}
	return nil
}

// announce records events of the phases that begin with a step.
func (d *machineDeletion) announce(step deletion.DeletionStep) {
	switch {
	case step.Stage == deletion.BeforeDrain:
		delete(d.known.reported, "DrainProceeds")
		d.recordDrainEvent("DrainBlocked", "Drain blocked by pre-drain hook", step.Message)
	case step.Stage == deletion.Draining && step.Action != deletion.SkipDrain:
		delete(d.known.reported, "DrainBlocked")
		d.recordDrainEvent("DrainProceeds", "Node drain proceeds", "")
	}
}

func (d *machineDeletion) recordDrainEvent(reason, note, cause string) {
	d.recordEvent(d.m, machineEvent{kind: corev1.EventTypeNormal, reason: reason, action: "Drain", note: note, cause: cause})
}
