package infra

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// example is the advice in errors of templates.
const example = `write an object, as {"apiVersion": "infrastructure.runlevel.dev/v1alpha1", "kind": "ExternalMachine", "spec": {}}`

// ParseTemplate returns the infrastructure object in the providerSpec.value of a machine. It returns an InvalidError if
// the value names no kind of infrastructure. The fields are checked when the object is created.
func ParseTemplate(value *runtime.RawExtension) (*unstructured.Unstructured, error) {
	if value == nil || len(value.Raw) == 0 || string(value.Raw) == "null" {
		return nil, checkKind(nil)
	}
	template := &unstructured.Unstructured{}
	if err := json.Unmarshal(value.Raw, &template.Object); err != nil {
		return nil, invalid("it is not an object: %s", example)
	}
	return template, checkKind(template)
}

// checkKind returns an InvalidError if a template names no kind of infrastructure.
func checkKind(template *unstructured.Unstructured) error {
	if template == nil || len(template.Object) == 0 {
		return invalid("it is missing: %s", example)
	}
	kind := template.GroupVersionKind()
	switch {
	case template.GetAPIVersion() == "" || template.GetKind() == "":
		return invalid("it has no apiVersion or no kind: %s", example)
	case isOpenShifts(kind):
		return invalid("kind %s of %s is read by OpenShift's own machine controllers, and is not a kind of "+
			"infrastructure: %s",
			kind.Kind, template.GetAPIVersion(), example)
	case isBuiltIn(kind):
		return invalid("kind %s of %s is Kubernetes' own, and no kind of infrastructure: %s",
			kind.Kind, template.GetAPIVersion(), example)
	}
	return nil
}

// checkFields returns an InvalidError if there are fields that are not copied to the infrastructure object.
func checkFields(template *unstructured.Unstructured) error {
	for _, field := range slices.Sorted(maps.Keys(template.Object)) {
		switch field {
		case "apiVersion", "kind", "metadata":
		case "spec":
			if _, ok := template.Object["spec"].(map[string]any); !ok {
				return invalid("its spec is not an object: %s", example)
			}
		case "status":
			return invalid("it has a status, which only the controller of the infrastructure writes: remove it")
		default:
			return invalid("it has a field %q, which objects do not have: put it under spec", field)
		}
	}
	return nil
}

// isOpenShifts reports whether a kind belongs to the API of machines. Provider specs of OpenShift have such kinds,
// though they are not objects.
func isOpenShifts(kind schema.GroupVersionKind) bool {
	return kind.Group == "machine.openshift.io" ||
		strings.HasSuffix(kind.Kind, "ProviderSpec") || strings.HasSuffix(kind.Kind, "ProviderConfig")
}

// isBuiltIn reports whether a kind is Kubernetes' own. A template must not use the permissions of the machine
// controller to create a Lease or an Event, for example.
func isBuiltIn(kind schema.GroupVersionKind) bool {
	return !strings.Contains(kind.Group, ".") || strings.HasSuffix(kind.Group, ".k8s.io")
}

func invalid(format string, values ...any) *InvalidError {
	return &InvalidError{Message: "providerSpec.value: " + fmt.Sprintf(format, values...)}
}
