package hook

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
)

// look gathers the facts for the next action of a stage.
func (r *runner) look(ctx context.Context, stage deploymenthook.Stage) (deploymenthook.RolloutFacts, error) {
	seen := deploymenthook.RolloutFacts{
		Now: r.Cluster.Now(), IsOverruled: r.isOverruled.Load(), IsChanged: r.isChanged, LastState: r.lastState, Refused: r.refused,
	}
	live, err := r.Cluster.Client.AppsV1().Deployments(r.id.Namespace).Get(ctx, r.id.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		seen.Live = live
	case !apierrors.IsNotFound(err):
		return seen, err
	}
	if seen.State, err = r.state(seen.Live); err != nil {
		return seen, err
	}
	if seen.Pods, err = r.workload.pods(ctx, r.hookPods()); err != nil || seen.Live == nil {
		return seen, err
	}
	if stage == deploymenthook.Mid && seen.Live.Spec.Replicas != nil && *seen.Live.Spec.Replicas == 0 {
		seen.OldPods, err = r.workload.oldPods(ctx, live)
	}
	if stage == deploymenthook.Post {
		seen.ReplicaSet, err = r.workload.newReplicaSet(ctx, live)
	}
	return seen, err
}

// state returns the state of the hooks. If the Deployment and the record differ, the Deployment's counts, and is recorded.
func (r *runner) state(live *appsv1.Deployment) (deploymenthook.State, error) {
	recorded, _ := r.stateOf(r.id)
	if live == nil {
		return recorded, nil
	}
	state, exists := deploymenthook.ReadState(live)
	if !exists {
		return recorded, nil
	}
	if state.Text() != recorded.Text() { // the process that wrote it was killed, or the record was lost
		return state, r.saveState(r.id, state)
	}
	return state, nil
}

// hookPods selects the pods of the Deployment's hooks.
func (r *runner) hookPods() string {
	return deploymenthook.DeploymentLabel + "=" + deploymenthook.LabelOf(r.id.Name)
}
