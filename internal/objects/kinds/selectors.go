package kinds

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// SelectorOf returns the selector by which an object selects pods; nil if it has none, or selects all pods.
func SelectorOf(object *unstructured.Unstructured) labels.Selector {
	kind := object.GroupVersionKind().GroupKind()
	field, _, _ := unstructured.NestedFieldNoCopy(object.Object, PodSelector(kind)...)
	if kind == Service {
		field = map[string]any{"matchLabels": field}
	}
	fields, isMapping := field.(map[string]any)
	parsed := &metav1.LabelSelector{}
	if !isMapping || runtime.DefaultUnstructuredConverter.FromUnstructured(fields, parsed) != nil {
		return nil
	}
	if selector, err := metav1.LabelSelectorAsSelector(parsed); err == nil && !selector.Empty() {
		return selector
	}
	return nil
}

// PodLabels returns the labels of the pods that a workload creates.
func PodLabels(workload *unstructured.Unstructured) labels.Set {
	path := PodSpec(workload.GroupVersionKind().GroupKind())
	if path == nil {
		return nil
	}
	path = append(slices.Clone(path[:len(path)-1]), "metadata", "labels")
	found, _, _ := unstructured.NestedStringMap(workload.Object, path...)
	return found
}
