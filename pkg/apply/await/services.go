package await

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A service is a Service that the API server calls for objects of the release.
type service struct {
	itself, slices related // the Service, and its endpoint slices
	watches        []*watch
}

// watchService watches a Service and its endpoint slices.
func (t *Tracker) watchService(name types.NamespacedName) {
	if t.services[name] != nil {
		return
	}
	called := &service{itself: newRelated(t), slices: newRelated(t)}
	t.services[name] = called
	itself := watchKey{resource: corev1.SchemeGroupVersion.WithResource("services"), namespace: name.Namespace, fieldsOnly: named(name.Name)}
	slices := watchKey{
		resource:  discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
		namespace: name.Namespace, labels: discoveryv1.LabelServiceName + "=" + name.Name,
	}
	called.watches = []*watch{t.start(slices, called.slices), t.start(itself, called.itself)}
}

// serving reports whether Services are serving, by their names.
func (t *Tracker) serving(names []types.NamespacedName) map[types.NamespacedName]bool {
	serving := map[types.NamespacedName]bool{}
	for _, name := range names {
		serving[name] = t.services[name].isServing()
	}
	return serving
}

// watchesOf returns the watches of some Services and their endpoint slices.
func (t *Tracker) watchesOf(names []types.NamespacedName) (all []*watch) {
	for _, name := range names {
		all = append(all, t.services[name].watches...)
	}
	return all
}

// isServing reports whether a Service has a ready endpoint. An ExternalName is taken for serving, since its endpoints are
// not known.
func (s *service) isServing() bool {
	for _, slice := range s.slices.objects {
		if hasReadyEndpoint(slice) {
			return true
		}
	}
	for _, itself := range s.itself.objects {
		if kind, _, _ := unstructured.NestedString(itself.Object, "spec", "type"); kind == string(corev1.ServiceTypeExternalName) {
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

// related are the objects of one watch that decide whether a Service is serving.
type related struct {
	tracker *Tracker
	objects map[string]*unstructured.Unstructured // by name
}

func newRelated(t *Tracker) related { return related{t, map[string]*unstructured.Unstructured{}} }

func (r related) seen(object *unstructured.Unstructured, exists bool) {
	r.change(func() {
		delete(r.objects, object.GetName())
		if exists {
			r.objects[object.GetName()] = object
		}
	})
}

func (r related) listed(objects []*unstructured.Unstructured, _ string) {
	r.change(func() {
		clear(r.objects)
		for _, object := range objects {
			r.objects[object.GetName()] = object
		}
	})
}

// change runs a change, and then judges the objects again that call Services.
func (r related) change(change func()) {
	r.tracker.do(func() {
		change()
		for _, o := range r.tracker.objects {
			if len(o.calls) > 0 {
				r.tracker.judge(o)
			}
		}
	})
}
