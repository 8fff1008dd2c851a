package hook

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// revisionAnnotation has the number of a rollout, on a Deployment and on its ReplicaSets.
const revisionAnnotation = "deployment.kubernetes.io/revision"

// A workload reads the ReplicaSets and pods of Deployments in a namespace.
type workload struct {
	client    kubernetes.Interface
	namespace string
}

func (w workload) pods(ctx context.Context, selector string) ([]*corev1.Pod, error) {
	list, err := w.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
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
func (w workload) replicaSets(ctx context.Context, of *appsv1.Deployment) ([]appsv1.ReplicaSet, error) {
	list, err := w.client.AppsV1().ReplicaSets(of.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(of.Spec.Selector)})
	if err != nil {
		return nil, err
	}
	var owned []appsv1.ReplicaSet
	for _, replicaSet := range list.Items {
		if metav1.IsControlledBy(&replicaSet, of) {
			owned = append(owned, replicaSet)
		}
	}
	return owned, nil
}

// newReplicaSet returns the ReplicaSet of a Deployment's present template; nil if it does not exist yet.
func (w workload) newReplicaSet(ctx context.Context, of *appsv1.Deployment) (*appsv1.ReplicaSet, error) {
	owned, err := w.replicaSets(ctx, of)
	if err != nil {
		return nil, err
	}
	for _, replicaSet := range owned {
		if revision := replicaSet.Annotations[revisionAnnotation]; revision != "" && revision == of.Annotations[revisionAnnotation] {
			return &replicaSet, nil
		}
	}
	return nil, nil
}

// oldPods returns the names of a Deployment's pods that may still run.
func (w workload) oldPods(ctx context.Context, of *appsv1.Deployment) ([]string, error) {
	owned, err := w.replicaSets(ctx, of)
	if err != nil {
		return nil, err
	}
	pods, err := w.pods(ctx, metav1.FormatLabelSelector(of.Spec.Selector))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, replicaSet := range owned {
		if replicaSet.Status.Replicas > 0 || replicaSet.Spec.Replicas != nil && *replicaSet.Spec.Replicas > 0 { // it may be creating a pod
			names = append(names, "those of ReplicaSet "+replicaSet.Name)
		}
		for _, pod := range pods {
			if metav1.IsControlledBy(pod, &replicaSet) && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				names = append(names, pod.Name)
			}
		}
	}
	return names, nil
}
