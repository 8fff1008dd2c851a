package await

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A service is a Service that the API server calls for objects of the release: the watches of the Service, and of its
// endpoint slices.
type service struct{ itself, slices *watch }

// watchService watches a Service and its endpoint slices.
func (t *Tracker) watchService(name types.NamespacedName) {
	if t.services[name] != nil {
		return
	}
	itself := watchKey{
		resource:   corev1.SchemeGroupVersion.WithResource("services"),
		namespace:  name.Namespace,
		fieldsOnly: nameSelector(name.Name),
	}
	slices := watchKey{
		resource:  discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
		namespace: name.Namespace, labels: discoveryv1.LabelServiceName + "=" + name.Name,
	}
	start := func(key watchKey) *watch {
		return t.start(key, cluster.Resource{}, map[string]*unstructured.Unstructured{})
	}
	t.services[name] = &service{slices: start(slices), itself: start(itself)}
}

// servingServices reports, for each named Service, whether it is serving.
func (t *Tracker) servingServices(names []types.NamespacedName) map[types.NamespacedName]bool {
	serving := map[types.NamespacedName]bool{}
	for _, name := range names {
		serving[name] = t.services[name].isServing()
	}
	return serving
}

// watchesOf returns the watches of some Services and their endpoint slices.
func (t *Tracker) watchesOf(names []types.NamespacedName) (all []*watch) {
	for _, name := range names {
		all = append(all, t.services[name].slices, t.services[name].itself)
	}
	return all
}

// isServing reports whether a Service has a ready endpoint. An ExternalName is taken for serving, since its endpoints
// are not known.
func (s *service) isServing() bool {
	for _, slice := range s.slices.related {
		if hasReadyEndpoint(slice) {
			return true
		}
	}
	for _, itself := range s.itself.related {
		if kind, _, _ := unstructured.NestedString(itself.Object, "spec",
			"type"); kind == string(corev1.ServiceTypeExternalName) {
			return true
		}
	}
	return false
}

// hasReadyEndpoint reports whether a slice has a ready endpoint.
func hasReadyEndpoint(slice *unstructured.Unstructured) bool {
	var endpoints discoveryv1.EndpointSlice
	if runtime.DefaultUnstructuredConverter.FromUnstructured(slice.Object, &endpoints) != nil {
		return false
	}
	return kinds.ReadyEndpoints(&endpoints) > 0
}

// observeRelated notes an object that decides whether a Service is serving.
func (w *watch) observeRelated(object *unstructured.Unstructured, exists bool) {
	w.tracker.do(func() {
		delete(w.related, object.GetName())
		if exists {
			w.related[object.GetName()] = object
		}
		w.tracker.judgeCallers()
	})
}

func (w *watch) observeRelatedList(objects []*unstructured.Unstructured) {
	w.tracker.do(func() {
		clear(w.related)
		for _, object := range objects {
			w.related[object.GetName()] = object
		}
		w.tracker.judgeCallers()
	})
}

// judgeCallers judges the objects again that call Services.
func (t *Tracker) judgeCallers() {
	for _, o := range t.objects {
		if o.CallsServices {
			t.judge(o)
		}
	}
}
