// Package resourcewatch lists and watches the objects of a resource until its context ends. It restarts
// when a watch ends, is too old, or is refused, without listing all objects again where client-go's reflector
// can avoid that.
//
// It keeps no objects: they are passed to an EventHandler.
//
// Start with Run.
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

// An EventHandler is called with the results of lists and the events of watches.
type EventHandler[T WatchedObject] interface {
	// OnChange is called with an object that exists, or with the last known state of one that left the watch.
	OnChange(object T, exists bool)
	// OnList is called with all objects that exist at a version of the resource.
	OnList(objects []T, version string)
}

// IsOlder compares versions of a resource, since a watch may begin with past events. It returns false for
// servers whose versions are not numbers.
func IsOlder(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// A ListerWatcher lists and watches the objects of a resource, as the clients of package cluster do.
type ListerWatcher[L runtime.Object] struct {
	List  func(context.Context, metav1.ListOptions) (L, error)
	Watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	// Client is the client of both functions: client-go checks with it whether a list may come through a watch.
	Client any
	// Labels and Fields select objects.
	Labels, Fields string
	// Trim removes unneeded fields from an object before client-go holds it until a list is complete. It may be
	// nil.
	Trim func(object any)
}

// Run watches until ctx ends. Each failure of the watch is passed to onError; the watch restarts after
// growing pauses up to the longest.
func Run[T WatchedObject, L runtime.Object](ctx context.Context, from ListerWatcher[L], eventHandler EventHandler[T],
	longest time.Duration, onError func(error)) {
	logger := klog.New(nil) // discards: errors are passed to onError
	ctx = klog.NewContext(ctx, logger)
	pause := newBackoff(longest)
	kind := reflect.New(reflect.TypeFor[T]().Elem()).Interface()
	reflector := cache.NewReflectorWithOptions(from.listerWatcher(), kind, store[T]{eventHandler, from.Trim},
		cache.ReflectorOptions{Backoff: &pause, Logger: &logger})
	for pauses := newBackoff(longest); ctx.Err() == nil; {
		started := time.Now()
		err := reflector.ListAndWatchWithContext(ctx)
		if ctx.Err() == nil {
			onError(err)
		}
		if time.Since(started) > stableAfter {
			pauses = newBackoff(longest)
		}
		select {
		case <-time.After(pauses.Step()):
		case <-ctx.Done():
		}
	}
}

// newBackoff returns the pauses before a failed watch restarts. The first pauses are short: a watch must soon notice a
// restarted server, and client-go can't be interrupted in a pause.
func newBackoff(longest time.Duration) wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 20, Cap: longest}
}

// stableAfter is the duration of a watch after which its pauses are short again.
const stableAfter = 10 * time.Second

// listerWatcher returns client-go's ListerWatcher, with the selectors.
func (l ListerWatcher[L]) listerWatcher() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector, options.FieldSelector = l.Labels, l.Fields
			return l.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector, options.FieldSelector = l.Labels, l.Fields
			return l.Watch(ctx, options)
		},
	}, l.Client)
}

// A store is passed to client-go instead of a cache, and keeps no objects.
type store[T WatchedObject] struct {
	handler EventHandler[T]
	trim    func(any)
}

func (s store[T]) Add(object any) error    { return s.pass(object, true) }
func (s store[T]) Update(object any) error { return s.pass(object, true) }
func (s store[T]) Delete(object any) error { return s.pass(object, false) }

// Resync is never requested.
func (s store[T]) Resync() error { return nil }

// Replace passes a list to the handler.
func (s store[T]) Replace(list []any, version string) error {
	objects := make([]T, 0, len(list))
	for _, item := range list {
		if object, ok := item.(T); ok {
			objects = append(objects, object)
		}
	}
	s.handler.OnList(objects, version)
	return nil
}

// Transformer trims the objects that client-go holds until a list is complete.
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
		s.handler.OnChange(object, exists)
	}
	return nil
}
