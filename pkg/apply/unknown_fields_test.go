package apply_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// hats is a definition with many places where a field may be unknown.
const hats = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hats.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Hat, plural: hats}
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
              price: {type: integer}
              # NEW
              byName: {type: object, additionalProperties: {type: object, properties: {size: {type: integer}}}}
              byIndex: {type: array, items: {type: object, properties: {size: {type: integer}}}}
              byKey:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name, kind]
                items: {type: object, required: [name], properties: {name: {type: string}, kind: {type: string, default: plain}, size: {type: integer}}}
`

const unknownHat = `
-- 0000_10_shop_50_hat.yaml --
{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: hat, namespace: NS}, colour: red, spec: {price: 3, prize: 4, "pri.ze": 5,
 byName: {shop.example.com/a: {size: 1, weight: 2}, b: {weight: 3}, "": {size: 4}},
 byIndex: [{size: 1}, {size: 2, weight: 3, height: 4}, {depth: 5}],
 byKey: [{name: "a,b]=", size: 1, weight: 2}, {name: c, kind: fine, weight: 3, size: 2}]}}
-- 0000_20_shop_50_hat.yaml --
{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: cap, namespace: NS}, spec: {price: 3, prize: 4}}
`

// place is the path of the fields in messages of the API server.
var place = []string{
	`.colour`, `.spec.byIndex[1].height`, `.spec.byIndex[1].weight`, `.spec.byIndex[2].depth`,
	`.spec.byKey[kind="fine",name="c"].weight`, `.spec.byKey[kind="plain",name="a,b]="].weight`,
	`.spec.byName.b.weight`, `.spec.byName.shop.example.com/a.weight`, `.spec.pri.ze`, `.spec.prize`,
}

func TestUnknownFieldsAreAllNamed(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	install(t, namespace, hats)
	did := run(t, t.Context(), load(t, namespace, namespace, unknownHat), apply.Options{})
	want := "Hat NS/hat (0000_10_shop_50_hat.yaml:1, level 10, shop): unknown field " +
		strings.Join(place, ", ") +
		": correct or remove it, or drop unknown fields"
	if diff := cmp.Diff(want, did.sentence(namespace)); diff != "" {
		t.Error(diff)
	}
	if retries := did.retries(namespace); len(retries) > 0 {
		t.Error("got retries:", retries)
	}
}

func TestUnknownFieldsAreLeftOut(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	install(t, namespace, hats)
	did := run(t, t.Context(), load(t, namespace, namespace, unknownHat), apply.Options{
		Options: object.Options{DropUnknownFields: true},
	})
	if did.Err != nil {
		t.Fatal(did.Err)
	}
	want := `{"byIndex":[{"size":1},{"size":2},{}],"byKey":[{"kind":"plain","name":"a,b]=","size":1},{"kind":"fine","name":"c","size":2}],` +
		`"byName":{"":{"size":4},"b":{},"shop.example.com/a":{"size":1}},"price":3}`
	if diff := cmp.Diff(want, spec(t, namespace, "hat")); diff != "" {
		t.Error(diff)
	}
	var wanted []apply.Warning
	for _, field := range place {
		files := []string{"0000_10_shop_50_hat.yaml"}
		if field == ".spec.prize" {
			files = append(files, "0000_20_shop_50_hat.yaml")
		}
		wanted = append(wanted, apply.Warning{Text: "unknown field " + field + ": dropped", Files: files})
	}
	if diff := cmp.Diff(wanted, did.Warnings, withoutObjects); diff != "" {
		t.Error(diff)
	}
	warnings := 0
	for _, event := range did.events {
		if event.Type == apply.Warned {
			warnings++
		}
	}
	if warnings != len(wanted) {
		t.Errorf("got %d events with warnings, want %d", warnings, len(wanted))
	}
}

// For a moment after a definition has changed, the API server still uses the old schema.
func TestFieldThatIsNewInThisRun(t *testing.T) {
	for name, drop := range map[string]bool{"refused": false, "left out": true} {
		t.Run("if unknown fields are "+name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			install(t, namespace, hats)
			files := "-- 0000_10_shop_10_hats.crd.yaml --" +
				strings.Replace(hats, "# NEW", "brand: {type: string}", 1) +
				"-- 0000_10_shop_50_hat.yaml --\n{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: hat, " +
				"namespace: NS}, spec: {brand: new}}\n"
			did := run(t, t.Context(), load(t, namespace, namespace, files), apply.Options{
				Options: object.Options{DropUnknownFields: drop},
			})
			if did.Err != nil || len(did.Warnings) > 0 {
				t.Fatal(did.Err, did.Warnings)
			}
			if got := spec(t, namespace, "hat"); got != `{"brand":"new"}` {
				t.Error("the new field is missing:", got)
			}
		})
	}
}

// withoutObjects compares warnings by their texts and files: a rehearsal reads the objects.
var withoutObjects = cmpopts.IgnoreFields(apply.Warning{}, "Objects")

// Each warning of the server is reported once, with all files.
func TestWarningsAreReported(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	files := ""
	for _, name := range []string{"a", "b"} {
		files += "-- 0000_10_shop_50_" + name + ".yaml --\n{apiVersion: v1, kind: Pod, metadata: {name: " + name +
			", namespace: NS, annotations: {scheduler.alpha.kubernetes.io/critical-pod: ''}}, " + pod + "}\n"
	}
	did := run(t, t.Context(), load(t, namespace, namespace, files), apply.Options{NoWait: true})
	want := []apply.Warning{{
		Text:  `metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use the "priorityClassName" field instead`,
		Files: []string{"0000_10_shop_50_a.yaml", "0000_10_shop_50_b.yaml"},
	}}
	if diff := cmp.Diff(want, did.Warnings, withoutObjects); diff != "" || did.Err != nil {
		t.Error(did.Err, diff)
	}
}

// install applies a definition as a separate release, and waits until it is served.
func install(t *testing.T, namespace, definition string) {
	t.Helper()
	did := run(t, t.Context(), load(t, namespace, namespace, "-- 0000_10_shop_10_hats.crd.yaml --"+definition),
		apply.Options{})
	if did.Err != nil {
		t.Fatal(did.Err)
	}
}

// spec returns the spec of a Hat as JSON.
func spec(t *testing.T, namespace, name string) string {
	t.Helper()
	c := connect(t)
	resource, err := c.FindKind(t.Context(), schema.GroupKind{Group: namespace + ".example.com", Kind: "Hat"})
	if err != nil {
		t.Fatal(err)
	}
	var hat *unstructured.Unstructured
	if hat, err = c.In(resource, namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(hat.Object["spec"]) // never fails
	return string(text)
}

// A large text with letters of many scripts is stored unchanged.
func TestLargeTextInManyScriptsIsStored(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	text := strings.Repeat("grüß Gott ☃ 你好 🎩 ", 40_000)[:1_040_000]
	text = strings.ToValidUTF8(text, "")
	manifest, _ := json.Marshal(map[string]any{ // never fails
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "large", "namespace": namespace},
		"data": map[string]any{"text": text},
	})
	did := change(t, namespace, "", string(manifest), apply.Options{NoWait: true})
	if did.Err != nil {
		t.Fatal(did.Err)
	}
	arrived, err := test.Client(t).CoreV1().ConfigMaps(namespace).Get(t.Context(), "large", metav1.GetOptions{})
	if err != nil || arrived.Data["text"] != text {
		t.Errorf("%v; got %d of %d bytes", err, len(arrived.Data["text"]), len(text))
	}
	if did = change(t, namespace, "", string(manifest),
		apply.Options{NoWait: true}); did.Changes[0].Action != object.Unchanged {
		t.Errorf("applied again: got action %s", did.Changes[0].Action)
	}
}
