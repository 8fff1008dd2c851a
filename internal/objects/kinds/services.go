package kinds

import (
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// CalledServices returns the Services that the API server calls because of an object: a
// webhook configuration or an APIService.
func CalledServices(object *unstructured.Unstructured) []types.NamespacedName {
	switch kind := object.GroupVersionKind().GroupKind(); {
	case strings.HasSuffix(kind.Kind, "WebhookConfiguration") && kind.Group == "admissionregistration.k8s.io":
		webhooks, _, _ := unstructured.NestedFieldNoCopy(object.Object, "webhooks")
		list, _ := webhooks.([]any)
		seen := map[types.NamespacedName]bool{}
		var called []types.NamespacedName
		for _, webhook := range list {
			fields, _ := webhook.(map[string]any)
			for _, service := range serviceAt(fields, "clientConfig", "service") {
				if !seen[service] {
					seen[service] = true
					called = append(called, service)
				}
			}
		}
		return called
	case kind == APIService:
		return serviceAt(object.Object, "spec", "service")
	default:
		return nil
	}
}

// serviceAt returns the Service of a reference, if there is one.
func serviceAt(fields map[string]any, path ...string) []types.NamespacedName {
	reference, _, _ := unstructured.NestedFieldNoCopy(fields, path...)
	named, isMapping := reference.(map[string]any)
	if !isMapping {
		return nil
	}
	namespace, _ := named["namespace"].(string)
	name, _ := named["name"].(string)
	return []types.NamespacedName{{Namespace: namespace, Name: name}}
}

// ReadyEndpoints returns how many endpoints of a slice are ready. Nil conditions mean ready.
func ReadyEndpoints(slice *discoveryv1.EndpointSlice) int {
	ready := 0
	for _, endpoint := range slice.Endpoints {
		if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
			ready++
		}
	}
	return ready
}
