package capi

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// overtakes returns the function by which the queue decides whether the Machine of a request goes before others. It reads the
// cache. ctx ends the wait for a cache that is not filled yet.
func (r *ClusterAPIReconciler) overtakes(ctx context.Context) func(ctrl.Request) bool {
	return func(request ctrl.Request) bool {
		m := &clusterv1.Machine{}
		return r.client.Get(ctx, request.NamespacedName, m) == nil && !m.DeletionTimestamp.IsZero() && isEnding(m)
	}
}

// isEnding reports whether no hook, pod or volume holds a Machine that is being deleted, or the last hook that its
// condition lists was just removed. A Machine does not overtake while its Node is drained: checking the same pods again
// must not delay the drains of other Nodes.
func isEnding(m *clusterv1.Machine) bool {
	switch deletion.StageClusterAPI(m) {
	case deletion.BeforeDrain:
		return len(deletion.HooksClusterAPI(m, clusterv1.PreDrainDeleteHookAnnotationPrefix)) == 0
	case deletion.BeforeTerminate:
		return len(deletion.HooksClusterAPI(m, clusterv1.PreTerminateDeleteHookAnnotationPrefix)) == 0
	case deletion.Terminating, deletion.RemovingConfig, deletion.RemovingNode, deletion.Completed:
		return true
	}
	return false
}
