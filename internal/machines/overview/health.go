package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// This file is about Machines of Cluster API that a MachineHealthCheck has found unhealthy, and the holds of their
// remediation. Two conditions of the Machine name the controller that must remediate it. If both are missing, the
// health check reports why the Machine is not remediated.

// A healthCheckList contains the health checks of a namespace.
type healthCheckList struct {
	checks  []*clusterv1.MachineHealthCheck
	unknown string // the reason why the health checks can't be listed
}

// isUnhealthy reports whether a machine is unhealthy, and is not being deleted yet.
func (cm *clusterAPIMachine) isUnhealthy() bool {
	succeeded := cm.condition(clusterv1.MachineHealthCheckSucceededCondition)
	return !cm.isDeleting() && succeeded.Status == metav1.ConditionFalse
}

// readHealthChecks finds the health checks of an unhealthy machine.
func (cm *clusterAPIMachine) readHealthChecks(ctx context.Context, g *gatherer) {
	list := g.listHealthChecks(ctx, cm.machine.Namespace)
	if list.unknown != "" {
		cm.unknown = append(cm.unknown, list.unknown)
	}
	for _, check := range list.checks {
		selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(cm.machine.Labels)) &&
			check.Spec.ClusterName == cm.machine.Spec.ClusterName {
			cm.checks = append(cm.checks, check)
		}
	}
}

// listHealthChecks lists the health checks of a namespace, once.
func (g *gatherer) listHealthChecks(ctx context.Context, namespace string) healthCheckList {
	list, isListed := g.healthChecks[namespace]
	if isListed {
		return list
	}
	kind := clusterAPIKind("MachineHealthCheck")
	checks, err := listObjects[clusterv1.MachineHealthCheck](ctx, g, kind, Query{Namespace: namespace})
	list.checks = checks
	if err != nil && !errors.Is(err, ErrNotServed) {
		list.unknown = errorLine(err)
	}
	if g.healthChecks == nil {
		g.healthChecks = map[string]healthCheckList{}
	}
	g.healthChecks[namespace] = list
	return list
}

// remediationHolds returns the hold of the remediation of an unhealthy machine; none for other machines.
func (cm *clusterAPIMachine) remediationHolds() []Hold {
	if !cm.isUnhealthy() {
		return nil
	}
	failed := cm.condition(clusterv1.MachineHealthCheckSucceededCondition)
	problems := cmp.Or(joinLines(strings.TrimPrefix(failed.Message, "Health check failed:"), ", "), failed.Reason)
	return []Hold{{
		Type: Remediation, Since: &failed.LastTransitionTime.Time,
		Message: "unhealthy (" + problems + "); " + cm.remediationState(),
	}}
}

// joinLines returns the lines of the message of a condition, joined, and without the marks of a list.
func joinLines(message, separator string) string {
	var lines []string
	for line := range strings.SplitSeq(message, "\n") {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "* "); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, separator)
}

// remediationState returns who remediates an unhealthy machine, or why it is not remediated.
func (cm *clusterAPIMachine) remediationState() string {
	for _, annotation := range []string{clusterv1.MachineSkipRemediationAnnotation, clusterv1.PausedAnnotation} {
		if metav1.HasAnnotation(cm.machine.ObjectMeta, annotation) {
			return "not remediated, because of its annotation " + annotation
		}
	}
	owned := cm.condition(clusterv1.MachineOwnerRemediatedCondition)
	if owner := metav1.GetControllerOfNoCopy(cm.machine); owned.Status == metav1.ConditionFalse {
		if owner == nil {
			return "it has no owner that would replace it"
		}
		name := owner.Kind + " " + owner.Name
		switch owned.Reason {
		case clusterv1.MachineOwnerRemediatedWaitingForRemediationReason:
			return name + " has to replace it"
		case clusterv1.MachineSetMachineCannotBeRemediatedReason:
			return name + " does not replace it: " + cmp.Or(owned.Message, owned.Reason)
		}
		return name + " replaces it: " + cmp.Or(owned.Message, owned.Reason)
	}
	external := cm.condition(clusterv1.MachineExternallyRemediatedCondition)
	switch waits := clusterv1.MachineExternallyRemediatedWaitingForRemediationReason; {
	case external.Status == metav1.ConditionFalse && external.Reason == waits:
		return "another controller has to remediate it"
	case external.Status == metav1.ConditionFalse:
		return cmp.Or(external.Message, external.Reason)
	}
	for _, check := range cm.checks {
		allowed := findCondition(check.Status.Conditions, clusterv1.MachineHealthCheckRemediationAllowedCondition)
		switch { // a paused check keeps its other conditions, and a check without a Cluster never gets any
		case meta.IsStatusConditionTrue(check.Status.Conditions, clusterv1.PausedCondition):
			return fmt.Sprintf("MachineHealthCheck %s is paused, by its annotation %s or by Cluster %s", check.Name,
				clusterv1.PausedAnnotation, check.Spec.ClusterName)
		case len(check.Status.Conditions) == 0:
			return fmt.Sprintf("MachineHealthCheck %s has examined no machine yet: it does once Cluster %s exists",
				check.Name, check.Spec.ClusterName)
		case allowed.Status == metav1.ConditionFalse:
			return fmt.Sprintf("MachineHealthCheck %s: %s", check.Name, allowed.Message)
		}
	}
	return "nothing requests its remediation"
}

// remediationRemedy returns the remedy of an unhealthy machine without remediation.
func (cm *clusterAPIMachine) remediationRemedy() []string {
	var remedy []string
	for _, check := range cm.checks {
		remedy = append(remedy, fmt.Sprintf("kubectl describe machinehealthcheck.%s %s -n %s",
			ClusterAPIKind.Group, check.Name, check.Namespace))
	}
	if len(remedy) > 0 {
		remedy = append(
			[]string{"see its health check, which has the limits and the number of unhealthy machines:"}, remedy...)
	}
	refused := clusterv1.MachineSetMachineCannotBeRemediatedReason
	isRefused := cm.condition(clusterv1.MachineOwnerRemediatedCondition).Reason == refused
	// etcd could lose its quorum, or nothing replaces it
	if isRefused || metav1.GetControllerOfNoCopy(cm.machine) == nil {
		return remedy
	}
	return append(remedy, "or delete the machine; its owner creates another one:", cm.command("delete", ""))
}
