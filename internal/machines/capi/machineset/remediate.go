package machineset

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/replicas"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A remedy is the remediation of a machine that was marked as unhealthy.
type remedy struct {
	machine, changed *clusterv1.Machine // with the observed status, and with the new one
	isDue            bool               // to be deleted
}

// newRemedy returns a remedy that sets a machine's condition OwnerRemediated; without a reason, it removes the
// condition.
func newRemedy(machine *clusterv1.Machine, reason, message string) remedy {
	changed := machine.DeepCopy()
	if reason == "" {
		meta.RemoveStatusCondition(&changed.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	} else {
		meta.SetStatusCondition(&changed.Status.Conditions, metav1.Condition{
			Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason: reason, Message: message, ObservedGeneration: machine.Generation,
		})
	}
	return remedy{
		machine: machine,
		changed: changed,
		isDue:   reason == clusterv1.MachineSetMachineRemediationMachineDeletingReason,
	}
}

// isHealed reports whether a machine was marked, and is healthy again.
func isHealed(m *clusterv1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition) &&
		meta.IsStatusConditionFalse(m.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
}

// isBeingRemediated reports whether a machine is being deleted because it was marked.
func isBeingRemediated(m *clusterv1.Machine) bool {
	condition := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	return condition != nil && condition.Status == metav1.ConditionFalse &&
		condition.Reason == clusterv1.MachineSetMachineRemediationMachineDeletingReason
}

// remediatedBefore orders marked machines as Cluster API does: annotated machines first, then the newest, which are the
// least likely to run workloads.
func remediatedBefore(a, b *clusterv1.Machine) int {
	annotated := func(m *clusterv1.Machine) int {
		if _, isAnnotated := m.Annotations[clusterv1.RemediateMachineAnnotation]; isAnnotated {
			return 0
		}
		return 1
	}
	return cmp.Or(annotated(a)-annotated(b), b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
		strings.Compare(a.Name, b.Name))
}

// readDeployment reads the MachineDeployment of a set with marked machines, which limits how many are replaced at once.
func (s *snapshot) readDeployment(ctx context.Context, reader client.Reader) error {
	owner := deploymentOf(s.set)
	if owner == nil || !slices.ContainsFunc(s.counted(), rolloutrules.IsMarked) {
		return nil
	}
	deployment := &clusterv1.MachineDeployment{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: s.set.Namespace, Name: owner.Name}, deployment)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read MachineDeployment %s: %w", owner.Name, err)
	case deployment.UID == owner.UID:
		s.deployment = deployment
	}
	return nil
}

// deploymentOf returns the reference to the MachineDeployment that controls a set; nil if there is none.
func deploymentOf(set *clusterv1.MachineSet) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(set)
	if owner == nil || owner.Kind != "MachineDeployment" {
		return nil
	}
	return owner
}

// isOutdated reports whether the rollout replaces the machines of the set anyway, or the deployment is gone.
func (s *snapshot) isOutdated(now time.Time) bool {
	return s.deployment == nil || rolloutrules.IsExpired(s.deployment, s.set, now) ||
		len(rolloutrules.Differences(s.set.Spec.Template.Spec, s.deployment.Spec.Template.Spec)) > 0
}

// remediable returns how many marked machines may be deleted at once, and the reason and message for the others.
// blocked is why no machine can be created, or empty.
func (s *snapshot) remediable(now time.Time, blocked string) (most int, reason, message string) {
	const deferred = clusterv1.MachineSetMachineRemediationDeferredReason
	isOfDeployment := deploymentOf(s.set) != nil
	switch {
	case isOfDeployment && s.isOutdated(now):
		return 0, clusterv1.MachineSetMachineCannotBeRemediatedReason,
			"Machine won't be remediated because it is pending removal due to rollout"
	case blocked != "":
		return 0, deferred, blocked
	case !isOfDeployment || s.deployment.Spec.Remediation.MaxInFlight == nil:
		return math.MaxInt, "", ""
	}
	limit := s.deployment.Spec.Remediation.MaxInFlight
	most, err := intstr.GetScaledValueFromIntOrPercent(limit, int(ptr.Deref(s.deployment.Spec.Replicas, 1)), true)
	if err != nil {
		return 0, deferred, fmt.Sprintf("spec.remediation.maxInFlight of MachineDeployment %s is %s: write a number, "+
			"or a percentage such as 20%%",
			s.deployment.Name, printable.Line(limit.String()))
	}
	return most, deferred, fmt.Sprintf("Waiting because there are already too many remediations in progress "+
		"(spec.remediation.maxInFlight is %s)", limit)
}

// remedies returns the remedies of marked machines whose conditions change or that have to be deleted. Machines that
// are updated in place are remediated as well: an update that does not end is a reason to mark one.
func (s *snapshot) remedies(now time.Time, blocked string) []remedy {
	if s.invalid != "" {
		return nil
	}
	most, reason, message := s.remediable(now, blocked)
	var marked []*clusterv1.Machine
	var found []remedy
	for _, machine := range s.counted() {
		switch {
		case !metav1.IsControlledBy(machine, s.set): // it has to be adopted first
		case machine.DeletionTimestamp != nil:
			if isBeingRemediated(machine) {
				most--
			}
		case isHealed(machine):
			found = append(found, newRemedy(machine, "", ""))
		case rolloutrules.IsMarked(machine):
			marked = append(marked, machine)
		}
	}
	slices.SortFunc(marked, remediatedBefore)
	for i, machine := range marked {
		if i < most {
			found = append(found, newRemedy(machine, clusterv1.MachineSetMachineRemediationMachineDeletingReason,
				"Machine is deleting"))
		} else {
			found = append(found, newRemedy(machine, reason, message))
		}
	}
	return slices.DeleteFunc(found, func(item remedy) bool {
		return !item.isDue && equality.Semantic.DeepEqual(item.machine.Status.Conditions,
			item.changed.Status.Conditions)
	})
}

// remediate deletes marked machines, no more at once than allowed, and sets their conditions. It returns whether it has
// changed machines, so that the snapshot is outdated.
func (r *Reconciler) remediate(ctx context.Context, s *snapshot) (isChanged bool, err error) {
	remedies := s.remedies(r.now(), "")
	if slices.ContainsFunc(remedies, func(item remedy) bool { return item.isDue }) {
		if err = r.preflight(ctx, s); err != nil {
			remedies = s.remedies(r.now(), printable.Line(err.Error()))
		}
	}
	if len(remedies) == 0 {
		return false, err
	}
	if applyErr := applyRemedies(ctx, r.scaler(s), s, remedies); applyErr != nil {
		return true, applyErr
	}
	return true, err
}

// applyRemedies writes the conditions before it deletes: by them remediations are distinguished from other deletions,
// also after a restart in between.
func applyRemedies(ctx context.Context, scaler replicas.Scaler, s *snapshot, remedies []remedy) error {
	_, err := replicas.InParallel(len(remedies), scaler.Requests, func(i int) error {
		return client.IgnoreNotFound(patch.StatusWithLock(ctx, scaler.Client, remedies[i].changed, remedies[i].machine))
	})
	if err != nil {
		return fmt.Errorf("write the condition %s of machines: %w", clusterv1.MachineOwnerRemediatedCondition, err)
	}
	var due []string
	for _, item := range remedies {
		if item.isDue {
			due = append(due, item.machine.Name)
			s.machines[item.machine.Name] = item.changed
		}
	}
	if len(due) == 0 {
		return nil
	}
	return replicas.Remove(ctx, scaler, due, s.machines)
}
