package hook

import (
	"context"
	"slices"

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
// to 0 for its mid hook. If the Deployment is gone, the garbage collector deletes its pods.
func (r *runner) abandon(ctx context.Context, replicas *int32) error {
	live, err := r.observer.deployment(ctx)
	if err != nil || live == nil {
		return err
	}
	if owner, isOthers := live.Labels[objectmeta.ReleaseLabel]; isOthers && owner != r.Release {
		return nil
	}
	pods, err := r.observer.pods(ctx, r.observer.hookPods())
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
	replicas, state := deploymenthook.State{Replicas: replicas}.Restore(live)
	return r.patchState(ctx, live, deploymenthook.HookAction{State: state, Replicas: replicas})
}
