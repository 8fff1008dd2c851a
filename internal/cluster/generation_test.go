package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// These tests hold what others build on: that the generation of a custom resource, whatever
// its definition, rises with each change other than of its metadata and status.

// A patch of a custom resource, and by how much it is to raise the generation.
type patch struct {
	at, body string
	raises   int64
}

func TestEachChangeOfACustomResourceRaisesItsGeneration(t *testing.T) {
	const (
		schema = `{openAPIV3Schema: {type: object, properties: {
			spec: {type: object, properties: {replicas: {type: integer}, any: {nullable: true, x-kubernetes-preserve-unknown-fields: true}}},
			data: {type: object, additionalProperties: {type: string}},
			status: {type: object, properties: {replicas: {type: integer}}}}}}`
		free       = `{openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}`
		withStatus = `, subresources: {status: {}}`
		withScale  = `, subresources: {scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}`
		withBoth   = `, subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}`
	)
	body := []patch{
		{"", `{"spec": {"replicas": 2}}`, 1},
		{"", `{"data": {"a": "c"}}`, 1},
		{"", `{"data": {}}`, 0}, // a patch that changes nothing
		{"", `{"data": {"a": null}}`, 1},
		{"", `{"data": null}`, 1},
		{"", `{"spec": {"any": {}}}`, 1},
		{"", `{"spec": {"any": []}}`, 1},
		{"", `{"spec": {"any": ""}}`, 1},
		{"", `{"spec": {"any": null}}`, 1},
		{"", `{"spec": {"any": [{}]}}`, 1},
		{"", `{"spec": {"any": [null]}}`, 1},
		{"", `{"spec": {"any": [[]]}}`, 1},
		{"", `{"spec": {"any": 1}}`, 1},
		{"", `{"spec": {"any": 1.5}}`, 1},
		{"", `{"spec": {"any": "1.5"}}`, 1},
		{"", `{"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["example.com/a"]}}`, 0},
		{"", `{"metadata": {"finalizers": null, "generation": 99}}`, 0},
	}
	apart := []patch{{"", `{"status": {"replicas": 2}}`, 0},
		{"status", `{"status": {"replicas": 3}, "spec": {"replicas": 7}}`, 0}}
	along := []patch{{"", `{"status": {"replicas": 2}}`, 1}}
	scaled := []patch{{"scale", `{"spec": {"replicas": 5}}`, 1}}
	for name, test := range map[string]struct {
		version string
		patches [][]patch
	}{
		"without subresources":  {schema, [][]patch{body, along}},
		"with status":           {schema + withStatus, [][]patch{body, apart}},
		"with scale":            {schema + withScale, [][]patch{body, along, scaled}},
		"with status and scale": {schema + withBoth, [][]patch{body, apart, scaled}},
		"of unknown fields": {free,
			[][]patch{body, along, {{"", `{"top": 1}`, 1}, {"", `{"top": null}`, 1}}}},
		"of unknown fields, with status and scale": {free + withBoth,
			[][]patch{body, apart, scaled, {{"", `{"top": 1}`, 1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			c, group := testbed.Connect(t), strings.NewReplacer(" ", "-", ",", "").Replace(name)+".example.com"
			establish(t, c, "\n  group: "+group+"\n  scope: Namespaced\n  names: {kind: Widget, plural: widgets}\n"+
				"  versions: [{name: v1, served: true, storage: true, schema: "+
				strings.ReplaceAll(test.version, "\t", "")+"}]")
			widget := sandboxtest.ParseObject(t,
				"{apiVersion: "+group+"/v1, kind: Widget, metadata: {name: w, namespace: "+testbed.Namespace(t)+
					"}, spec: {replicas: 1}, data: {a: b}, status: {replicas: 1}}")
			applied := sandboxtest.ApplyObject(t, c, widget)
			if applied.Object.GetGeneration() != 1 {
				t.Errorf("the created object has generation %d", applied.Object.GetGeneration())
			}
			client := c.In(find(t, c, widget), widget.GetNamespace())
			for _, patches := range test.patches {
				for _, p := range patches {
					tryPatch(t, client, p)
				}
			}
		})
	}
}

// A resource is where the objects of a kind in a namespace are.
type resource interface {
	Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions,
		...string) (*unstructured.Unstructured, error)
}

func tryPatch(t *testing.T, r resource, p patch) {
	t.Helper()
	read := func() *unstructured.Unstructured {
		t.Helper()
		object, err := r.Get(t.Context(), "w", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return object
	}
	var parts []string
	if p.at != "" {
		parts = []string{p.at}
	}
	before := read()
	if _, err := r.Patch(t.Context(), "w", types.MergePatchType, []byte(p.body), metav1.PatchOptions{},
		parts...); err != nil {
		t.Fatalf("%s: %v", p.body, err)
	}
	after := read()
	if raised := after.GetGeneration() - before.GetGeneration(); raised != p.raises {
		t.Errorf("%s %s raises the generation by %d, want %d", p.body, p.at, raised, p.raises)
	}
	if p.at == "status" {
		previous, _, _ := unstructured.NestedInt64(before.Object, "spec", "replicas")
		if got, _, _ := unstructured.NestedInt64(after.Object, "spec", "replicas"); got != previous {
			t.Errorf("%s: by the status, the spec was changed", p.body)
		}
	}
}

// TestADefinitionChangesItsObjectsUnseen: a default that a definition has got, and a field
// that it has lost, show in all its objects as they are read. That raises nothing: who goes by
// an object's metadata must know of its definition's, too.
func TestADefinitionChangesItsObjectsUnseen(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	define := func(fields string) {
		establish(t, c, `
  group: unseen.example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {`+fields+`}}}}}}]`)
	}
	define("a: {type: string}, b: {type: string}")
	widget := sandboxtest.ParseObject(t,
		"{apiVersion: unseen.example.com/v1, kind: Widget, metadata: {name: w, namespace: "+namespace+
			"}, spec: {a: a}}")
	kind, before := find(t, c, widget), sandboxtest.ApplyObject(t, c, widget).Object
	define("b: {type: string, default: b}")
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		after, err := c.In(kind, namespace).Get(ctx, "w", metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, hasA, _ := unstructured.NestedString(after.Object, "spec", "a")
		if b, _, _ := unstructured.NestedString(after.Object, "spec", "b"); hasA || b != "b" {
			return errors.New("it is as it was")
		}
		if after.GetGeneration() != before.GetGeneration() ||
			after.GetResourceVersion() != before.GetResourceVersion() {
			t.Errorf("the object has generation %d, resource version %s", after.GetGeneration(),
				after.GetResourceVersion())
		}
		return nil
	})
}
