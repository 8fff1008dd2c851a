package infra

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/pkg/resourcewatch"
)

// longestPause is the longest pause before a watch is tried again. A definition that was deleted may come back.
const longestPause = 30 * time.Second

// A Watcher is a source of requests: a change of an infrastructure object is a request for its machine. Which kinds there
// are is known only when a machine names one, so the watch of a kind begins then. Of each object it remembers its version
// and its machine alone.
type Watcher struct {
	client    metadata.Interface
	machineOf MachineOf

	mu       sync.Mutex
	watched  map[schema.GroupVersionResource]bool
	begin    func(schema.GroupVersionResource) // nil until the controller starts
	awaiting []schema.GroupVersionResource     // kinds that were named before
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// MachineOf returns the name of the machine that an object is the infrastructure of, or an empty one if there is none. Of the
// object it has name, namespace and owner references.
type MachineOf func(object *metav1.PartialObjectMetadata) types.NamespacedName

// sameName is the MachineOf of machines whose infrastructure has their name.
func sameName(object *metav1.PartialObjectMetadata) types.NamespacedName {
	return types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
}

// NewWatcher returns a Watcher, which is to be among the sources of the controller of machines.
func NewWatcher(mgr ctrl.Manager, machineOf MachineOf) (*Watcher, error) {
	connected, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("connect for watches of infrastructure: %w", err)
	}
	return &Watcher{client: connected, machineOf: machineOf, watched: map[schema.GroupVersionResource]bool{}}, nil
}

// Start is called by the controller that has the Watcher among its sources.
func (w *Watcher) Start(ctx context.Context, queue requestQueue) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin = func(resource schema.GroupVersionResource) { go w.run(ctx, resource, queue) }
	for _, resource := range w.awaiting {
		w.begin(resource)
	}
	w.awaiting = nil
	return nil
}

// Watch begins the watch of a resource unless it has begun. It does not wait for it.
func (w *Watcher) Watch(resource schema.GroupVersionResource) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watched[resource] {
		return
	}
	w.watched[resource] = true
	if w.begin == nil {
		w.awaiting = append(w.awaiting, resource)
		return
	}
	w.begin(resource)
}

// run watches a resource until the controller ends.
func (w *Watcher) run(ctx context.Context, resource schema.GroupVersionResource, queue requestQueue) {
	objects := w.client.Resource(resource)
	from := resourcewatch.ListerWatcher[*metav1.PartialObjectMetadataList]{
		Client: w.client,
		List: func(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
			return objects.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return objects.Watch(ctx, o) },
		Trim:  trimMetadata,
	}
	changes := &machineRequests{queue: queue, machineOf: w.machineOf, seen: map[types.NamespacedName]seenObject{}}
	resourcewatch.Run(ctx, from, changes, longestPause, func(err error) {
		log.FromContext(ctx).Info("The watch of infrastructure has ended, and begins again", "resource", resource, "reason", err)
	})
}

// trimMetadata removes what requests are not made of.
func trimMetadata(object any) {
	if object, ok := object.(*metav1.PartialObjectMetadata); ok {
		object.ManagedFields, object.Labels, object.Annotations = nil, nil, nil
	}
}

// machineRequests are the requests that the changes of one resource make.
type machineRequests struct {
	queue     requestQueue
	machineOf MachineOf
	seen      map[types.NamespacedName]seenObject
}

// A seenObject is what is remembered of an object.
type seenObject struct {
	version string
	machine types.NamespacedName
}

// OnChange implements resourcewatch.EventHandler.
func (r *machineRequests) OnChange(object *metav1.PartialObjectMetadata, exists bool) {
	key := sameName(object)
	now, before := seenObject{object.ResourceVersion, r.machineOf(object)}, r.seen[key]
	if exists {
		r.seen[key] = now
	} else {
		delete(r.seen, key)
	}
	r.request(now.machine)
	if before.machine != now.machine {
		r.request(before.machine)
	}
}

// OnList implements resourcewatch.EventHandler. A list that comes after a watch has ended shows what went meanwhile
// by not having it.
func (r *machineRequests) OnList(objects []*metav1.PartialObjectMetadata, _ string) {
	before := r.seen
	r.seen = make(map[types.NamespacedName]seenObject, len(objects))
	for _, object := range objects {
		key := sameName(object)
		r.seen[key] = seenObject{object.ResourceVersion, r.machineOf(object)}
		if before[key].version != object.ResourceVersion {
			r.request(r.seen[key].machine)
		}
		delete(before, key)
	}
	for _, gone := range before {
		r.request(gone.machine)
	}
}

// request asks for a machine, if there is one.
func (r *machineRequests) request(machine types.NamespacedName) {
	if machine.Name != "" {
		r.queue.Add(reconcile.Request{NamespacedName: machine})
	}
}
