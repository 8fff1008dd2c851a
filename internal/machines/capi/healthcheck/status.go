package healthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/owners"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/remediation"
)

// reasonInvalidSpec is the reason of RemediationAllowed, and of an event, for a spec that Cluster API's admission would
// refuse: it does not run here.
const reasonInvalidSpec = "InvalidSpec"

// newCensus returns the census of some machines before any is examined. The health check is valid.
func newCensus(check *clusterv1.MachineHealthCheck, machines int) remediation.Census {
	census := remediation.Census{Machines: machines}
	census.Least, census.Most, _ = unhealthyRange(check, machines)
	return census
}

// newCheckStatus returns the status of a health check after a census.
func newCheckStatus(check *clusterv1.MachineHealthCheck, c remediation.Census,
	targets []target) clusterv1.MachineHealthCheckStatus {
	status := *check.Status.DeepCopy()
	status.ObservedGeneration = check.Generation
	status.ExpectedMachines, status.CurrentHealthy = ptr.To(int32(c.Machines)), ptr.To(int32(c.Healthy))
	status.RemediationsAllowed = ptr.To(c.Left())
	status.Targets = nil
	for _, t := range targets {
		status.Targets = append(status.Targets, t.machine.Name)
	}
	slices.Sort(status.Targets)
	allowed := metav1.Condition{
		Type: clusterv1.MachineHealthCheckRemediationAllowedCondition, Status: metav1.ConditionTrue,
		Reason: clusterv1.MachineHealthCheckRemediationAllowedReason,
	}
	if !c.AllowsRemediation() {
		allowed.Status, allowed.Reason = metav1.ConditionFalse, clusterv1.MachineHealthCheckTooManyUnhealthyReason
		allowed.Message, status.RemediationsAllowed = restriction(check, c), ptr.To[int32](0)
	}
	setConditions(check, &status, allowed, owners.Condition(clusterv1.PausedCondition, false, ""))
	return status
}

// restriction returns the reason why no machine is remediated, in the words of Cluster API.
func restriction(check *clusterv1.MachineHealthCheck, c remediation.Census) string {
	const message = "Remediation is not allowed, the number of not started or unhealthy machines %s (total: %d, " +
		"unhealthy: %d, %s: %s)"
	trigger := check.Spec.Remediation.TriggerIf
	if trigger.UnhealthyInRange != "" {
		return fmt.Sprintf(message, "does not fall within the range", c.Machines, c.Unhealthy(), "unhealthyRange",
			trigger.UnhealthyInRange)
	}
	limit := cmp.Or(trigger.UnhealthyLessThanOrEqualTo, ptr.To(intstr.FromString("100%")))
	return fmt.Sprintf(message, "exceeds maxUnhealthy", c.Machines, c.Unhealthy(), "maxUnhealthy", limit.String())
}

// pausedStatus is the status of a paused health check: only the condition Paused changes.
func pausedStatus(check *clusterv1.MachineHealthCheck) clusterv1.MachineHealthCheckStatus {
	status := *check.Status.DeepCopy()
	setConditions(check, &status, owners.Condition(clusterv1.PausedCondition, true, ""))
	return status
}

// invalidStatus is the status of a health check that can't be read. Its counts stay, since its machines are not known.
func invalidStatus(check *clusterv1.MachineHealthCheck, problem error) clusterv1.MachineHealthCheckStatus {
	status := *check.Status.DeepCopy()
	status.ObservedGeneration, status.RemediationsAllowed = check.Generation, ptr.To[int32](0)
	setConditions(check, &status, owners.Condition(clusterv1.PausedCondition, false, ""), metav1.Condition{
		Type: clusterv1.MachineHealthCheckRemediationAllowedCondition, Status: metav1.ConditionFalse,
		Reason: reasonInvalidSpec, Message: problem.Error(),
	})
	return status
}

func setConditions(check *clusterv1.MachineHealthCheck, status *clusterv1.MachineHealthCheckStatus,
	conditions ...metav1.Condition) {
	for _, condition := range conditions {
		condition.ObservedGeneration = check.Generation
		meta.SetStatusCondition(&status.Conditions, condition)
	}
}

// writeStatus writes the status, if it changes, and records an event when remediation becomes restricted.
func (r *Reconciler) writeStatus(ctx context.Context, check *clusterv1.MachineHealthCheck,
	next clusterv1.MachineHealthCheckStatus) error {
	if equality.Semantic.DeepEqual(check.Status, next) {
		return nil
	}
	before := check.DeepCopy()
	check.Status = next
	if err := r.client.Status().Patch(ctx, check.DeepCopy(),
		client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	allowed := meta.FindStatusCondition(next.Conditions, clusterv1.MachineHealthCheckRemediationAllowedCondition)
	isUnhealthy := ptr.Deref(next.ExpectedMachines, 0) > ptr.Deref(next.CurrentHealthy, 0)
	if isRestricted(next) && !isRestricted(before.Status) && isUnhealthy {
		r.recorder.Eventf(check, nil, corev1.EventTypeWarning, "RemediationRestricted", "Remediate", "%s",
			allowed.Message)
	}
	return nil
}

// isRestricted reports whether a status reports that too many machines are unhealthy.
func isRestricted(status clusterv1.MachineHealthCheckStatus) bool {
	allowed := meta.FindStatusCondition(status.Conditions, clusterv1.MachineHealthCheckRemediationAllowedCondition)
	return allowed != nil && allowed.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason
}

// markAll writes the verdict on each machine, independently of the others.
func (r *Reconciler) markAll(ctx context.Context, p *examination, targets []target, verdicts []verdict) error {
	if template := p.check.Spec.Remediation.TemplateRef; template.IsDefined() {
		var err error
		if p.requested, err = remediation.ListRequests(ctx, r.client, template.GroupVersionKind(),
			p.check.Namespace); err != nil {
			// The conditions of machines are written nevertheless, with the reason why nothing is requested.
			ctrl.LoggerFrom(ctx).Error(err, "read which remediations are requested")
		}
	}
	var problems []error
	for i, t := range targets {
		var err error
		switch {
		case verdicts[i].isHealthy:
			err = errors.Join(p.requested.End(ctx, r.client, t.machine), r.write(ctx, t.machine, healthy(t.machine)))
		case verdicts[i].reason != "" && !p.isMarked(t.machine, verdicts[i]):
			err = r.mark(ctx, p, t.machine)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("mark Machine %s: %w", t.machine.Name, err))
		}
	}
	return errors.Join(problems...)
}

