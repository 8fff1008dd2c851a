package infra_test

import (
	"context"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// definition defines a kind of infrastructure that only tests use, and that stands for those of other projects.
const definition = `
spec:
  group: infra.example.com
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: string, enum: [small, large]}
              providerID: {type: string}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// serve makes the cluster serve a kind of infrastructure, and returns its definition.
func serve(t *testing.T, kind, plural string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal([]byte(definition), crd); err != nil {
		t.Fatal(err)
	}
	crd.Name = plural + ".infra.example.com"
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural}
	admin := admin(t)
	if err := admin.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.IgnoreNotFound(admin.Delete(context.Background(), crd)) })
	machinetest.Await(t, admin, &apiextensionsv1.CustomResourceDefinition{}, client.ObjectKeyFromObject(crd),
		isServed(t, kind))
	return crd
}

// isServed waits, as a condition of a definition, until there is an answer for objects of its kind.
func isServed(t *testing.T, kind string) func(*apiextensionsv1.CustomResourceDefinition) bool {
	return func(*apiextensionsv1.CustomResourceDefinition) bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{
			Group:   "infra.example.com",
			Version: "v1",
			Kind:    kind + "List",
		})
		return admin(t).List(t.Context(), list) == nil
	}
}

// admin returns a client that knows definitions.
func admin(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(shared.Sandbox(t).Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return admin
}

// machineOf returns a machine that wants infrastructure of a kind.
func machineOf(t *testing.T, namespace, name, value string) infra.Machine {
	t.Helper()
	template, err := infra.ParseTemplate(&runtime.RawExtension{Raw: []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	return infra.Machine{
		NamespacedName: types.NamespacedName{Namespace: namespace, Name: name},
		UID:            types.UID("uid-of-" + name), Labels: map[string]string{"pool": "a"}, Template: template,
	}
}

// read returns the infrastructure object of a machine.
func read(t *testing.T, m infra.Machine) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(m.Template.GroupVersionKind())
	if err := shared.Client(t).Get(t.Context(), m.NamespacedName, object); err != nil {
		t.Fatal(err)
	}
	return object
}

// edit changes the infrastructure object of a machine, as its controller or a person does.
func edit(t *testing.T, m infra.Machine, change func(*unstructured.Unstructured)) {
	t.Helper()
	object := read(t, m)
	change(object)
	if err := shared.Client(t).Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}
