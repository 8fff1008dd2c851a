package hook

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
)

// Abandon ends rollouts that an earlier version has begun, of Deployments that the release no longer has.
func (s Settings) Abandon(isKept func(kinds.ID) bool) {
	var all []record.DeploymentHooks
	s.Journal.Read(func(known *record.Record) { all = slices.Clone(known.Hooks) })
	for _, hooks := range all {
		if isKept(hooks.ID) {
			continue
		}
		var err error
		if hooks.Rollout != "" {
			err = s.newRunner(hooks.ID, nil, deploymenthook.Rollout{}).abandon(s.Requests, hooks.Replicas)
		}
		if err == nil { // its hooks start anew if it comes back
			err = s.saveState(hooks.ID, deploymenthook.State{})
		}
		if err != nil {
			klog.FromContext(s.Requests).Error(err, "the hooks of a Deployment that the release has no more could not be ended", "object", hooks.ID.String())
		}
	}
}

// abandon deletes the unfinished pods of the Deployment's hooks, and restores the replicas of a Deployment that was scaled
// to 0 for its mid hook.
func (r *runner) abandon(ctx context.Context, replicas *int32) error {
	live, err := r.Cluster.Client.AppsV1().Deployments(r.id.Namespace).Get(ctx, r.id.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // the garbage collector deletes its pods
	}
	if err != nil {
		return err
	}
	if owner, isOthers := live.Labels[objectmeta.ReleaseLabel]; isOthers && owner != r.Release {
		return nil
	}
	pods, err := r.workload.pods(ctx, r.hookPods())
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if deploymenthook.HasEnded(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		if err := r.delete(ctx, pod); err != nil {
			return err
		}
	}
	back := deploymenthook.HookAction{State: &deploymenthook.State{}}
	if live.Spec.Replicas != nil && *live.Spec.Replicas == 0 {
		back.Replicas = replicas
	}
	return r.patchState(ctx, live, back)
}
