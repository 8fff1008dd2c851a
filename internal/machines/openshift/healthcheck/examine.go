package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/remediation"
)

// ExternalRemediationAnnotation is the annotation of a Machine that requests remediation by a bare-metal controller.
const ExternalRemediationAnnotation = "host.metal3.io/external-remediation"

// A checkedMachine is a Machine and its node.
type checkedMachine struct {
	machine *machinev1beta1.Machine
	node    *corev1.Node // nil if the Machine has no nodeRef, or that node does not exist
}

// A verdict is the result of the health check of a machine.
type verdict struct {
	isHealthy bool
	// unhealthy is the reason why the machine needs remediation; empty if it does not, or not yet.
	unhealthy string
	// again is the time until the running timeout ends; zero if none is running.
	again time.Duration
}

// examine decides whether a machine is healthy. A machine that may become unhealthy when a timeout ends, a machine
// being deleted, and a machine under external remediation are neither healthy nor in need of remediation.
func examine(t checkedMachine, spec machinev1beta1.MachineHealthCheckSpec, now time.Time) verdict {
	ref := t.machine.Status.NodeRef
	switch {
	case hasFailed(t.machine):
		return verdict{unhealthy: "its phase is Failed"}
	case ref == nil:
		return examineStartup(t.machine, spec, now)
	case t.node == nil:
		return verdict{unhealthy: fmt.Sprintf("its node %s does not exist", ref.Name)}
	}
	found := examineNode(t.node, spec.UnhealthyConditions, now)
	found.isHealthy = found.unhealthy == "" && found.again == 0 && t.machine.DeletionTimestamp == nil &&
		!metav1.HasAnnotation(t.machine.ObjectMeta, ExternalRemediationAnnotation)
	return found
}

func hasFailed(m *machinev1beta1.Machine) bool {
	return ptr.Deref(m.Status.Phase, "") == machinev1beta1.PhaseFailed
}

// examineStartup examines a machine that has no node yet.
func examineStartup(machine *machinev1beta1.Machine, spec machinev1beta1.MachineHealthCheckSpec,
	now time.Time) verdict {
	timeout := remediation.DefaultNodeStartupTimeout
	if spec.NodeStartupTimeout != nil {
		timeout = spec.NodeStartupTimeout.Duration
	}
	if timeout == 0 || machine.Status.LastUpdated == nil { // no limit, or not reconciled yet
		return verdict{}
	}
	if isOver, again := remediation.Over(machine.Status.LastUpdated.Time, timeout, now); !isOver {
		return verdict{again: again}
	}
	return verdict{unhealthy: fmt.Sprintf("it has no node after %s", timeout)}
}

func examineNode(node *corev1.Node, unhealthy []machinev1beta1.UnhealthyCondition, now time.Time) verdict {
	var found verdict
	for _, wanted := range unhealthy {
		for _, condition := range node.Status.Conditions {
			if condition.Type != wanted.Type || condition.Status != wanted.Status {
				continue
			}
			isOver, again := remediation.Over(condition.LastTransitionTime.Time, wanted.Timeout.Duration, now)
			if isOver {
				return verdict{unhealthy: fmt.Sprintf("its node %s has had %s=%s for more than %s",
					node.Name, wanted.Type, wanted.Status, wanted.Timeout.Duration)}
			}
			found.again = remediation.Earliest(found.again, again)
		}
	}
	return found
}

// isRestricted reports whether the last census allowed no remediation.
func isRestricted(status machinev1beta1.MachineHealthCheckStatus) bool {
	return conditions.Find(status.Conditions,
		machinev1beta1.RemediationAllowedCondition).Status == corev1.ConditionFalse
}

// nextStatus returns the status of a health check after a census.
func nextStatus(check *machinev1beta1.MachineHealthCheck, c remediation.Census,
	now time.Time) machinev1beta1.MachineHealthCheckStatus {
	next := *check.Status.DeepCopy()
	next.ExpectedMachines, next.CurrentHealthy = &c.Machines, &c.Healthy
	next.RemediationsAllowed = c.Left()
	condition := machinev1beta1.Condition{
		Type:   machinev1beta1.RemediationAllowedCondition,
		Status: corev1.ConditionTrue,
	}
	if !c.AllowsRemediation() {
		condition.Status, condition.Severity = corev1.ConditionFalse, machinev1beta1.ConditionSeverityWarning
		condition.Reason = machinev1beta1.TooManyUnhealthyReason
		condition.Message = fmt.Sprintf("Remediation is not allowed, the number of not started or unhealthy machines "+
			"exceeds maxUnhealthy (total: %d, unhealthy: %d, maxUnhealthy: %v)", c.Machines, c.Unhealthy(),
			check.Spec.MaxUnhealthy)
	}
	next.Conditions = conditions.Set(next.Conditions, condition, now)
	return next
}

