package hook

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// revisionAnnotation contains the number of a rollout, on a Deployment and on its ReplicaSets.
const revisionAnnotation = "deployment.kubernetes.io/revision"

// An observer reads a Deployment, its ReplicaSets and pods, and the pods of its hooks.
type observer struct {
	client kubernetes.Interface
	id     kinds.ID
}

// deployment returns the live Deployment; nil if it does not exist.
func (o observer) deployment(ctx context.Context) (*appsv1.Deployment, error) {
	live, err := o.client.AppsV1().Deployments(o.id.Namespace).Get(ctx, o.id.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

// hookPods selects the pods of the Deployment's hooks.
func (o observer) hookPods() string {
	return deploymenthook.DeploymentLabel + "=" + deploymenthook.LabelOf(o.id.Name)
}

func (o observer) pods(ctx context.Context, selector string) ([]*corev1.Pod, error) {
	list, err := o.client.CoreV1().Pods(o.id.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// replicaSets lists the ReplicaSets of a Deployment.
func (o observer) replicaSets(ctx context.Context, deployment *appsv1.Deployment) ([]appsv1.ReplicaSet, error) {
	list, err := o.client.AppsV1().ReplicaSets(deployment.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(deployment.Spec.Selector)})
	if err != nil {
		return nil, err
	}
	var owned []appsv1.ReplicaSet
	for _, replicaSet := range list.Items {
		if metav1.IsControlledBy(&replicaSet, deployment) {
			owned = append(owned, replicaSet)
		}
	}
	return owned, nil
}

// newReplicaSet returns the ReplicaSet of a Deployment's present template; nil if it does not exist yet.
func (o observer) newReplicaSet(ctx context.Context, deployment *appsv1.Deployment) (*appsv1.ReplicaSet, error) {
	owned, err := o.replicaSets(ctx, deployment)
	for _, replicaSet := range owned {
		if revision := replicaSet.Annotations[revisionAnnotation]; revision != "" &&
			revision == deployment.Annotations[revisionAnnotation] {
			return &replicaSet, nil
		}
	}
	return nil, err
}

// oldPods returns the names of a Deployment's pods that may still run.
func (o observer) oldPods(ctx context.Context, deployment *appsv1.Deployment) ([]string, error) {
	owned, err := o.replicaSets(ctx, deployment)
	if err != nil {
		return nil, err
	}
	pods, err := o.pods(ctx, metav1.FormatLabelSelector(deployment.Spec.Selector))
	var names []string
	for _, replicaSet := range owned {
		// it may be creating a pod
		if replicaSet.Status.Replicas > 0 || replicaSet.Spec.Replicas != nil && *replicaSet.Spec.Replicas > 0 {
			names = append(names, "those of ReplicaSet "+replicaSet.Name)
		}
		for _, pod := range pods {
			if metav1.IsControlledBy(pod, &replicaSet) && pod.Status.Phase != corev1.PodSucceeded &&
				pod.Status.Phase != corev1.PodFailed {
				names = append(names, pod.Name)
			}
		}
	}
	return names, err
}

// look gathers the facts for the next action of a stage.
func (r *runner) look(ctx context.Context, stage deploymenthook.Stage) (deploymenthook.RolloutFacts, error) {
	facts := deploymenthook.RolloutFacts{
		Now: r.Cluster.Now(), IsOverruled: r.isOverruled.Load(), IsChanged: r.isChanged, LastState: r.lastState,
		Refused: r.refused,
	}
	var err error
	if facts.Live, err = r.observer.deployment(ctx); err != nil {
		return facts, err
	}
	if facts.State, err = r.state(facts.Live); err != nil {
		return facts, err
	}
	if facts.Pods, err = r.observer.pods(ctx, r.observer.hookPods()); err != nil || facts.Live == nil {
		return facts, err
	}
	if stage == deploymenthook.Mid && facts.Live.Spec.Replicas != nil && *facts.Live.Spec.Replicas == 0 {
		facts.OldPods, err = r.observer.oldPods(ctx, facts.Live)
	}
	if stage == deploymenthook.Post {
		facts.ReplicaSet, err = r.observer.newReplicaSet(ctx, facts.Live)
	}
	return facts, err
}

// state returns the state of the hooks. If the Deployment and the record differ, the Deployment's counts, and is
// recorded.
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
