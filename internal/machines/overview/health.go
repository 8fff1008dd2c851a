package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// This file is about Machines of Cluster API that a MachineHealthCheck has found unhealthy, and what holds their
// remediation. Two conditions of the Machine name who has to remediate it; without either, the health check reports why
// it is not remediated.

var healthCheckKind = schema.GroupKind{Group: ClusterAPIKind.Group, Kind: "MachineHealthCheck"}

// A healthCheckList is the health checks of a namespace.
type healthCheckList struct {
	checks  []*clusterv1.MachineHealthCheck
	unknown string // why they can't be listed
}

// isUnhealthy reports whether a machine is unhealthy, and is not being deleted yet.
func (f *clusterAPIFacts) isUnhealthy() bool {
	return !f.isDeleting() &&
		f.condition(clusterv1.MachineHealthCheckSucceededCondition).Status == metav1.ConditionFalse
}

// askHealthChecks finds the health checks of an unhealthy machine. They are listed once for each namespace.
func (g *machineGatherer) askHealthChecks(ctx context.Context, f *clusterAPIFacts) {
	namespace := f.machine.Namespace
	found, isListed := g.healthChecks[namespace]
	if !isListed {
		found = g.listHealthChecks(ctx, namespace)
		if g.healthChecks == nil {
			g.healthChecks = map[string]healthCheckList{}
		}
		g.healthChecks[namespace] = found
	}
	if found.unknown != "" {
		f.unknown = append(f.unknown, found.unknown)
	}
	for _, check := range found.checks {
		selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(f.machine.Labels)) &&
			check.Spec.ClusterName == f.machine.Spec.ClusterName {
			f.checks = append(f.checks, check)
		}
	}
}

func (g *machineGatherer) listHealthChecks(ctx context.Context, namespace string) (list healthCheckList) {
	in, err := g.cluster.FindKind(ctx, healthCheckKind)
	objects := &unstructured.UnstructuredList{}
	if err == nil {
		objects, err = g.cluster.In(in, namespace).List(ctx, metav1.ListOptions{})
	}
	if errors.Is(err, ErrNotServed) {
		return list
	}
	if err != nil {
		list.unknown = inLine(requestError("list machinehealthchecks.cluster.x-k8s.io"+where(namespace), err))
		return list
	}
	for i := range objects.Items {
		check := &clusterv1.MachineHealthCheck{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(objects.Items[i].Object, check) == nil {
			list.checks = append(list.checks, check)
		}
	}
	return list
}

// remediationHolds is what holds the remediation of an unhealthy machine; none for others.
func (f *clusterAPIFacts) remediationHolds() []MachineHold {
	if !f.isUnhealthy() {
		return nil
	}
	failed := f.condition(clusterv1.MachineHealthCheckSucceededCondition)
	return []MachineHold{{
		Type: Remediation, Message: "unhealthy (" + problemsOf(failed) + "); " + f.remediationState(),
		Since: &failed.LastTransitionTime.Time,
	}}
}

// problemsOf returns the problems of an unhealthy machine in a line.
func problemsOf(failed metav1.Condition) string {
	return cmp.Or(linesOf(strings.TrimPrefix(failed.Message, "Health check failed:"), ", "), failed.Reason)
}

// linesOf returns the lines of the message of a condition, joined, and without the marks of a list.
func linesOf(message, separator string) string {
	var lines []string
	for line := range strings.SplitSeq(message, "\n") {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "* "); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, separator)
}

// remediationState is who remediates an unhealthy machine, or why it is not remediated.
func (f *clusterAPIFacts) remediationState() string {
	owned, external := f.condition(clusterv1.MachineOwnerRemediatedCondition),
		f.condition(clusterv1.MachineExternallyRemediatedCondition)
	for _, annotation := range []string{clusterv1.MachineSkipRemediationAnnotation, clusterv1.PausedAnnotation} {
		if metav1.HasAnnotation(f.machine.ObjectMeta, annotation) {
			return "not remediated, because of its annotation " + annotation
		}
	}
	switch owner := metav1.GetControllerOfNoCopy(f.machine); {
	case owned.Status == metav1.ConditionFalse && owner == nil:
		return "it has no owner that would replace it"
	case owned.Status == metav1.ConditionFalse &&
		owned.Reason == clusterv1.MachineOwnerRemediatedWaitingForRemediationReason:
		return fmt.Sprintf("%s %s has to replace it", owner.Kind, owner.Name)
	case owned.Status == metav1.ConditionFalse && owned.Reason == clusterv1.MachineSetMachineCannotBeRemediatedReason:
		return fmt.Sprintf("%s %s does not replace it: %s", owner.Kind, owner.Name, cmp.Or(owned.Message, owned.Reason))
	case owned.Status == metav1.ConditionFalse:
		return fmt.Sprintf("%s %s replaces it: %s", owner.Kind, owner.Name, cmp.Or(owned.Message, owned.Reason))
	case external.Status == metav1.ConditionFalse &&
		external.Reason == clusterv1.MachineExternallyRemediatedWaitingForRemediationReason:
		return "another controller has to remediate it"
	case external.Status == metav1.ConditionFalse:
		return cmp.Or(external.Message, external.Reason)
	}
	for _, check := range f.checks {
		allowed := conditionOf(check.Status.Conditions, clusterv1.MachineHealthCheckRemediationAllowedCondition)
		switch { // a paused check keeps its other conditions, and one without a Cluster never gets any
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
	return "nothing asks for its remediation"
}

// remediationRemedy returns what to do about an unhealthy machine that is not remediated.
func (f *clusterAPIFacts) remediationRemedy(command func(verb, rest string) string) []string {
	var remedy []string
	for _, check := range f.checks {
		remedy = append(remedy, fmt.Sprintf("kubectl describe %s.%s %s -n %s", strings.ToLower(healthCheckKind.Kind),
			healthCheckKind.Group, check.Name, check.Namespace))
	}
	if len(remedy) > 0 {
		remedy = append([]string{"see its health check, which has the limits and the number of unhealthy machines:"},
			remedy...)
	}
	refused := f.condition(clusterv1.MachineOwnerRemediatedCondition).
		Reason == clusterv1.MachineSetMachineCannotBeRemediatedReason
	// a deletion could cost etcd its quorum, or is for good
	if refused || metav1.GetControllerOfNoCopy(f.machine) == nil {
		return remedy
	}
	return append(remedy, "or give up the machine; its owner makes another one:", command("delete", ""))
}