// healthy returns a machine with the condition of a healthy one. The other conditions are left to the remediating
// controllers.
func healthy(m *clusterv1.Machine) *clusterv1.Machine {
	return withCondition(m, metav1.ConditionTrue, clusterv1.MachineHealthCheckSucceededCondition,
		clusterv1.MachineHealthCheckSucceededReason, "")
}

func withCondition(m *clusterv1.Machine, status metav1.ConditionStatus, kind, reason,
	message string) *clusterv1.Machine {
	changed := m.DeepCopy()
	meta.SetStatusCondition(&changed.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: m.Generation,
	})
	return changed
}

// isMarked reports whether there is nothing to write on an unhealthy machine.
func (e *examination) isMarked(m *clusterv1.Machine, v verdict) bool {
	succeeded := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition)
	return succeeded != nil && succeeded.Status == metav1.ConditionFalse && succeeded.Reason == v.reason &&
		succeeded.Message == v.message() &&
		!e.isDue(m)
}

// isDue reports whether remediation of an unhealthy machine is still to be requested. A request is repeated only after
// the remediating controller has reported success.
func (e *examination) isDue(m *clusterv1.Machine) bool {
	if !e.isAllowed || m.DeletionTimestamp != nil {
		return false
	}
	if e.check.Spec.Remediation.TemplateRef.IsDefined() {
		return e.requested[m.Name] == nil
	}
	remediated := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	return remediated == nil || remediated.Status == metav1.ConditionTrue
}

// mark marks an unhealthy machine, after the machine and its Node were read past the cache: caches are filled one after
// the other, and a Node missing in one cache must not cause a deletion.
func (r *Reconciler) mark(ctx context.Context, p *examination, cached *clusterv1.Machine) error {
	machine := &clusterv1.Machine{}
	if err := r.server.Get(ctx, client.ObjectKeyFromObject(cached), machine); err != nil {
		return client.IgnoreNotFound(err)
	}
	t, err := newTarget(ctx, r.server, machine)
	if err != nil || machine.UID != cached.UID {
		return err
	}
	v := examine(t, p)
	if v.reason == "" { // the change causes another reconciliation
		return nil
	}
	changed := withCondition(machine, metav1.ConditionFalse, clusterv1.MachineHealthCheckSucceededCondition, v.reason,
		v.message())
	if !p.isDue(machine) {
		return r.write(ctx, machine, changed)
	}
	changed, problem := r.request(ctx, p, changed)
	if err := r.write(ctx, machine, changed); err != nil || problem != nil {
		return errors.Join(problem, err)
	}
	ctrl.LoggerFrom(ctx).Info("unhealthy Machine marked", "machine", machine.Name, "reason", v.reason, "message",
		v.message())
	r.recorder.Eventf(machine, nil, corev1.EventTypeNormal, "MachineMarkedUnhealthy", "Remediate",
		"Machine %s/%s has been marked as unhealthy by %s/%s", machine.Namespace, machine.Name, p.check.Namespace,
		p.check.Name)
	return nil
}

// write writes the conditions of a machine. It fails with a conflict if another controller has changed the machine
// meanwhile.
func (r *Reconciler) write(ctx context.Context, before, changed *clusterv1.Machine) error {
	if equality.Semantic.DeepEqual(before.Status.Conditions, changed.Status.Conditions) {
		return nil
	}
	return client.IgnoreNotFound(patch.StatusWithLock(ctx, r.client, changed, before))
}

// request requests the remediation of a machine, by its owner or by an object from a template. It returns the machine
// with the condition of the request, even if the request fails.
func (r *Reconciler) request(ctx context.Context, p *examination, m *clusterv1.Machine) (*clusterv1.Machine, error) {
	if !p.check.Spec.Remediation.TemplateRef.IsDefined() {
		return withCondition(m, metav1.ConditionFalse, clusterv1.MachineOwnerRemediatedCondition,
			clusterv1.MachineOwnerRemediatedWaitingForRemediationReason, "Waiting for remediation"), nil
	}
	reason, message, err := r.createRequest(ctx, p.check.Spec.Remediation.TemplateRef, m)
	return withCondition(m, metav1.ConditionFalse, clusterv1.MachineExternallyRemediatedCondition, reason, message), err
}
