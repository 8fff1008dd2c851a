// Package objectwatch waits until one object of a cluster has reached a state.
//
// It watches no more than that object, and decides nothing: the caller judges each state.
//
// Start with Await.
package objectwatch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Await watches an object until wanted returns true, and returns the object. Wanted
// is called with each state of the object that the watch returns, and with nil if it
// does not exist. If ctx ends first, the last state is returned with the error.
func Await(ctx context.Context, resource dynamic.ResourceInterface, name string,
	wanted func(*unstructured.Unstructured) bool,
) (*unstructured.Unstructured, error) {
	var last *unstructured.Unstructured
	absent := func(store cache.Store) (bool, error) {
		return len(store.List()) == 0 && wanted(nil), nil
	}
	_, err := watchtools.UntilWithSync(ctx, watchOne(resource, name), &unstructured.Unstructured{}, absent,
		func(event watch.Event) (bool, error) {
			last = nil
			if event.Type != watch.Deleted {
				last, _ = event.Object.(*unstructured.Unstructured)
			}
			return wanted(last), nil
		})
	if err != nil {
		return last, fmt.Errorf("wait for %s: %w", name, CauseOf(ctx, err))
	}
	return last, nil
}

// CauseOf returns the cause of a wait that ended with err: that of ctx, if ctx has
// ended, since not all waits return it. Every cancellation is reported as
// context.Canceled.
func CauseOf(ctx context.Context, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Canceled
	default:
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
}

// HasCondition returns a condition for Await: a condition of the object's status is
// true.
func HasCondition(name string) func(*unstructured.Unstructured) bool {
	return func(object *unstructured.Unstructured) bool {
		if object == nil {
			return false
		}
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(condition any) bool {
			fields, _ := condition.(map[string]any)
			return fields["type"] == name && fields["status"] == "True"
		})
	}
}

func watchOne(resource dynamic.ResourceInterface, name string) *cache.ListWatch {
	byName := fields.OneTermEqualSelector("metadata.name", name).String()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = byName
			return resource.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = byName
			return resource.Watch(ctx, options)
		},
	}
}
