package await

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/ready"
)

// A readiness expression of the release may use any field.
func TestFieldsRemovedFromAnObject(t *testing.T) {
	for name, row := range map[string]struct {
		annotations map[string]string
		wantPods    bool
	}{
		"an ordinary one":                {nil, false},
		"one that defines its readiness": {map[string]string{ready.Annotation: "has(self.spec.template)"}, true},
	} {
		object := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "web", "managedFields": []any{map[string]any{"manager": "somebody"}}},
			"spec":     map[string]any{"replicas": int64(1), "template": map[string]any{}},
		}}
		object.SetAnnotations(row.annotations)
		whole := object.DeepCopy()
		kept := trimmedCopy(object)
		if _, hasPods, _ := unstructured.NestedMap(kept.Object, "spec", "template"); hasPods != row.wantPods {
			t.Errorf("%s: got pod template: %t", name, hasPods)
		}
		if replicas, _, _ := unstructured.NestedInt64(kept.Object, "spec", "replicas"); replicas != 1 ||
			kept.GetManagedFields() != nil {
			t.Errorf("%s: %v", name, kept)
		}
		if _, isWhole, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "template"); !isWhole ||
			len(object.GetManagedFields()) != len(whole.GetManagedFields()) {
			t.Errorf("%s: the original object has changed", name)
		}
	}
}
