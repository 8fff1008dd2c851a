package openshift

import (
	"context"
	"errors"
	"fmt"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/machines/machineevents"
)

// This file has the scope in which the phases of a deletion run (phases.go), and the conditions and events that they
// write.

// A deletionScope is one pass over a machine being deleted.
type deletionScope struct {
	r              *reconciler
	m              *machinev1beta1.Machine
	status         machinev1beta1.MachineStatus // the status to write
	memory         *machineMemory
	node           *corev1.Node // nil if there is none
	hasReadNode    bool
	infrastructure *observedInfrastructure // nil if it was not read, or its deletion was requested since
	isRequested    bool                    // this pass has requested the deletion of the infrastructure
}

// observedInfrastructure contains the facts about the infrastructure that a deletion uses.
type observedInfrastructure struct {
	infra.Instance               // IsDeleting is true once its deletion was requested, even if it no longer exists
	problem        string        // the reason why it can't be deleted or read
	isUnreadable   bool          // the infrastructure can't be read
	retryAfter     time.Duration // the pause that the provider requests; zero means none
}

// reconcileDeletion runs the phases of a deletion until one waits, or the finalizer is removed.
func (r *reconciler) reconcileDeletion(ctx context.Context, m *machinev1beta1.Machine) (ctrl.Result, error) {
	d := &deletionScope{r: r, m: m, memory: r.memoryOf(m), status: *m.Status.DeepCopy()}
	d.status.Phase, d.status.ErrorReason, d.status.ErrorMessage = ptr.To(machinev1beta1.PhaseDeleting), nil, nil
	hookConditions(m, &d.status, r.options.Now())
	if err := d.writeStatus(ctx); err != nil {
		return ctrl.Result{}, err
	}
	wait, err := deletion.Run(ctx, d, phases)
	if err != nil || wait == nil {
		return ctrl.Result{}, err
	}
	if err := d.writeStatus(ctx); err != nil {
		return ctrl.Result{}, err
	}
	d.reportNode(ctx, wait.Stage)
	if wait.Reason == deletion.InfrastructureProblem && wait.After == 0 {
		return ctrl.Result{}, errors.New(wait.Message) // the queue backs off
	}
	return ctrl.Result{RequeueAfter: r.bounded(wait.After)}, nil
}

func (d *deletionScope) writeStatus(ctx context.Context) error {
	err := d.r.writeStatus(ctx, d.m, d.status)
	d.status = *d.m.Status.DeepCopy()
	return err
}

func (d *deletionScope) set(condition machinev1beta1.Condition) {
	d.status.Conditions = conditions.Set(d.status.Conditions, condition, d.r.options.Now())
}

// readNode reads the node, once in a pass. It ignores a node of that name unless the node belongs to the Machine.
func (d *deletionScope) readNode(ctx context.Context) error {
	name := ptr.Deref(d.m.Status.NodeRef, corev1.ObjectReference{}).Name
	if d.hasReadNode || name == "" {
		return nil
	}
	node := &corev1.Node{}
	err := d.r.server.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case err == nil && deletion.OwnershipOpenShift(node, d.m) == deletion.OwnNode:
		d.node = node
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("get Node %s: %w", name, err)
	}
	d.hasReadNode = true
	return nil
}

// reportNode reports the deletion in the conditions of the node. If this pass has not read the node, the cached one is
// compared.
func (d *deletionScope) reportNode(ctx context.Context, stage deletion.Stage) {
	node := d.node
	if !d.hasReadNode {
		node = &corev1.Node{}
		name := ptr.Deref(d.m.Status.NodeRef, corev1.ObjectReference{}).Name
		if d.r.client.Get(ctx, client.ObjectKey{Name: name}, node) != nil ||
			deletion.OwnershipOpenShift(node, d.m) != deletion.OwnNode {
			return
		}
	}
	if node == nil {
		return
	}
	hasDrained := isDrained(d.m) &&
		conditions.Find(d.m.Status.Conditions, machinev1beta1.MachineDrained).Message != drainSkipped
	if err := drain.WriteConditions(ctx, d.r.kubernetes, node, drain.Report{
		Reason: drain.MachineDeletion, Machine: client.ObjectKeyFromObject(d.m).String(),
		Conditions: drain.DeletionConditions(stage == deletion.Draining, hasDrained),
	}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "the deletion continues")
	}
}

// recordDrained writes that the node is drained before the next phase.
func (d *deletionScope) recordDrained(ctx context.Context, message string) error {
	d.set(machinev1beta1.Condition{Type: machinev1beta1.MachineDrained, Status: corev1.ConditionTrue, Message: message})
	return d.writeStatus(ctx)
}

