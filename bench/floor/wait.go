package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// rolloutTimeout limits the wait for Deployments.
const rolloutTimeout = 5 * time.Minute

// wait waits until the Deployments among some objects are rolled out, with one watch of all Deployments.
func (l *loop) wait(ctx context.Context, objects []manifest) error {
	left := map[types.NamespacedName]bool{}
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			left[nameOf(object.Unstructured)] = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	all := l.objects.Resource(appsv1.SchemeGroupVersion.WithResource("deployments"))
	from := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return all.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return all.Watch(ctx, options)
		},
	}
	ctx, cancel := context.WithTimeout(ctx, rolloutTimeout)
	defer cancel()
	_, err := watchtools.UntilWithSync(ctx, from, &unstructured.Unstructured{}, nil,
		func(event watch.Event) (bool, error) {
			if object, isObject := event.Object.(*unstructured.Unstructured); isObject && isRolledOut(object) {
				delete(left, nameOf(object))
			}
			return len(left) == 0, nil
		})
	if err != nil {
		return fmt.Errorf("wait for %d Deployments: %w", len(left), err)
	}
	return nil
}

func nameOf(object *unstructured.Unstructured) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// isRolledOut reports whether all pods of a Deployment are updated and available.
func isRolledOut(object *unstructured.Unstructured) bool {
	number := func(fields ...string) int64 {
		found, _, _ := unstructured.NestedInt64(object.Object, fields...)
		return found
	}
	replicas := number("spec", "replicas")
	return number("status", "observedGeneration") >= object.GetGeneration() &&
		number("status", "replicas") == replicas && number("status", "updatedReplicas") == replicas &&
		number("status", "availableReplicas") == replicas
}
