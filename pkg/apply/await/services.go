package await

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/kinds"
)

// A service is one that the API server calls for some of our objects.
type service struct {
	serving    map[string]bool // endpoint slices by name that have a ready endpoint
	isExternal bool            // it leads out of the cluster: whether something serves it is not known
	watches    []*watch
}

// servicesResource and slicesOf are where Services are, and where one leads to.
var servicesResource = corev1.SchemeGroupVersion.WithResource("services")

func slicesOf(name types.NamespacedName) watchKey {
	return watchKey{
		resource:  discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
		namespace: name.Namespace, labels: discoveryv1.LabelServiceName + "=" + name.Name,
	}
}

// services are those that the API server calls for objects of the release.
type services struct {
	tracker *Tracker
	known   map[types.NamespacedName]*service
}

// watch watches where a Service leads to.
func (s *services) watch(name types.NamespacedName) {
	if s.known[name] != nil {
		return
	}
	called := &service{serving: map[string]bool{}}
	s.known[name] = called
	itself := watchKey{resource: servicesResource, namespace: name.Namespace, fieldsOnly: named(name.Name)}
	called.watches = []*watch{s.tracker.start(slicesOf(name), slicesHandler{s.tracker, called}), s.tracker.start(itself, serviceHandler{s.tracker, called})}
}

// serving reports of some Services whether anything serves them.
func (s *services) serving(names []types.NamespacedName) map[types.NamespacedName]bool {
	serving := map[types.NamespacedName]bool{}
	for _, name := range names {
		serving[name] = s.known[name].isExternal || len(s.known[name].serving) > 0
	}
	return serving
}

// watches returns the watches on some Services.
func (s *services) watches(names []types.NamespacedName) (all []*watch) {
	for _, name := range names {
		all = append(all, s.known[name].watches...)
	}
	return all
}

// rejudge judges the objects again that call Services, after one of those has changed.
func (t *Tracker) rejudge(change func()) {
	t.do(func() {
		change()
		for _, o := range t.objects {
			if len(o.calls) > 0 {
				t.judge(o)
			}
		}
	})
}

// slicesHandler takes in where a Service leads to.
type slicesHandler struct {
	tracker *Tracker
	service *service
}

func (s slicesHandler) seen(slice *unstructured.Unstructured, exists bool) {
	s.tracker.rejudge(func() { s.service.note(slice, exists) })
}

func (s slicesHandler) listed(slices []*unstructured.Unstructured, _ string) {
	s.tracker.rejudge(func() {
		clear(s.service.serving)
		for _, slice := range slices {
			s.service.note(slice, true)
		}
	})
}

func (s *service) note(slice *unstructured.Unstructured, exists bool) {
	delete(s.serving, slice.GetName())
	if exists && hasReadyEndpoint(slice) {
		s.serving[slice.GetName()] = true
	}
}

// serviceHandler takes in what kind of Service it is.
type serviceHandler struct {
	tracker *Tracker
	service *service
}

func (s serviceHandler) seen(service *unstructured.Unstructured, exists bool) {
	kind, _, _ := unstructured.NestedString(service.Object, "spec", "type")
	s.tracker.rejudge(func() { s.service.isExternal = exists && kind == string(corev1.ServiceTypeExternalName) })
}

func (s serviceHandler) listed(services []*unstructured.Unstructured, _ string) {
	if len(services) == 0 {
		s.tracker.rejudge(func() { s.service.isExternal = false })
		return
	}
	s.seen(services[0], true)
}

// hasReadyEndpoint reports whether a slice leads to anything.
func hasReadyEndpoint(slice *unstructured.Unstructured) bool {
	var endpoints discoveryv1.EndpointSlice
	if runtime.DefaultUnstructuredConverter.FromUnstructured(slice.Object, &endpoints) != nil {
		return false
	}
	return kinds.ReadyEndpoints(&endpoints) > 0
}
