package kinds

import (
	"cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ScaleTarget returns the target of a HorizontalPodAutoscaler, or of an object from which a controller creates one,
// such as KEDA's ScaledObject, in which the kind Deployment may be omitted.
func ScaleTarget(autoscaler *unstructured.Unstructured) (target ID, scales bool) {
	ref, _, _ := unstructured.NestedStringMap(autoscaler.Object, "spec", "scaleTargetRef")
	if ref["name"] == "" {
		return ID{}, false
	}
	kind := schema.FromAPIVersionAndKind(cmp.Or(ref["apiVersion"], "apps/v1"), cmp.Or(ref["kind"], Deployment.Kind))
	return NewID(kind.GroupKind(), autoscaler.GetNamespace(), ref["name"]), true
}
