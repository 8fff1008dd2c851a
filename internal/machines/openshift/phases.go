package openshift

import (
	"context"
	"fmt"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/machineevents"
	"github.com/runlevel/runlevel/internal/machines/patch"
)

// phases are the phases of a deletion in their order. A machine without a node, or excluded from draining, is not
// held by its pre-drain hooks: upstream decided so, and the owners of hooks rely on it. A drain recorded as
// done is never repeated, and once the deletion of the infrastructure was requested, no late hook returns a machine to
// an earlier phase.
var phases = []deletion.Phase[*deletionScope]{
	(*deletionScope).skipDrain,
	(*deletionScope).awaitPreDrainHooks,
	(*deletionScope).drainNode,
	(*deletionScope).awaitPreTerminateHooks,
	(*deletionScope).deleteInfrastructure,
	(*deletionScope).deleteNode,
	(*deletionScope).release,
}

const (
	// otherDrains is the interval at which the drain of another node of the control plane is checked.
	otherDrains = 20 * time.Second
	// infrastructureChecks is the interval at which infrastructure being deleted is checked, besides watching
	// it.
	infrastructureChecks = 30 * time.Second
)

// drainSkipped is the message of the condition Drained of a Machine whose node is not drained.
const drainSkipped = "Node drain skipped"

func (d *deletionScope) skipDrain(ctx context.Context) (*deletion.Wait, error) {
	if isDrained(d.m) || !deletion.IsDrainSkipped(d.m) {
		return nil, nil
	}
	if err := d.recordDrained(ctx, drainSkipped); err != nil {
		return nil, err
	}
	d.recordDrainEvent("DrainSkipped", drainSkipped, "")
	return nil, nil
}

func (d *deletionScope) awaitPreDrainHooks(context.Context) (*deletion.Wait, error) {
	hooks := d.m.Spec.LifecycleHooks.PreDrain
	if isDrained(d.m) || len(hooks) == 0 {
		return nil, nil
	}
	message := "waiting for pre-drain hooks: " + hookNames(hooks)
	d.r.events.Repeat(d.m, "DrainProceeds")
	d.recordDrainEvent("DrainBlocked", "Drain blocked by pre-drain hook", message)
	return &deletion.Wait{Stage: deletion.BeforeDrain, Reason: deletion.HookPresent, Message: message}, nil
}

// drainNode cordons the node, evicts its pods, and waits until they no longer exist. The result is recorded, and the
// drain is never repeated.
func (d *deletionScope) drainNode(ctx context.Context) (*deletion.Wait, error) {
	if isDrained(d.m) {
		return nil, nil
	}
	if err := d.readNode(ctx); err != nil {
		return nil, err
	}
	d.r.events.Repeat(d.m, "DrainBlocked")
	d.recordDrainEvent("DrainProceeds", "Node drain proceeds", "")
	if d.node != nil {
		if others, err := d.cordon(ctx); err != nil || len(others) > 0 {
			return d.awaitOtherDrains(others), err
		}
		if wait := d.evict(ctx); wait != nil {
			d.reportDrain(*wait)
			return wait, nil
		}
	}
	if err := d.recordDrained(ctx, "Drain finished successfully"); err != nil {
		return nil, err
	}
	if d.node != nil {
		d.recordDrainEvent("Deleted", fmt.Sprintf("Node %q drained", d.node.Name), "")
	}
	d.recordDrainEvent("DrainSucceeded", "Node drain succeeded", "")
	return nil, nil
}

// cordon cordons the node, or returns the other nodes of the control plane that are cordoned: those are drained one at
// a time, since a disruption budget of the control plane's pods would make each of two wait for the other.
func (d *deletionScope) cordon(ctx context.Context) ([]string, error) {
	if d.node.Spec.Unschedulable {
		return nil, nil
	}
	if deletion.IsControlPlane(d.node) {
		if others, err := d.r.othersCordoned(ctx, d.node.Name); err != nil || len(others) > 0 {
			return others, err
		}
		d.r.cordoning.Lock() // and look again: two passes may have seen that none is cordoned
		defer d.r.cordoning.Unlock()
		if others, err := d.r.othersCordoned(ctx, d.node.Name); err != nil || len(others) > 0 {
			return others, err
		}
	}
	if err := drain.Cordon(ctx, d.r.kubernetes, d.node); err != nil {
		return nil, err
	}
	d.memory.cordonedPods = nil
	return nil, nil
}

