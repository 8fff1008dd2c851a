package kinds

import (
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// ClientConfigs returns the mappings of an object that configure which servers the API server calls, and by which
// certificates it verifies them: of webhooks, of an APIService, or of the conversion of a definition.
func ClientConfigs(object *unstructured.Unstructured) []map[string]any {
	path := ClientConfigPath(object.GroupVersionKind().GroupKind())
	if path == nil {
		return nil
	}
	return mappingsAt(object.Object, path)
}

// mappingsAt returns the mappings at a path, which may lead through a list.
func mappingsAt(value any, path []string) []map[string]any {
	if items, isList := value.([]any); isList {
		var found []map[string]any
		for _, item := range items {
			found = append(found, mappingsAt(item, path)...)
		}
		return found
	}
	fields, isMapping := value.(map[string]any)
	switch {
	case !isMapping:
		return nil
	case len(path) == 0:
		return []map[string]any{fields}
	default:
		return mappingsAt(fields[path[0]], path[1:])
	}
}

// ConfiguredServices returns the Services that client configurations name, each once.
func ConfiguredServices(configs []map[string]any) []types.NamespacedName {
	var services []types.NamespacedName
	for _, config := range configs {
		reference, isMapping := config["service"].(map[string]any)
		if !isMapping {
			continue
		}
		namespace, _ := reference["namespace"].(string)
		name, _ := reference["name"].(string)
		if service := (types.NamespacedName{Namespace: namespace, Name: name}); !slices.Contains(services, service) {
			services = append(services, service)
		}
	}
	return services
}

// InjectsAuthority reports whether an annotation of an object has a controller, such as cert-manager, set its caBundle.
func InjectsAuthority(object *unstructured.Unstructured) bool {
	for key := range object.GetAnnotations() {
		_, name, _ := strings.Cut(key, "/")
		if strings.HasPrefix(name, "inject-ca") || name == "inject-apiserver-ca" {
			return true
		}
	}
	return false
}

// CalledServices returns the Services that the API server calls because of an object: a webhook configuration or an
// APIService. It calls the conversion webhook of a definition only for objects of several versions.
func CalledServices(object *unstructured.Unstructured) []types.NamespacedName {
	if object.GroupVersionKind().GroupKind() == CustomResourceDefinition {
		return nil
	}
	return ConfiguredServices(ClientConfigs(object))
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