// reportDrain reports why the node is not drained. Pods that terminate in time are not a failure. Once a failure is
// reported, its message is kept up to date.
func (d *deletionScope) reportDrain(wait deletion.Wait) {
	drained := conditions.Find(d.status.Conditions, machinev1beta1.MachineDrained)
	if wait.Reason == deletion.PodsEnd && drained.Status != corev1.ConditionFalse {
		return
	}
	d.set(machinev1beta1.Condition{
		Type: machinev1beta1.MachineDrained, Status: corev1.ConditionFalse, Reason: machinev1beta1.MachineDrainError,
		Severity: machinev1beta1.ConditionSeverityWarning, Message: "could not drain machine: " + wait.Message,
	})
	if wait.Reason != deletion.PodsEnd {
		d.recordDrainEvent("DrainRequeued", "Node drain requeued: "+wait.Message, "")
	}
}

// reportInfrastructure reports why the infrastructure still exists.
func (d *deletionScope) reportInfrastructure(wait deletion.Wait, isUnreadable bool) {
	exists := machinev1beta1.Condition{
		Type: machinev1beta1.InstanceExistsCondition, Status: corev1.ConditionTrue,
		Reason: deletion.InstanceTerminating, Message: wait.Message,
	}
	switch {
	case isUnreadable:
		exists.Status, exists.Reason = corev1.ConditionUnknown, machinev1beta1.ErrorCheckingProviderReason
		exists.Message = "Failed to check if machine exists: " + wait.Message
	case wait.Reason == deletion.InfrastructureProblem:
		exists.Reason, exists.Message = deletion.ErrorDeleting, "Failed to delete the instance: "+wait.Message
	}
	d.set(exists)
}

func (d *deletionScope) recordDrainEvent(reason, note, cause string) {
	d.r.events.Record(d.m, machineevents.Event{
		Type:   corev1.EventTypeNormal,
		Reason: reason,
		Action: "Drain",
		Note:   note,
		Cause:  cause,
	})
}

// observeInfrastructure reads the infrastructure, once until its deletion is requested.
func (d *deletionScope) observeInfrastructure(ctx context.Context) observedInfrastructure {
	if d.infrastructure == nil {
		observed := d.readInfrastructure(ctx)
		d.infrastructure = &observed
	}
	return *d.infrastructure
}

// readInfrastructure reads the infrastructure. Invalid infrastructure of a machine that was never provisioned does not
// exist.
func (d *deletionScope) readInfrastructure(ctx context.Context) observedInfrastructure {
	isRecorded := conditions.Find(d.m.Status.Conditions,
		machinev1beta1.InstanceExistsCondition).Reason == deletion.InstanceTerminating
	observed := observedInfrastructure{Instance: infra.Instance{IsDeleting: d.isRequested || isRecorded}}
	if wait := d.memory.askUntil.Sub(d.r.options.Now()); d.memory.problem != "" && wait > 0 {
		observed.problem, observed.retryAfter = d.memory.problem, wait
		return observed
	}
	wanted, err := machineForInfra(d.m)
	var instance infra.Instance
	if err == nil {
		instance, err = d.r.infrastructure.Get(ctx, wanted)
	}
	countFailure(failedDeletes, d.m, err)
	var invalid *infra.InvalidError
	var unserved *infra.UnservedError
	if !isProvisioned(d.m) && (errors.As(err, &invalid) || errors.As(err, &unserved)) {
		return observed
	}
	if err != nil {
		var retry *infra.RetryError
		if errors.As(err, &retry) {
			observed.retryAfter = d.r.bounded(retry.After)
		}
		observed.problem, observed.isUnreadable = err.Error(), true
		return observed
	}
	if d.memory.problem != "" && d.memory.askUntil.IsZero() { // the delete has just failed
		observed.problem, d.memory.problem = d.memory.problem, ""
	}
	instance.IsDeleting = observed.IsDeleting && !instance.Exists || instance.IsDeleting || d.isRequested
	observed.Instance = instance
	return observed
}

// requestDeletion requests the deletion of the infrastructure.
func (d *deletionScope) requestDeletion(ctx context.Context) {
	wanted, err := machineForInfra(d.m)
	if err == nil {
		_, err = d.r.infrastructure.Delete(ctx, wanted)
	}
	countFailure(failedDeletes, d.m, err)
	if err == nil {
		d.isRequested, d.memory.problem = true, ""
		return
	}
	d.memory.problem, d.memory.askUntil = err.Error(), time.Time{}
	var retry *infra.RetryError
	if errors.As(err, &retry) {
		d.memory.askUntil = d.r.options.Now().Add(d.r.bounded(retry.After))
	}
	d.r.events.Record(d.m, machineevents.Event{
		Type:   corev1.EventTypeWarning,
		Reason: "FailedDelete",
		Action: "Delete",
		Note:   err.Error(),
	})
}
