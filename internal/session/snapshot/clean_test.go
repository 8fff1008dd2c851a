package snapshot

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestOrderOfCreation checks that each object is created before the objects that need it, and webhooks last.
func TestOrderOfCreation(t *testing.T) {
	t.Parallel()
	want := []string{
		"v1 Namespace", "apiextensions.k8s.io/v1 CustomResourceDefinition", "v1 ServiceAccount",
		"rbac.authorization.k8s.io/v1 RoleBinding", "v1 Secret", "apps/v1 Deployment", "policy/v1 PodDisruptionBudget",
		"shop.example/v1 Widget", "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy",
		"admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
	}
	var objects []*unstructured.Unstructured
	for _, text := range slices.Backward(want) {
		object := new(unstructured.Unstructured)
		version, kind, _ := strings.Cut(text, " ")
		object.SetAPIVersion(version)
		object.SetKind(kind)
		objects = append(objects, object)
	}
	slices.SortFunc(objects, inOrder)
	var got []string
	for _, object := range objects {
		got = append(got, object.GetAPIVersion()+" "+object.GetKind())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order of creation (-want +got)\n%s", diff)
	}
}
