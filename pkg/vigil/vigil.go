// Package vigil is a watch that goes on: it lists the objects of a resource, follows what
// becomes of them, and begins again when the watch ends, is too old, or is refused, without
// asking for all objects again where that can be helped.
//
// It keeps no objects: a Sink is told what is seen, and makes of it what it likes.
//
// Keep is the call to start from.
package vigil

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

// An Object is one that can be watched.
type Object interface {
	runtime.Object
	metav1.Object
}

// A Sink is told what a watch sees.
type Sink[T Object] interface {
	// Seen is told of an object, or how one was when it went out of sight.
	Seen(object T, exists bool)
	// Listed is told all that there is, by a version of the resource.
	Listed(objects []T, version string)
}

// IsOlder compares versions of a resource, since a watch may begin with the past. Servers that
// don't count them tell nothing.
func IsOlder(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// A Source is where objects come from. Both clients of package cluster have such functions.
type Source[L runtime.Object] struct {
	List  func(context.Context, metav1.ListOptions) (L, error)
	Watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	// Client is who they are of: it says whether a list may come through a watch.
	Client any
	// Labels and Fields select objects.
	Labels, Fields string
	// Trim takes what nobody needs off an object, before it is held for as long as a list
	// is not complete. It may be nil.
	Trim func(object any)
}

// Keep watches until ctx ends. What a watch fails of is told to broke, each time; it is
// tried again, after longer and longer pauses up to the longest.
func Keep[T Object, L runtime.Object](ctx context.Context, from Source[L], to Sink[T], longest time.Duration, broke func(error)) {
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

// again is how fast a watch that broke is begun again: a server that was restarted is to be
// noticed soon. Nor can client-go be made to end before such a pause does.
func again(longest time.Duration) wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 20, Cap: longest}
}

// calm is how long a watch must have gone on to be begun again fast.
const calm = 10 * time.Second

// listerWatcher is what client-go calls a source.
func (s Source[L]) listerWatcher() cache.ListerWatcher {
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

// A store is what client-go keeps objects in, and keeps none.
type store[T Object] struct {
	sink Sink[T]
	trim func(any)
}

// Add, Update and Delete are told of each change, Replace of all that is there.

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
	s.sink.Listed(objects, version)
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
		s.sink.Seen(object, exists)
	}
	return nil
}
