package machineset

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/owners"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/replicas"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// isBeingRemediated reports whether a machine is being deleted because it was marked.
func isBeingRemediated(m *clusterv1.Machine) bool {
	condition := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	return condition != nil && condition.Status == metav1.ConditionFalse &&
		condition.Reason == owners.RemediationDeleting
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

// isOutdated reports whether the rollout replaces the machines of the set, or the deployment does not exist.
func (s *snapshot) isOutdated() bool {
	return s.deployment == nil || rolloutrules.IsExpired(s.deployment, s.set, s.now) ||
		len(rolloutrules.Differences(s.set.Spec.Template.Spec, s.deployment.Spec.Template.Spec)) > 0
}

// remediable returns how many marked machines may be deleted at once, and the reason and message for the others.
// blocked is the reason why no machine can be created; empty if there is none.
func (s *snapshot) remediable(blocked string) (most int, reason, message string) {
	isOfDeployment := deploymentOf(s.set) != nil
	switch {
	case isOfDeployment && s.isOutdated():
		return 0, owners.RemediationRefused,
			"Machine won't be remediated because it is pending removal due to rollout"
	case blocked != "":
		return 0, owners.RemediationDeferred, blocked
	case !isOfDeployment || s.deployment.Spec.Remediation.MaxInFlight == nil:
		return math.MaxInt, "", ""
	}
	limit := s.deployment.Spec.Remediation.MaxInFlight
	most, err := intstr.GetScaledValueFromIntOrPercent(limit, int(ptr.Deref(s.deployment.Spec.Replicas, 1)), true)
	if err != nil {
		return 0, owners.RemediationDeferred,
			fmt.Sprintf("spec.remediation.maxInFlight of MachineDeployment %s is %s: write a number, "+
				"or a percentage such as 20%%",
				s.deployment.Name, printable.Line(limit.String()))
	}
	return most, owners.RemediationDeferred,
		fmt.Sprintf("Waiting because there are already too many remediations in progress "+
			"(spec.remediation.maxInFlight is %s)", limit)
}

// remedies returns the remedies of marked machines whose conditions change or that must be deleted. It includes
// machines during an update in place, because an update that does not end is a reason to mark a machine. Of the
// machines without an annotation, the newest are deleted first, because they are the least likely to run workloads.
func (s *snapshot) remedies(blocked string) []owners.Remedy {
	if s.invalid != "" {
		return nil
	}
	most, reason, message := s.remediable(blocked)
	var marked []*clusterv1.Machine
	var found []owners.Remedy
	for _, machine := range s.counted() {
		switch {
		case !metav1.IsControlledBy(machine, s.set): // it has to be adopted first
		case machine.DeletionTimestamp != nil:
			if isBeingRemediated(machine) {
				most--
			}
		case owners.IsRecovered(machine):
			found = append(found, owners.NewRemedy(machine, "", ""))
		case rolloutrules.IsMarked(machine):
			marked = append(marked, machine)
		}
	}
	rank := func(m *clusterv1.Machine) int {
		if metav1.HasAnnotation(m.ObjectMeta, clusterv1.RemediateMachineAnnotation) {
			return 0
		}
		return 1
	}
	slices.SortFunc(marked, func(a, b *clusterv1.Machine) int {
		return cmp.Or(rank(a)-rank(b), b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			strings.Compare(a.Name, b.Name))
	})
	for i, machine := range marked {
		if i < most {
			found = append(found, owners.NewRemedy(machine, owners.RemediationDeleting, "Machine is deleting"))
		} else {
			found = append(found, owners.NewRemedy(machine, reason, message))
		}
	}
	return slices.DeleteFunc(found, owners.Remedy.IsEmpty)
}

// remediate deletes marked machines, no more at once than allowed, and sets their conditions. It returns whether it has
// changed machines, so that the snapshot is outdated.
func (r *Reconciler) remediate(ctx context.Context, s *snapshot) (isChanged bool, err error) {
	remedies := s.remedies("")
	if slices.ContainsFunc(remedies, func(item owners.Remedy) bool { return item.IsDue }) {
		if err = r.preflight(ctx, s); err != nil {
			remedies = s.remedies(printable.Line(err.Error()))
		}
	}
	if len(remedies) == 0 {
		return false, err
	}
	if applyErr := r.applyRemedies(ctx, s, remedies); applyErr != nil {
		return true, applyErr
	}
	return true, err
}

// applyRemedies writes the conditions of the machines, and then deletes those that are due.
func (r *Reconciler) applyRemedies(ctx context.Context, s *snapshot, remedies []owners.Remedy) error {
	_, err := replicas.InParallel(len(remedies), requests, func(i int) error {
		return remedies[i].WriteCondition(ctx, r.Client)
	})
	if err != nil {
		return err
	}
	var due []string
	for _, remedy := range remedies {
		if remedy.IsDue {
			due = append(due, remedy.Machine.Name)
			s.machines[remedy.Machine.Name] = remedy.Changed
		}
	}
	return replicas.Remove(ctx, r.scaler(s), due, s.machines)
}
