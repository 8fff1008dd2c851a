package machinedeployment

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/aggregate"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/patch"
)

// judge sets the condition UpToDate of each machine, in the snapshot too, from which the status of the deployment is
// computed. A machine that changes meanwhile triggers another pass.
func (r *Reconciler) judge(ctx context.Context, s *snapshot) error {
	if s.invalid != "" {
		return nil
	}
	for _, set := range s.sets {
		for i, machine := range s.machines[set.UID] {
			judged := machine.DeepCopy()
			meta.SetStatusCondition(&judged.Status.Conditions, aggregate.UpToDate(machine, s.missing(set)))
			if equality.Semantic.DeepEqual(machine.Status.Conditions, judged.Status.Conditions) {
				continue
			}
			s.machines[set.UID][i] = judged
			err := patch.StatusWithLock(ctx, r.cached, judged, machine)
			if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				return fmt.Errorf("write the status of Machine %s: %w", machine.Name, err)
			}
		}
	}
	return nil
}

// missing returns why the machines of a set are not up to date; empty if its template is the deployment's.
func (s *snapshot) missing(set *clusterv1.MachineSet) []string {
	missing := rolloutrules.Differences(set.Spec.Template.Spec, s.deployment.Spec.Template.Spec)
	if rolloutrules.IsExpired(s.deployment, set, s.time) {
		missing = append(missing, "MachineDeployment spec.rolloutAfter expired")
	}
	return missing
}
