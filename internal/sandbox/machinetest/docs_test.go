package machinetest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// fragments are the manifests of pages that show only a part of an object, or a text that a tool fills in. The API
// server must know their fields, and may refuse the objects.
var fragments = map[string]bool{
	"deletes.md Deployment cluster-autoscaler-operator":     true,
	"hooks.md Deployment web":                               true,
	"hooks.md Job {{ .Release.Name }}-migrate":              true,
	"lint.md CustomResourceDefinition widgets.shop.example": true,
}

// TestManifestsOfTheDocumentation sends the manifests of all pages to an API server. The API server must know each
// field, and accept each complete object, except for kinds of OpenShift and of examples, which it does not serve.
func TestManifestsOfTheDocumentation(t *testing.T) {
	namespace, count := shared.Namespace(t), 0
	pages, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		for _, object := range documentedObjects(t, page) {
			name := filepath.Base(page) + " " + object.GetKind() + " " + object.GetName()
			object.SetNamespace(namespace)
			err := shared.Client(t).Create(t.Context(), object, client.DryRunAll,
				client.FieldValidation(metav1.FieldValidationStrict))
			switch {
			case meta.IsNoMatchError(err):
			case err != nil && (!fragments[name] || !apierrors.IsInvalid(err)):
				t.Errorf("%s: %v", name, err)
			default:
				count++
			}
		}
	}
	if count < 25 {
		t.Errorf("only %d manifests were found", count)
	}
}

// documentedObjects returns the objects in the YAML blocks of a page.
func documentedObjects(t *testing.T, page string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		for _, document := range strings.Split(block[1], "---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err == nil && object.GetKind() != "" &&
				object.GetAPIVersion() != "" {
				objects = append(objects, object)
			}
		}
	}
	return objects
}
