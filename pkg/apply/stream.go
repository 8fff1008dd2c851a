package apply

import (
	"context"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/ready"
)

// A streamKey is what one watch is about.
type streamKey struct {
	resource           schema.GroupVersionResource
	namespace          string // "" for all
	labels, fieldsOnly string // selectors
}

// stream watches an object, together with all others of its resource and release. One
// without our label, which was there before and is create-only, has a watch of its own.
func (f *follower) stream(w *watched) {
	key := streamKey{resource: w.resource.GroupVersionResource, labels: inventory.Label + "=" + f.options.Release}
	if w.object != nil && w.object.GetLabels()[inventory.Label] != f.options.Release {
		key = streamKey{resource: key.resource, namespace: w.object.GetNamespace(), fieldsOnly: fields.OneTermEqualSelector("metadata.name", w.object.GetName()).String()}
	} else if f.narrow[w.resource.GroupVersionResource.String()] {
		key.namespace = w.manifest.Object().GetNamespace()
	}
	kind := w.resource.GroupKind()
	f.start(key, func(object *unstructured.Unstructured, exists bool) {
		id := kinds.ID{Group: kind.Group, Kind: kind.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
		f.mu.Lock()
		defer f.mu.Unlock()
		if known := f.objects[id]; known != nil && exists {
			f.see(known, object)
		} else if known != nil && known.object != nil && known.object.GetUID() == object.GetUID() {
			f.see(known, nil)
		}
	})
}

// start begins a watch, unless there is one. What it sees is told to see.
func (f *follower) start(key streamKey, see func(object *unstructured.Unstructured, exists bool)) {
	if f.streams[key] != nil {
		return
	}
	ctx, stop := context.WithCancel(f.ctx)
	f.streams[key] = stop
	informer := dynamicinformer.NewFilteredDynamicInformer(f.cluster.Objects, key.resource, key.namespace, 0, cache.Indexers{},
		func(options *metav1.ListOptions) {
			options.LabelSelector, options.FieldSelector = key.labels, key.fieldsOnly
		}).Informer()
	tell := func(object any, exists bool) {
		if last, isOld := object.(cache.DeletedFinalStateUnknown); isOld {
			object = last.Obj
		}
		if object, ok := object.(*unstructured.Unstructured); ok {
			see(object, exists)
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // which only fails for one that has ended
		AddFunc:    func(object any) { tell(object, true) },
		UpdateFunc: func(_, object any) { tell(object, true) },
		DeleteFunc: func(object any) { tell(object, false) },
	})
	_ = informer.SetTransform(withoutFields)
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { f.broke(key, err) })
	f.running.Go(func() { informer.RunWithContext(ctx) })
}

// withoutFields leaves out who owns which field, which nobody reads here.
func withoutFields(object any) (any, error) {
	if object, ok := object.(*unstructured.Unstructured); ok {
		object.SetManagedFields(nil)
	}
	return object, nil
}

// broke says what becomes of a watch that has an error. Those that heal, the watch heals
// itself. One that is forbidden in the whole cluster may be allowed where the objects are.
func (f *follower) broke(key streamKey, err error) {
	if !apierrors.IsForbidden(err) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if key.namespace == "" && key.fieldsOnly == "" {
		f.narrow[key.resource.String()] = true
		f.streams[key]()
		for _, w := range f.objects {
			if w.resource.GroupVersionResource == key.resource && w.resource.Namespaced && w.verdict.State != ready.Ready {
				f.stream(w)
			}
		}
		if len(f.objects) > 0 && !f.isNamespaced(key.resource) {
			f.blind(key, err)
		}
		return
	}
	f.blind(key, err)
}

// isNamespaced says whether the objects of a resource are in namespaces.
func (f *follower) isNamespaced(resource schema.GroupVersionResource) bool {
	for _, w := range f.objects {
		if w.resource.GroupVersionResource == resource {
			return w.resource.Namespaced
		}
	}
	return false
}

// blind says of objects that they can't be watched, and so never be known to be ready.
func (f *follower) blind(key streamKey, err error) {
	for _, w := range f.objects {
		if w.resource.GroupVersionResource == key.resource && w.verdict.State == ready.Waiting && (key.namespace == "" || key.namespace == w.manifest.Object().GetNamespace()) {
			w.verdict.Message = fmt.Sprintf("it can't be watched: %s", oneLine(err))
		}
	}
}

// A service is one that the API server calls for some of our objects.
type service struct {
	slices     map[string]bool // endpoint slices by name, and whether one of their endpoints is ready
	isExternal bool            // it leads out of the cluster: nobody knows whether something is there
}

// endpointSlices are where a Service leads to.
var endpointSlices = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")

// callOf watches where a Service leads to.
func (f *follower) callOf(name types.NamespacedName) {
	if f.services[name] != nil {
		return
	}
	called := &service{slices: map[string]bool{}}
	f.services[name] = called
	rejudge := func(change func()) {
		f.mu.Lock()
		defer f.mu.Unlock()
		change()
		for _, w := range f.objects {
			if len(w.calls) > 0 {
				f.judge(w)
			}
		}
	}
	f.start(streamKey{resource: endpointSlices, namespace: name.Namespace, labels: discoveryv1.LabelServiceName + "=" + name.Name},
		func(object *unstructured.Unstructured, exists bool) {
			rejudge(func() { called.slices[object.GetName()] = exists && hasReadyEndpoint(object) })
		})
	f.start(streamKey{resource: schema.GroupVersionResource{Version: "v1", Resource: "services"}, namespace: name.Namespace, fieldsOnly: fields.OneTermEqualSelector("metadata.name", name.Name).String()},
		func(object *unstructured.Unstructured, exists bool) {
			kind, _, _ := unstructured.NestedString(object.Object, "spec", "type")
			rejudge(func() { called.isExternal = exists && kind == "ExternalName" })
		})
}

// hasReadyEndpoint says whether a slice leads to anything.
func hasReadyEndpoint(slice *unstructured.Unstructured) bool {
	var endpoints discoveryv1.EndpointSlice
	if runtime.DefaultUnstructuredConverter.FromUnstructured(slice.Object, &endpoints) != nil {
		return false
	}
	for _, endpoint := range endpoints.Endpoints {
		if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
			return true
		}
	}
	return false
}

// serving says of some Services whether anything serves them.
func (f *follower) serving(names []types.NamespacedName) map[types.NamespacedName]bool {
	if len(names) == 0 {
		return nil
	}
	serving := map[types.NamespacedName]bool{}
	for _, name := range names {
		called := f.services[name]
		serving[name] = called.isExternal
		for _, isReady := range called.slices {
			serving[name] = serving[name] || isReady
		}
	}
	return serving
}
