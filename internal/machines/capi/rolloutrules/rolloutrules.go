// Package rolloutrules contains the rules of rollouts of Cluster API's MachineDeployments, apart from the controllers
// that follow them: the defaults of a deployment, how many machines may be missing or surplus, which fields of a
// template make machines outdated, which set is the current one, and which machine of a set is deleted first. It reads
// and writes nothing, so that a preview of a rollout and the controllers can't differ. Package rolloutplan decides the
// next step.
//
// Start with Differences.
package rolloutrules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// SetDefaults sets the defaults of Cluster API's admission, which does not run here.
func SetDefaults(spec *clusterv1.MachineDeploymentSpec) {
	strategy := &spec.Rollout.Strategy
	strategy.Type = cmp.Or(strategy.Type, clusterv1.RollingUpdateMachineDeploymentStrategyType)
	spec.Replicas = cmp.Or(spec.Replicas, ptr.To[int32](1))
	strategy.RollingUpdate.MaxSurge = cmp.Or(strategy.RollingUpdate.MaxSurge, ptr.To(intstr.FromInt32(1)))
	strategy.RollingUpdate.MaxUnavailable = cmp.Or(strategy.RollingUpdate.MaxUnavailable, ptr.To(intstr.FromInt32(0)))
}

// IsOnDelete reports whether machines are replaced only when a user deletes them.
func IsOnDelete(spec *clusterv1.MachineDeploymentSpec) bool {
	return spec.Rollout.Strategy.Type == clusterv1.OnDeleteMachineDeploymentStrategyType
}

// Limits returns how many machines there may be beyond spec.replicas, and how many may be unavailable. If both are
// rounded to zero, one machine may be unavailable: the rollout would be stuck otherwise.
func Limits(spec *clusterv1.MachineDeploymentSpec) (surge, unavailable int, err error) {
	update, wanted := spec.Rollout.Strategy.RollingUpdate, int(*spec.Replicas)
	if IsOnDelete(spec) {
		return 0, 0, nil
	}
	if surge, err = intstr.GetScaledValueFromIntOrPercent(update.MaxSurge, wanted, true); err != nil {
		return 0, 0, fmt.Errorf("spec.rollout.strategy.rollingUpdate.maxSurge: %w", err)
	}
	if unavailable, err = intstr.GetScaledValueFromIntOrPercent(update.MaxUnavailable, wanted, false); err != nil {
		return 0, 0, fmt.Errorf("spec.rollout.strategy.rollingUpdate.maxUnavailable: %w", err)
	}
	zero := intstr.FromInt32(0)
	switch {
	case *update.MaxSurge == zero && *update.MaxUnavailable == zero:
		return 0, 0, errors.New("spec.rollout.strategy.rollingUpdate: maxSurge and maxUnavailable are both 0, so no " +
			"machine could be replaced")
	case surge == 0 && unavailable == 0:
		unavailable = 1
	}
	return surge, min(unavailable, wanted), nil
}

// Differences returns which fields of a set's template differ from the deployment's, so that its machines are not up to
// date, in the words of Cluster API.
func Differences(current, wanted clusterv1.MachineSpec) []string {
	var found []string
	if current.Version != wanted.Version {
		found = append(found, fmt.Sprintf("Version %s, %s required", current.Version, wanted.Version))
	}
	if !equality.Semantic.DeepEqual(current.Bootstrap, wanted.Bootstrap) {
		text := fmt.Sprintf("spec.bootstrap.dataSecretName %s, %s required",
			ptr.Deref(current.Bootstrap.DataSecretName, "nil"), ptr.Deref(wanted.Bootstrap.DataSecretName, "nil"))
		if current.Bootstrap.ConfigRef.IsDefined() {
			text = notUpToDate(current.Bootstrap.ConfigRef)
		}
		found = append(found, text)
	}
	if current.InfrastructureRef != wanted.InfrastructureRef {
		found = append(found, notUpToDate(current.InfrastructureRef))
	}
	if current.FailureDomain != wanted.FailureDomain {
		found = append(found, fmt.Sprintf("Failure domain %s, %s required", current.FailureDomain,
			wanted.FailureDomain))
	}
	return found
}

