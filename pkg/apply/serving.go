package apply

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// A service is one that the API server calls for some of our objects.
type service struct {
	serving    map[string]bool // endpoint slices by name that have a ready endpoint
	isExternal bool            // it leads out of the cluster: nobody knows whether something is there
	streams    []*stream
}

// servicesResource and slicesOf are where Services are, and where one leads to.
var servicesResource = corev1.SchemeGroupVersion.WithResource("services")

func slicesOf(name types.NamespacedName) streamKey {
	return streamKey{
		resource:  discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
		namespace: name.Namespace, labels: discoveryv1.LabelServiceName + "=" + name.Name,
	}
}

// callOf watches where a Service leads to.
func (f *follower) callOf(name types.NamespacedName) {
	if f.services[name] != nil {
		return
	}
	called := &service{serving: map[string]bool{}}
	f.services[name] = called
	itself := streamKey{resource: servicesResource, namespace: name.Namespace, fieldsOnly: named(name.Name)}
	called.streams = []*stream{f.start(slicesOf(name), slicesSink{f, called}), f.start(itself, serviceSink{f, called})}
}

// serving says of some Services whether anything serves them.
func (f *follower) serving(names []types.NamespacedName) map[types.NamespacedName]bool {
	serving := map[types.NamespacedName]bool{}
	for _, name := range names {
		serving[name] = f.services[name].isExternal || len(f.services[name].serving) > 0
	}
	return serving
}

// rejudge looks again at the objects that a Service matters to, after it has changed.
func (f *follower) rejudge(change func()) {
	f.do(func() {
		change()
		for _, w := range f.objects {
			if len(w.calls) > 0 {
				f.judge(w)
			}
		}
	})
}

// slicesSink takes in where a Service leads to.
type slicesSink struct {
	follower *follower
	service  *service
}

func (s slicesSink) seen(slice *unstructured.Unstructured, exists bool) {
	s.follower.rejudge(func() { s.service.note(slice, exists) })
}

func (s slicesSink) listed(slices []*unstructured.Unstructured, _ string) {
	s.follower.rejudge(func() {
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

// serviceSink takes in what kind of Service it is.
type serviceSink struct {
	follower *follower
	service  *service
}

func (s serviceSink) seen(service *unstructured.Unstructured, exists bool) {
	kind, _, _ := unstructured.NestedString(service.Object, "spec", "type")
	s.follower.rejudge(func() { s.service.isExternal = exists && kind == string(corev1.ServiceTypeExternalName) })
}

func (s serviceSink) listed(services []*unstructured.Unstructured, _ string) {
	if len(services) == 0 {
		s.follower.rejudge(func() { s.service.isExternal = false })
		return
	}
	s.seen(services[0], true)
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
