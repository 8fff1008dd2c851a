package controlplane

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/contract"
)

// MachineObjects are the objects to which a machine refers; nil if there is none.
type MachineObjects struct{ Infrastructure, Bootstrap *contract.Object }

// isExpired reports whether spec.rollout.after has passed, and a machine is older. One that has not joined is not
// expired yet: if the API server's clock is behind ours, a new machine would be replaced at once, and the next one too.
func isExpired(plane *v1alpha1.RunlevelControlPlane, m *clusterv1.Machine, now time.Time) bool {
	after := plane.Spec.Rollout.After
	return !after.IsZero() && !now.Before(after.Time) && m.CreationTimestamp.Before(&after) &&
		m.Status.NodeRef.IsDefined()
}

// outdatedBy returns why a machine is not up to date, in the words of Cluster API. An object that was not created from
// a template can't be compared, and counts as up to date.
func outdatedBy(plane *v1alpha1.RunlevelControlPlane, m *clusterv1.Machine, objects MachineObjects,
	now time.Time) []string {
	var found []string
	template := plane.Spec.MachineTemplate.Spec
	if m.Spec.Version != plane.Spec.Version {
		found = append(found, fmt.Sprintf("Version %s, %s required", m.Spec.Version, plane.Spec.Version))
	}
	if isOfAnotherTemplate(objects.Bootstrap, template.Bootstrap.ConfigRef) ||
		!template.Bootstrap.ConfigRef.IsDefined() && m.Spec.Bootstrap.ConfigRef.IsDefined() {
		found = append(found, m.Spec.Bootstrap.ConfigRef.Kind+" is not up-to-date")
	}
	if name := m.Spec.Bootstrap.DataSecretName; !m.Spec.Bootstrap.ConfigRef.IsDefined() &&
		!equality.Semantic.DeepEqual(name, template.Bootstrap.DataSecretName) {
		found = append(found, fmt.Sprintf("spec.bootstrap.dataSecretName %s, %s required", ptr.Deref(name, "nil"),
			ptr.Deref(template.Bootstrap.DataSecretName, "nil")))
	}
	if isOfAnotherTemplate(objects.Infrastructure, template.InfrastructureRef) {
		found = append(found, m.Spec.InfrastructureRef.Kind+" is not up-to-date")
	}
	if isExpired(plane, m, now) {
		found = append(found, "RunlevelControlPlane spec.rollout.after expired")
	}
	return found
}

// isOfAnotherTemplate reports whether an object was created from another template than the wanted one.
func isOfAnotherTemplate(object *contract.Object, wanted contract.Reference) bool {
	if object == nil {
		return false
	}
	name, isClone := object.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation]
	kind := object.GetAnnotations()[clusterv1.TemplateClonedFromGroupKindAnnotation]
	return isClone && (name != wanted.Name || kind != wanted.GroupKind().String())
}
