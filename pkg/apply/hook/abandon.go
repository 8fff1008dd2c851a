package hook

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/lifecycle"
	"github.com/runlevel/runlevel/pkg/objectmeta"
	"github.com/runlevel/runlevel/pkg/record"
)

// Abandon ends a rollout of a Deployment that the release has no more: pods of its hooks that have not ended are
// deleted, and a Deployment that was scaled to 0 for its mid hook is scaled back.
func Abandon(ctx context.Context, c *cluster.Cluster, release string, of record.DeploymentHooks) error {
	id, r := of.ID, New(of.ID, c, lifecycle.Rollout{}, Options{})
	live, err := c.Client.AppsV1().Deployments(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // its pods go with it
	}
	if err != nil {
		return err
	}
	if owner, isOthers := live.Labels[objectmeta.ReleaseLabel]; isOthers && owner != release {
		return nil
	}
	pods, err := r.workload.pods(ctx, r.hookPods())
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if lifecycle.HasEnded(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		if err := r.delete(ctx, pod); err != nil {
			return err
		}
	}
	back := lifecycle.HookAction{State: &lifecycle.State{}}
	if live.Spec.Replicas != nil && *live.Spec.Replicas == 0 {
		back.Replicas = of.Replicas
	}
	return r.patchState(ctx, live, back)
}