func (d *deletionScope) awaitOtherDrains(others []string) *deletion.Wait {
	if len(others) == 0 {
		return nil
	}
	wait := deletion.Wait{
		Stage: deletion.Draining, Reason: "OtherControlPlaneNodeDrains", After: otherDrains,
		Message: "control plane nodes are drained one at a time, and these take no pods: " + strings.Join(others, ", "),
	}
	reported := wait
	reported.Message = "drain not permitted: " + wait.Message
	d.reportDrain(reported)
	return &wait
}

// awaitPreTerminateHooks waits for the hooks that hold the infrastructure.
func (d *deletionScope) awaitPreTerminateHooks(ctx context.Context) (*deletion.Wait, error) {
	hooks := d.m.Spec.LifecycleHooks.PreTerminate
	if len(hooks) == 0 || d.observeInfrastructure(ctx).IsDeleting {
		return nil, nil
	}
	return &deletion.Wait{
		Stage: deletion.BeforeTerminate, Reason: deletion.HookPresent,
		Message: "waiting for pre-terminate hooks: " + hookNames(hooks),
	}, nil
}

// deleteInfrastructure deletes the infrastructure, and waits until it no longer exists.
func (d *deletionScope) deleteInfrastructure(ctx context.Context) (*deletion.Wait, error) {
	observed := d.observeInfrastructure(ctx)
	if observed.problem == "" && observed.Exists && !observed.IsDeleting {
		d.requestDeletion(ctx)
		d.infrastructure = nil
		observed = d.observeInfrastructure(ctx)
	}
	wait := deletion.Wait{Stage: deletion.Terminating}
	switch {
	case observed.problem != "":
		wait.Reason, wait.Message, wait.After = deletion.InfrastructureProblem, observed.problem, observed.retryAfter
	case !observed.Exists:
		return nil, nil
	default:
		wait.Reason, wait.After = deletion.InfrastructureGoes, infrastructureChecks
		wait.Message = fmt.Sprintf("waiting for %s %s to be deleted", observed.Kind.Kind,
			client.ObjectKeyFromObject(d.m))
		if len(observed.Finalizers) > 0 {
			wait.Message += ", which these finalizers hold: " + strings.Join(observed.Finalizers, ", ")
		}
	}
	d.reportInfrastructure(wait, observed.isUnreadable)
	return &wait, nil
}

// deleteNode deletes the node. Finalizers of other controllers may keep it; they don't hold the machine.
func (d *deletionScope) deleteNode(ctx context.Context) (*deletion.Wait, error) {
	if err := d.readNode(ctx); err != nil {
		return nil, err
	}
	if d.node == nil || !d.node.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	uid := d.node.UID
	if err := d.r.client.Delete(ctx, d.node, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("delete Node %s: %w", d.node.Name, err)
	}
	return nil, nil
}

// release removes the finalizer. The write fails if the Machine has changed since it was read, so that it can
// neither remove finalizers of other controllers nor miss a hook.
func (d *deletionScope) release(ctx context.Context) (*deletion.Wait, error) {
	if err := patch.RemoveFinalizer(ctx, d.r.client, d.m, machinev1beta1.MachineFinalizer); err != nil {
		return nil, err
	}
	if len(d.m.Finalizers) > 0 {
		d.r.events.Record(d.m, machineevents.Event{
			Type: corev1.EventTypeNormal, Reason: "FinalizersRemain", Action: "Delete", Note: fmt.Sprintf(
				"Node and infrastructure are deleted; finalizers of other controllers hold the Machine: %s",
				strings.Join(d.m.Finalizers, ", ")),
		})
	}
	return nil, nil
}

// hookNames lists hooks with their owners.
func hookNames(hooks []machinev1beta1.LifecycleHook) string {
	list := make([]string, len(hooks))
	for i, hook := range hooks {
		list[i] = fmt.Sprintf("%s (%s)", hook.Name, hook.Owner)
	}
	return strings.Join(list, ", ")
}