func notUpToDate(template contract.Reference) string {
	return strings.TrimSuffix(template.Kind, clusterv1.TemplateSuffix) + " is not up-to-date"
}

// SetMutable sets the fields of a template that are updated on existing machines.
func SetMutable(spec, template *clusterv1.MachineSpec) {
	spec.ReadinessGates, spec.Deletion = template.ReadinessGates, template.Deletion
	spec.MinReadySeconds, spec.Taints = template.MinReadySeconds, template.Taints
}

// IsExpired reports whether spec.rollout.after has passed, and the set is older.
func IsExpired(deployment *clusterv1.MachineDeployment, set *clusterv1.MachineSet, now time.Time) bool {
	after := deployment.Spec.Rollout.After
	return !after.IsZero() && !now.Before(after.Time) && set.CreationTimestamp.Before(&after)
}

// ReplacementReason returns why the machines of an old set are replaced without calling an extension:
// spec.rollout.after requires new machines, the kind of an object changes, or the templates are equal. It is empty if
// an extension must be called.
func ReplacementReason(deployment *clusterv1.MachineDeployment, set *clusterv1.MachineSet, now time.Time) string {
	const message = "spec.template.spec.%s changes from kind %s to %s"
	has, wanted := set.Spec.Template.Spec, deployment.Spec.Template.Spec
	if IsExpired(deployment, set, now) {
		return "spec.rollout.after requires new machines"
	}
	if before, after := has.InfrastructureRef, wanted.InfrastructureRef; before.GroupKind() != after.GroupKind() {
		return fmt.Sprintf(message, "infrastructureRef", before.Kind, after.Kind)
	}
	if before, after := has.Bootstrap.ConfigRef, wanted.Bootstrap.ConfigRef; before.GroupKind() != after.GroupKind() {
		return fmt.Sprintf(message, "bootstrap.configRef", cmp.Or(before.Kind, "none"), cmp.Or(after.Kind, "none"))
	}
	if len(Differences(has, wanted)) == 0 {
		return "MachineSet " + set.Name + " has the same template"
	}
	return ""
}

// Current returns the set with the deployment's template: of several, the one with most replicas, then the first. It
// returns nil if there is none.
func Current(deployment *clusterv1.MachineDeployment, sets []*clusterv1.MachineSet,
	now time.Time) *clusterv1.MachineSet {
	var found *clusterv1.MachineSet
	for _, set := range sets {
		isWanted := len(Differences(set.Spec.Template.Spec, deployment.Spec.Template.Spec)) == 0 &&
			!IsExpired(deployment, set, now) && set.DeletionTimestamp == nil
		if isWanted && (found == nil || ptr.Deref(set.Spec.Replicas, 0) > ptr.Deref(found.Spec.Replicas, 0)) {
			found = set
		}
	}
	return found
}

// IsUpdating reports whether a machine is being updated in place, from its move to another set on.
func IsUpdating(m *clusterv1.Machine) bool {
	return metav1.HasAnnotation(m.ObjectMeta, clusterv1.UpdateInProgressAnnotation)
}

// IsArriving reports whether a machine was moved to its set, and its update in place has not begun.
func IsArriving(m *clusterv1.Machine) bool {
	return metav1.HasAnnotation(m.ObjectMeta, clusterv1.PendingAcknowledgeMoveAnnotation)
}

// Names returns the names that an annotation lists, with commas between them.
func Names(annotation string) []string {
	return strings.FieldsFunc(annotation, func(r rune) bool { return r == ',' })
}

// IsAvailable reports whether a machine is available, and is not being deleted or updated.
func IsAvailable(m *clusterv1.Machine) bool {
	return m.DeletionTimestamp == nil && !IsUpdating(m) &&
		meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineAvailableCondition)
}

