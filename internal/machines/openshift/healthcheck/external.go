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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/remediation"
)

// The conditions of a MachineHealthCheck with external remediation.
const (
	templates = machinev1beta1.ExternalRemediationTemplateAvailable
	requests  = machinev1beta1.ExternalRemediationRequestAvailable
)

// An externalProblem is why external remediation can't be requested.
type externalProblem struct {
	of     machinev1beta1.ConditionType // that becomes false
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
