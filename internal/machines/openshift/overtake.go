package openshift

import (
	"context"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// overtakes returns the function by which the queue decides whether the machine of a request goes before others. It reads the
// cache. ctx ends the wait for a cache that is not filled yet.
func (r *MachineReconciler) overtakes(ctx context.Context) func(ctrl.Request) bool {
	return func(request ctrl.Request) bool {
		m := &machinev1beta1.Machine{}
		return r.client.Get(ctx, request.NamespacedName, m) == nil && !m.DeletionTimestamp.IsZero() && isEnding(m)
	}
}

// isEnding reports whether no hook and no pod holds a machine that is being deleted, or its last pre-drain hook was just
// removed, so that the condition still reports it. A machine does not overtake while its node is drained: checking the same
// pods again must not delay the drains of other nodes.
func isEnding(m *machinev1beta1.Machine) bool {
	stage, _ := deletion.StageOpenShift(m)
	isHeld := conditions.Find(m.Status.Conditions, machinev1beta1.MachineDrainable).Reason == machinev1beta1.MachineHookPresent
	return stage == deletion.Terminating || stage == deletion.Draining && isHeld
}