// The conditions of a MachineHealthCheck with external remediation.
const (
	templates = machinev1beta1.ExternalRemediationTemplateAvailable
	requests  = machinev1beta1.ExternalRemediationRequestAvailable
)

// An externalProblem is the reason why external remediation can't be requested.
type externalProblem struct {
	of     machinev1beta1.ConditionType // the condition that becomes false
	reason string
	error
}

func (p *externalProblem) Unwrap() error { return p.error }

// remediations returns the requests of the namespace; none if the health check has no template.
func (r *reconciler) remediations(ctx context.Context,
	check *machinev1beta1.MachineHealthCheck) (remediation.Requests, error) {
	ref := check.Spec.RemediationTemplate
	if ref == nil {
		return nil, nil
	}
	requested, err := remediation.ListRequests(ctx, r.client, ref.GroupVersionKind(), check.Namespace)
	if err != nil {
		return nil, &externalProblem{requests, machinev1beta1.ExternalRemediationRequestCreationFailed, err}
	}
	return requested, nil
}

// endRemediations deletes the requests of healthy machines, also while too many others are unhealthy.
func (r *reconciler) endRemediations(ctx context.Context, requested remediation.Requests,
	healthy []checkedMachine) error {
	var problems []error
	for _, t := range healthy {
		problems = append(problems, requested.End(ctx, r.client, t.machine))
	}
	return errors.Join(problems...)
}

// createRemediation creates the object that requests external remediation of a machine. It has the machine's name, so
// that there is at most one.
func (r *reconciler) createRemediation(
	ctx context.Context, check *machinev1beta1.MachineHealthCheck, machine *machinev1beta1.Machine,
) error {
	ref := check.Spec.RemediationTemplate
	template := &unstructured.Unstructured{}
	template.SetAPIVersion(ref.APIVersion)
	template.SetKind(ref.Kind)
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: check.Namespace, Name: ref.Name}, template); err != nil {
		return &externalProblem{templates, machinev1beta1.ExternalRemediationTemplateNotFound,
			fmt.Errorf("get remediation template %s %s: %w", ref.Kind, ref.Name, err)}
	}
	content, found, err := unstructured.NestedMap(template.Object, "spec", "template")
	if err != nil || !found {
		return &externalProblem{templates, machinev1beta1.ExternalRemediationTemplateNotFound,
			fmt.Errorf("read remediation template %s %s: it has no spec.template", ref.Kind, ref.Name)}
	}
	wanted := &unstructured.Unstructured{Object: map[string]any{}}
	if content["spec"] != nil {
		wanted.Object["spec"] = content["spec"]
	}
	wanted.SetGroupVersionKind(remediation.RequestKind(ref.GroupVersionKind()))
	wanted.SetNamespace(machine.Namespace)
	wanted.SetName(machine.Name)
	wanted.SetAnnotations(map[string]string{
		machinev1beta1.TemplateClonedFromNameAnnotation:      ref.Name,
		machinev1beta1.TemplateClonedFromGroupKindAnnotation: template.GroupVersionKind().GroupKind().String(),
	})
	wanted.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: machinev1beta1.SchemeGroupVersion.String(), Kind: "Machine", Name: machine.Name, UID: machine.UID,
	}})
	if err := r.client.Create(ctx, wanted); err != nil && !apierrors.IsAlreadyExists(err) {
		return &externalProblem{requests, machinev1beta1.ExternalRemediationRequestCreationFailed,
			fmt.Errorf("create %s %s: %w", wanted.GetKind(), wanted.GetName(), err)}
	}
	return nil
}

// withProblem returns conditions that report why external remediation can't be requested.
func withProblem(all []machinev1beta1.Condition, err error, now time.Time) []machinev1beta1.Condition {
	problem := &externalProblem{}
	_ = errors.As(err, &problem)
	all = slices.DeleteFunc(slices.Clone(all), func(c machinev1beta1.Condition) bool {
		return (c.Type == templates || c.Type == requests) && c.Type != problem.of
	})
	if problem.of == "" {
		return all
	}
	return conditions.Set(all, machinev1beta1.Condition{
		Type: problem.of, Status: corev1.ConditionFalse, Severity: machinev1beta1.ConditionSeverityError,
		Reason: problem.reason, Message: problem.Error(),
	}, now)
}