// IsMarked reports whether a machine is marked as unhealthy, for its owner to replace it.
func IsMarked(m *clusterv1.Machine) bool {
	return meta.IsStatusConditionFalse(m.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition) &&
		meta.IsStatusConditionFalse(m.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
}

// Surplus returns whether a surplus machine of a set that moves its machines is moved, or left alone; it is deleted
// otherwise.
//
// A machine whose own update in place has not ended is neither moved nor replaced by another one, which would be
// unavailable as well. A machine without a Node can't be updated: it is deleted, as in a replacement. A machine marked
// as unhealthy is deleted too, even during its update, because the update may never end.
func Surplus(m *clusterv1.Machine) (isMoved, isLeft bool) {
	isLeft = IsUpdating(m) && !IsMarked(m)
	return !isLeft && !IsMarked(m) && m.Status.NodeRef.IsDefined(), isLeft
}

// SortSets sorts sets: the oldest first.
func SortSets(sets []*clusterv1.MachineSet) {
	slices.SortFunc(sets, func(a, b *clusterv1.MachineSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

// The priorities of a machine; the highest is deleted first. The values are Cluster API's: tools that predict a scale
// down calculate with them.
const (
	priorityMarked    = 80.0 // annotated, whatever the annotation's value
	priorityUpdating  = 75.0 // an update in place that need not be finished
	priorityUnhealthy = 50.0
	priorityOther     = 20.0
)

// ageConstant is Cluster API's.
const ageConstant = 10 * 24 * time.Hour

// DeletionPriority returns the priority of a machine in a scale down.
func DeletionPriority(m *clusterv1.Machine, order clusterv1.MachineSetDeletionOrder, now time.Time) float64 {
	byAge := replicas.PriorityByAge(m.CreationTimestamp.Time, now, ageConstant)
	switch {
	case metav1.HasAnnotation(m.ObjectMeta, clusterv1.DeleteMachineAnnotation):
		return priorityMarked
	case IsUpdating(m):
		return priorityUpdating
	case !isHealthy(m):
		return priorityUnhealthy
	case order == clusterv1.OldestMachineSetDeletionOrder:
		return byAge
	case order == clusterv1.NewestMachineSetDeletionOrder:
		return priorityUnhealthy - byAge
	default:
		return priorityOther
	}
}

// isHealthy reports whether a machine has a node, and no condition reports it as unhealthy.
func isHealthy(m *clusterv1.Machine) bool {
	return m.Status.NodeRef.IsDefined() &&
		!meta.IsStatusConditionFalse(m.Status.Conditions, clusterv1.MachineNodeHealthyCondition) &&
		!meta.IsStatusConditionFalse(m.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition)
}

// UnsetReplicas returns the value of spec.replicas for a set or a deployment without one, as Cluster API's admission
// sets it, which does not run here. With the bounds of the cluster autoscaler, it is the last number of machines within
// these bounds; otherwise it is 1. If a bound can't be read, it returns the problem: a default would delete machines.
func UnsetReplicas(annotations map[string]string, last int) (replicas *int32, invalid string) {
	least, hasLeast := annotations[clusterv1.AutoscalerMinSizeAnnotation]
	most, hasMost := annotations[clusterv1.AutoscalerMaxSizeAnnotation]
	if !hasLeast || !hasMost {
		return ptr.To[int32](1), ""
	}
	bounds := [2]int32{}
	for i, key := range []string{clusterv1.AutoscalerMinSizeAnnotation, clusterv1.AutoscalerMaxSizeAnnotation} {
		number, err := strconv.ParseInt([]string{least, most}[i], 10, 32)
		if err != nil || number < 0 {
			return nil, fmt.Sprintf("spec.replicas is not set, and the annotation %s is %q: write a number", key,
				annotations[key])
		}
		bounds[i] = int32(number)
	}
	return ptr.To(max(bounds[0], min(int32(last), bounds[1]))), ""
}
