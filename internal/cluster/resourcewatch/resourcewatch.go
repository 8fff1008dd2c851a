// Package resourcewatch lists and watches the objects of a resource until its context ends. It begins again
// when a watch ends, is too old, or is refused, without listing all objects again where client-go's reflector
// can avoid that.
//
// It keeps no objects: they are handed to an EventHandler.
//
// Run is the call to start from.
package resourcewatch

import (
	"context"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// A WatchedObject is an object of a client that can watch.
type WatchedObject interface {
	runtime.Object
	metav1.Object
}

// An EventHandler is called with what a watch sees.
type EventHandler[T WatchedObject] interface {
	// OnChange is called with an object that exists, or with the last known state of one that left the watch.
	OnChange(object T, exists bool)
	// OnList is called with all objects that there are at a version of the resource.
	OnList(objects []T, version string)
}

// IsOlder compares versions of a resource, since a watch may begin with the past. Servers that
// don't count them tell nothing.
func IsOlder(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// A ListerWatcher lists and watches the objects of a resource, as the clients of package cluster do.
type ListerWatcher[L runtime.Object] struct {
	List  func(context.Context, metav1.ListOptions) (L, error)
	Watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	// Client is the client of both functions: client-go asks it whether a list may come through a watch.
	Client any
	// Labels and Fields select objects.
	Labels, Fields string
	// Trim removes unneeded fields from an object before client-go holds it until a list is complete. It may be
	// nil.
	Trim func(object any)
}

// Run watches until ctx ends. Each failure of the watch is passed to broke; the watch begins again after
// growing pauses up to the longest.
func Run[T WatchedObject, L runtime.Object](ctx context.Context, from ListerWatcher[L], to EventHandler[T], longest time.Duration, broke func(error)) {
	silent := klog.New(nil) // what matters of what client-go has to say, is told
	ctx = klog.NewContext(ctx, silent)
	pause := again(longest)
	kind := reflect.New(reflect.TypeFor[T]().Elem()).Interface()
	reflector := cache.NewReflectorWithOptions(from.listerWatcher(), kind, store[T]{to, from.Trim}, cache.ReflectorOptions{Backoff: &pause, Logger: &silent})
	for pauses := again(longest); ctx.Err() == nil; {
		began := time.Now()
		err := reflector.ListAndWatchWithContext(ctx)
		if ctx.Err() == nil {
			broke(err)
		}
		if time.Since(began) > calm {
			pauses = again(longest)
		}
		select {
		case <-time.After(pauses.Step()):
		case <-ctx.Done():
		}
	}
}

// again returns the pauses before a watch that broke begins again. They start short, since a restarted server
// is to be noticed soon, and client-go can't be made to end before a pause does.
func again(longest time.Duration) wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 20, Cap: longest}
}

// calm is how long a watch must have lasted for its pauses to start short again.
const calm = 10 * time.Second

// listerWatcher returns the same for client-go, with the selectors.
func (s ListerWatcher[L]) listerWatcher() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector, options.FieldSelector = s.Labels, s.Fields
			return s.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector, options.FieldSelector = s.Labels, s.Fields
			return s.Watch(ctx, options)
		},
	}, s.Client)
}

// A store is passed to client-go in the place of a cache, and keeps no objects.
type store[T WatchedObject] struct {
	sink EventHandler[T]
	trim func(any)
}

func (s store[T]) Add(object any) error    { return s.pass(object, true) }
func (s store[T]) Update(object any) error { return s.pass(object, true) }
func (s store[T]) Delete(object any) error { return s.pass(object, false) }

// Resync is never asked for.
func (s store[T]) Resync() error { return nil }

// Replace passes on a list.
func (s store[T]) Replace(list []any, version string) error {
	objects := make([]T, 0, len(list))
	for _, item := range list {
		if object, ok := item.(T); ok {
			objects = append(objects, object)
		}
	}
	s.sink.OnList(objects, version)
	return nil
}

// Transformer is for what client-go holds until a list is complete.
func (s store[T]) Transformer() cache.TransformFunc {
	if s.trim == nil {
		return nil
	}
	return func(object any) (any, error) {
		s.trim(object)
		return object, nil
	}
}

func (s store[T]) pass(object any, exists bool) error {
	if object, ok := object.(T); ok {
		s.sink.OnChange(object, exists)
	}
	return nil
}
