package infra

import (
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// A Watcher starts watches of a controller for kinds that are known only when an object names one. It caches only
// metadata, in a cache of its own: if a kind can't be listed, for lack of permissions, only its watch fails, and the
// process becomes ready nevertheless.
type Watcher struct {
	// Controller gets the requests. It must be set before the controller starts.
	Controller controller.Controller

	cache   cache.Cache
	mu      sync.Mutex
	watched map[schema.GroupVersionKind]bool
}

// MapFunc returns the requests for a change of an object, which has only name, namespace and owner references.
type MapFunc = handler.TypedMapFunc[*metav1.PartialObjectMetadata, reconcile.Request]

// NewWatcher returns a Watcher for a controller of a manager.
func NewWatcher(mgr ctrl.Manager) (*Watcher, error) {
	own, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: trimMetadata,
	})
	if err == nil {
		err = mgr.Add(own)
	}
	if err != nil {
		return nil, fmt.Errorf("connect for watches of infrastructure: %w", err)
	}
	return &Watcher{cache: own, watched: map[schema.GroupVersionKind]bool{}}, nil
}

// Watch starts the watch of a kind unless it was started. It does not wait for the first list. Existing objects are
// reported as created.
func (w *Watcher) Watch(kind schema.GroupVersionKind, requests MapFunc,
	only ...predicate.TypedPredicate[*metav1.PartialObjectMetadata]) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watched[kind] {
		return nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	if err := w.Controller.Watch(
		source.Kind(w.cache, object, handler.TypedEnqueueRequestsFromMapFunc(requests), only...),
	); err != nil {
		return fmt.Errorf("watch %s: %w", kind.Kind, err)
	}
	w.watched[kind] = true
	return nil
}

// trimMetadata removes the fields that a MapFunc does not use.
func trimMetadata(object any) (any, error) {
	if object, ok := object.(*metav1.PartialObjectMetadata); ok {
		object.ManagedFields, object.Labels, object.Annotations = nil, nil, nil
	}
	return object, nil
}
