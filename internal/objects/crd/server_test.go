package crd_test

import (
	"os"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/runlevel/runlevel/internal/objects/crd"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var cluster = sandboxtest.New(sandbox.Options{Nodes: sandbox.NoNodes})

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

var definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// strictly makes the API server refuse unknown fields, instead of dropping them.
const strictly = "Strict"

func TestServerProblems(t *testing.T) {
	client, err := dynamic.NewForConfig(cluster.Sandbox(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range validations(t) {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			for _, e := range v.definitions {
				_, err := client.Resource(definitions).Create(t.Context(), &unstructured.Unstructured{Object: e.object},
					metav1.CreateOptions{FieldValidation: strictly})
				agree(t, e.name, err, crd.CheckDefinition(t.Context(), e.object))
			}
			if len(v.objects) == 0 {
				return
			}
			established(t, v.definitions[0].object)
			for _, e := range v.objects {
				agree(t, e.name, send(t, client, v.definitions[0].object, e), check(t, v.definition(t), e))
			}
		})
	}
}

// established waits until the API server serves a definition.
func established(t *testing.T, definition map[string]any) {
	t.Helper()
	name, _, _ := unstructured.NestedString(definition, "metadata", "name")
	sandboxtest.Await(t, cluster, definitions, name, func(definition *apiextensionsv1.CustomResourceDefinition) bool {
		if definition == nil {
			return false
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true
			}
		}
		return false
	})
}

// send makes the API server create an object, or update it if it was another before.
func send(t *testing.T, client dynamic.Interface, definition map[string]any, e entry) error {
	t.Helper()
	objects := resource(client, definition, e.object)
	if e.before == nil {
		_, err := objects.Create(t.Context(), &unstructured.Unstructured{Object: e.object},
			metav1.CreateOptions{FieldValidation: strictly, DryRun: []string{metav1.DryRunAll}})
		return err
	}
	before, err := objects.Create(t.Context(), &unstructured.Unstructured{Object: e.before}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	after := &unstructured.Unstructured{Object: e.object}
	after.SetResourceVersion(before.GetResourceVersion())
	_, err = objects.Update(t.Context(), after, metav1.UpdateOptions{FieldValidation: strictly})
	return err
}

func resource(client dynamic.Interface, definition, object map[string]any) dynamic.ResourceInterface {
	plural, _, _ := unstructured.NestedString(definition, "spec", "names", "plural")
	scope, _, _ := unstructured.NestedString(definition, "spec", "scope")
	version, _, _ := unstructured.NestedString(object, "apiVersion")
	group, version, _ := strings.Cut(version, "/")
	objects := client.Resource(apischema.GroupVersionResource{Group: group, Version: version, Resource: plural})
	if scope == "Namespaced" {
		return objects.Namespace(metav1.NamespaceDefault)
	}
	return objects
}

func agree(t *testing.T, name string, refusal error, problems []crd.Problem) {
	t.Helper()
	switch {
	case refusal == nil && len(problems) > 0:
		t.Errorf("%s: got the problems %v, and the API server accepts it", name, problems)
	case refusal != nil && len(problems) == 0:
		t.Errorf("%s: got no problem, and the API server reports %v", name, refusal)
	case refusal != nil:
		t.Logf("%s: %v\n\t%v", name, refusal, problems)
	}
}
