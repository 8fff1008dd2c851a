package kinds

import (
	"cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ScaleTarget returns the object that another one scales: a HorizontalPodAutoscaler, or what has one made, such as KEDA's
// ScaledObject, which need not name the kind of a Deployment.
func ScaleTarget(autoscaler *unstructured.Unstructured) (target ID, scales bool) {
	ref, _, _ := unstructured.NestedStringMap(autoscaler.Object, "spec", "scaleTargetRef")
	if ref["name"] == "" {
		return ID{}, false
	}
	kind := schema.FromAPIVersionAndKind(cmp.Or(ref["apiVersion"], "apps/v1"), cmp.Or(ref["kind"], "Deployment"))
	return ID{Group: kind.Group, Kind: kind.Kind, Namespace: autoscaler.GetNamespace(), Name: ref["name"]}, true
}
