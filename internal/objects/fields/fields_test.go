package fields_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/runlevel/runlevel/internal/objects/fields"
)

// object reads one of YAML.
func object(t testing.TB, text string) map[string]any {
	t.Helper()
	var read map[string]any
	if err := utilyaml.Unmarshal([]byte(text), &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// lines are changes as people read them.
func lines(changes []fields.Difference) []string {
	lines := []string{}
	for _, change := range changes {
		old, _ := json.Marshal(change.Old)
		next, _ := json.Marshal(change.New)
		lines = append(lines, fmt.Sprintf("%s: %s -> %s", change.Path, old, next))
	}
	return lines
}

func TestDiffOfFields(t *testing.T) {
	for name, test := range map[string]struct {
		before, after string
		want          []string
	}{
		"nothing": {`{a: {b: [1, two, {c: null}]}}`, `{a: {b: [1, two, {c: null}]}}`, []string{}},
		"scalars": {`{a: 1, b: x, c: true, d: 1.5}`, `{a: 2, b: z, c: false, d: 2.5}`,
			[]string{`a: 1 -> 2`, `b: "x" -> "z"`, `c: true -> false`, `d: 1.5 -> 2.5`}},
		"a number and a text": {`{a: 1}`, `{a: "1"}`, []string{`a: 1 -> "1"`}},
		"added and removed": {`{a: {b: 1, c: 2}}`, `{a: {c: 2, d: {e: 3}}}`,
			[]string{`a.b: 1 -> null`, `a.d: null -> {"e":3}`}},
		"null is not there": {`{a: null, b: {c: null}}`, `{b: {}}`, []string{}},
		"empty is there":    {`{a: {}, b: []}`, `{}`, []string{`a: {} -> null`, `b: [] -> null`}},
		"of another type": {`{a: {b: 1}, c: [1], d: x}`, `{a: [1], c: x, d: {b: 1}}`,
			[]string{`a: {"b":1} -> [1]`, `c: [1] -> "x"`, `d: "x" -> {"b":1}`}},
		"keys with dots": {`{metadata: {annotations: {a.b/c: x, "": x, d e: x}}}`,
			`{metadata: {annotations: {a.b/c: z, "": z, d e: z}}}`,
			[]string{`metadata.annotations[""]: "x" -> "z"`, `metadata.annotations["a.b/c"]: "x" -> "z"`,
				`metadata.annotations["d e"]: "x" -> "z"`}},
		"items of the same name": {`{c: [{name: a, v: 1}, {name: b, v: 1}]}`,
			`{c: [{name: b, v: 2}, {name: c, v: 1}]}`,
			[]string{`c[name=a]: {"name":"a","v":1} -> null`, `c[name=b].v: 1 -> 2`,
				`c[name=c]: null -> {"name":"c","v":1}`}},
		"in another order": {`{c: [{name: a}, {name: b}, {name: x}]}`, `{c: [{name: b}, {name: a}, {name: z}]}`,
			[]string{`c[name=x]: {"name":"x"} -> null`, `c[name=z]: null -> {"name":"z"}`,
				`c: ["a","b"] -> ["b","a"]`}},
		"items of the same port": {`{p: [{port: 80, a: 1}, {port: 81}]}`, `{p: [{port: 81}, {port: 80, a: 2}]}`,
			[]string{`p[port=80].a: 1 -> 2`, `p: ["80","81"] -> ["81","80"]`}},
		"one item without a name": {`{c: [{name: a, v: 1}, {v: 1}]}`, `{c: [{name: a, v: 2}, {v: 1}]}`,
			[]string{`c[0].v: 1 -> 2`}},
		"a name twice": {`{c: [{name: a}, {name: a, v: 1}]}`, `{c: [{name: a}, {name: a, v: 2}]}`,
			[]string{`c[1].v: 1 -> 2`}},
		"items without names": {`{r: [{verbs: [get]}, {verbs: [list]}]}`,
			`{r: [{verbs: [get, list]}, {verbs: [list]}]}`, []string{`r[0].verbs[1]: null -> "list"`}},
		"an item put in front":       {`{args: [a, b, c]}`, `{args: [x, a, b, c]}`, []string{`args[0]: null -> "x"`}},
		"an item taken from between": {`{args: [a, b, b, c]}`, `{args: [a, b, c]}`, []string{`args[1]: "b" -> null`}},
		"an item put in and one else": {`{args: [a, b, c]}`, `{args: [a, x, z, c]}`,
			[]string{`args[1]: "b" -> "x"`, `args[2]: null -> "z"`}},
		"from nothing": {`null`, `{a: 1}`, []string{`a: null -> 1`}},
		"a Secret": {`{apiVersion: v1, kind: Secret, type: A, data: {a: x, b: x, c: x}}`,
			`{apiVersion: v1, kind: Secret, type: B, data: {a: x, b: z, d: z}}`,
			[]string{`data.b: "***" -> "*** (changed)"`, `data.c: "***" -> null`, `data.d: null -> "***"`,
				`type: "A" -> "B"`}},
		"a Secret's data, all at once": {`{apiVersion: v1, kind: Secret, data: {a: x, b: x}}`,
			`{apiVersion: v1, kind: Secret, stringData: {a: x}}`,
			[]string{`data: {"a":"***","b":"***"} -> null`, `stringData: null -> {"a":"***"}`}},
		"a Secret with broken data": {`{apiVersion: v1, kind: Secret, data: x, stringData: [x]}`,
			`{apiVersion: v1, kind: Secret, data: {a: x}, stringData: [z]}`,
			[]string{`data: "***" -> {"a":"***"}`, `stringData: "***" -> "*** (changed)"`}},
		"a copy of a Secret": {`{apiVersion: v1, kind: Secret, metadata: {annotations: {a: x, kubectl.kubernetes.io/last-applied-configuration: x}}}`, `{apiVersion: v1, kind: Secret, metadata: {annotations: {a: z, kubectl.kubernetes.io/last-applied-configuration: z}}}`,
			[]string{`metadata.annotations.a: "***" -> "*** (changed)"`,
				`metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]: "***" -> "*** (changed)"`}},
		"no Secret any more": {`{apiVersion: v1, kind: Secret, data: {a: x}}`,
			`{apiVersion: v1, kind: ConfigMap, data: {a: z}}`,
			[]string{`data.a: "***" -> "*** (changed)"`, `kind: "Secret" -> "ConfigMap"`}},
		"a Secret whose version begins with a slash": {`{apiVersion: /v1, kind: Secret, data: {a: x}}`,
			`{apiVersion: /v1, kind: Secret, data: {a: z}}`, []string{`data.a: "***" -> "*** (changed)"`}},
		"Secrets within something": {`{objects: [{apiVersion: v1, kind: Secret, data: {a: x}}, {apiVersion: v1, kind: Secret, name: x}, {a: x}], one: {apiVersion: v1, kind: Secret, data: {a: x}}}`,
			`{objects: [{apiVersion: v1, kind: Secret, data: {a: z}}, {apiVersion: v1, kind: Secret, name: z}, {a: z}, {apiVersion: v1, kind: Secret, data: {a: x}}], one: x, other: [{apiVersion: v1, kind: Secret, data: {a: x}}]}`,
			[]string{`objects[0].data.a: "***" -> "*** (changed)"`, `objects[1].name: "x" -> "z"`,
				`objects[2].a: "x" -> "z"`,
				`objects[3]: null -> {"apiVersion":"v1","data":{"a":"***"},"kind":"Secret"}`,
				`one: {"apiVersion":"v1","data":{"a":"***"},"kind":"Secret"} -> "x"`,
				`other: null -> [{"apiVersion":"v1","data":{"a":"***"},"kind":"Secret"}]`}},
		"nested Secrets that differ in secret values": {`{objects: [{apiVersion: v1, kind: Secret, name: x1, data: {}}, {apiVersion: v1, kind: Secret, name: x2, data: {}}]}`,
			`{objects: [{apiVersion: v1, kind: Secret, name: x1, data: {}}, {apiVersion: v1, kind: Secret, name: x3, data: {}}]}`, []string{`objects[1].name: "***" -> "*** (changed)"`}},
		"names to be quoted": {`{l: [{name: a.b, v: 1}, {name: "a]", v: 1}, {name: "a b=", v: 1}, {name: a, v: 1}]}`,
			`{l: [{name: a.b, v: 2}, {name: "a]", v: 2}, {name: "a b=", v: 2}, {name: a, v: 2}]}`,
			[]string{`l[name="a.b"].v: 1 -> 2`, `l[name="a]"].v: 1 -> 2`, `l[name="a b="].v: 1 -> 2`,
				`l[name=a].v: 1 -> 2`}},
		"a Secret of another group": {`{apiVersion: example.com/v1, kind: Secret, data: {a: x}}`,
			`{apiVersion: example.com/v1, kind: Secret, data: {a: z}}`, []string{`data.a: "x" -> "z"`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := lines(fields.Diff(object(t, test.before), object(t, test.after)))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestListsWithinLists: to compare them must not take longer the deeper they are, or
// this would not end.
func TestListsWithinLists(t *testing.T) {
	const deep = 50_000
	nested := func(value any) map[string]any {
		for range deep {
			value = []any{value}
		}
		return map[string]any{"a": value}
	}
	changes := fields.Diff(nested("1"), nested("2"))
	if len(changes) != 1 || len(changes[0].Path) != deep+1 || changes[0].New != "2" {
		t.Errorf("%d changes", len(changes))
	}
}

// TestItemsAreMatchedByTheirFirstKey: if items have several fields of
// identities, the first one matches them.
func TestItemsAreMatchedByTheirFirstKey(t *testing.T) {
	telling := []string{"name", "mountPath", "containerPort", "port", "key", "type", "ip"}
	for i, key := range telling {
		list := func(changed string) map[string]any {
			entry, other := map[string]any{"v": changed}, map[string]any{}
			for _, name := range telling[i:] {
				entry[name], other[name] = "x", "y"
			}
			return map[string]any{"l": []any{other, entry}}
		}
		want := []string{"l[" + key + `=x].v: "1" -> "2"`}
		if diff := cmp.Diff(want, lines(fields.Diff(list("1"), list("2")))); diff != "" {
			t.Error(diff)
		}
	}
}

// TestKeysLeadToTheValue follows the path of each change into the objects.
func TestKeysLeadToTheValue(t *testing.T) {
	before := object(t, `{c: [{name: a, v: 1}, {name: b, v: [x, q]}, {name: old}], m: {k.k: 1}}`)
	after := object(t, `{c: [{name: new}, {name: b, v: [x, z]}, {name: a, v: 2}], m: {k.k: 2}}`)
	want := map[string]string{
		"c[name=a].v":    "c 2 v",
		"c[name=b].v[1]": "c 1 v 1",
		"c[name=old]":    "c 2",
		"c[name=new]":    "c 0",
		"c":              "c",
		`m["k.k"]`:       "m k.k",
	}
	got := map[string]string{}
	for _, change := range fields.Diff(before, after) {
		got[change.Path.String()] = strings.Join(change.Path.Keys(), " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAChangeInJSON(t *testing.T) {
	changes := fields.Diff(object(t, `{a: {b: false, c: 0, d: 1}}`), object(t, `{a: {b: true, c: null, d: ""}}`))
	text, err := json.Marshal(changes)
	if err != nil {
		t.Fatal(err)
	}
	if want := `[{"path":"a.b","old":false,"new":true},{"path":"a.c","old":0},{"path":"a.d","old":1,"new":""}]`; string(
		text,
	) != want {
		t.Errorf("%s, want %s", text, want)
	}
}

func TestMaskSecrets(t *testing.T) {
	for name, test := range map[string]struct{ object, want string }{
		"all secret values": {
			`{apiVersion: v1, kind: Secret, type: Opaque, metadata: {name: s, annotations: {a: b, release.openshift.io/delete: "true", include.release.openshift.io/x: "true", runlevel.dev/x: "y", capability.openshift.io/name: a, kubectl.kubernetes.io/last-applied-configuration: x}}, data: {a: x, b: null}, stringData: {c: x}}`,
			`{apiVersion: v1, kind: Secret, type: Opaque, metadata: {name: s, annotations: {a: "***", release.openshift.io/delete: "true", include.release.openshift.io/x: "true", runlevel.dev/x: "y", capability.openshift.io/name: a, kubectl.kubernetes.io/last-applied-configuration: "***"}}, data: {a: "***", b: null}, stringData: {c: "***"}}`},
		"a misspelt field": {`{apiVersion: v1, kind: Secret, immutable: true, dta: {a: x}, password: x}`,
			`{apiVersion: v1, kind: Secret, immutable: true, dta: {a: "***"}, password: "***"}`},
		"odd shapes":            {`{apiVersion: v1, kind: Secret, metadata: x, data: {a: {b: x, c: [x]}}, stringData: x}`, `{apiVersion: v1, kind: Secret, metadata: "***", data: {a: {b: "***", c: "***"}}, stringData: "***"}`},
		"not what they must be": {`{apiVersion: v1, kind: Secret, immutable: x, type: {a: x}, metadata: {annotations: [x], managedFields: [x]}}`, `{apiVersion: v1, kind: Secret, immutable: "***", type: {a: "***"}, metadata: {annotations: "***", managedFields: "***"}}`},
		"within something": {`{kind: Template, objects: [{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: x}}, {a: b}], one: {apiVersion: v1, kind: Secret, dta: [x]}}`,
			`{kind: Template, objects: [{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: "***"}}, {a: b}], one: {apiVersion: v1, kind: Secret, dta: "***"}}`},
		"a reference to a Secret": {`{ref: {apiVersion: v1, kind: Secret, name: s, namespace: n, key: k}}`,
			`{ref: {apiVersion: v1, kind: Secret, name: s, namespace: n, key: k}}`},
		"a slash in front": {`{apiVersion: /v1, kind: Secret, stringData: {a: x}}`,
			`{apiVersion: /v1, kind: Secret, stringData: {a: "***"}}`},
		"no secret": {`{apiVersion: v1, kind: ConfigMap, data: {a: x}}`,
			`{apiVersion: v1, kind: ConfigMap, data: {a: x}}`},
		"nothing":      {`null`, `null`},
		"nothing much": {`{apiVersion: v1, kind: Secret}`, `{apiVersion: v1, kind: Secret}`},
	} {
		t.Run(name, func(t *testing.T) {
			given := object(t, test.object)
			kept := runtime.DeepCopyJSON(given)
			if diff := cmp.Diff(object(t, test.want), fields.Mask(given)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(kept, given); diff != "" {
				t.Errorf("the object itself was changed:\n%s", diff)
			}
		})
	}
}

// FuzzDiff compares any two objects. Planted secrets are never shown.
func FuzzDiff(f *testing.F) {
	const planted = "PLANTED"
	f.Add(`{"a":[{"name":"x"},{"name":"y"}]}`, `{"a":[{"name":"y","b":1.5},null]}`)
	f.Add(`{"kind":"Secret","apiVersion":"v1","data":{"a":"PLANTED1","b":[{"c":"PLANTED2"}]}}`,
		`{"kind":"Secret","apiVersion":"v1","stringData":{"a":"PLANTED"}}`)
	f.Add(`{"kind":"Secret","apiVersion":"v1","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"PLANTED"}}}`, `{"kind":"Secret","apiVersion":"v1","metadata":null,"data":["PLANTED"]}`)
	f.Fuzz(func(t *testing.T, name, other string) {
		var before, after map[string]any
		if utilyaml.Unmarshal([]byte(name), &before) != nil || utilyaml.Unmarshal([]byte(other), &after) != nil {
			return
		}
		keptBefore, keptAfter := runtime.DeepCopyJSON(before), runtime.DeepCopyJSON(after)
		changes := fields.Diff(before, after)
		refused := fields.Immutable(before, after, changes)
		if len(fields.Diff(before, before))+len(fields.Diff(after, keptAfter)) > 0 {
			t.Error("an object differs from itself")
		}
		if len(changes) == 0 && cmp.Diff(withoutNull(before), withoutNull(after)) != "" {
			t.Error("a difference is not found")
		}
		if back := fields.Diff(after, before); (len(back) == 0) != (len(changes) == 0) {
			t.Errorf("forth %v, and back %v", lines(changes), lines(back))
		}
		if cmp.Diff(keptBefore, before) != "" || cmp.Diff(keptAfter, after) != "" {
			t.Error("an object was changed")
		}
		shown := strings.Join(lines(changes), "\n") + fmt.Sprint(changes, refused, fields.Mask(before))
		isHidden := before["kind"] == "Secret" && before["apiVersion"] == "v1" &&
			!strings.Contains(withoutSecrets(before, after), planted)
		if isHidden && strings.Contains(shown, planted) {
			t.Errorf("a secret is shown: %s", shown)
		}
		for _, change := range changes {
			if len(change.Path.Keys()) != len(change.Path) {
				t.Errorf("%s leads nowhere", change.Path)
			}
		}
	})
}

// withoutSecrets returns the parts of objects beside the values that only Secrets have, keys
// included: it may be shown.
func withoutSecrets(objects ...map[string]any) string {
	var left []any
	for _, object := range objects {
		rest := runtime.DeepCopyJSON(object)
		for key, value := range rest {
			_, isText := value.(string)
			_, isBool := value.(bool)
			_, isMapping := value.(map[string]any)
			isShown := slices.Contains([]string{"apiVersion", "kind", "type"}, key) && isText ||
				key == "immutable" && isBool || key == "metadata" && isMapping
			if !isShown {
				left = append(left, key, keysOf(value))
				delete(rest, key)
			}
		}
		metadata, _ := rest["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		left = append(left, keysOf(metadata["annotations"]), keysOf(metadata["managedFields"]))
		delete(metadata, "managedFields")
		for key := range annotations {
			if domain, _, _ := strings.Cut(key, "/"); !strings.HasSuffix(domain, "release.openshift.io") &&
				domain != "capability.openshift.io" && domain != "runlevel.dev" {
				delete(annotations, key)
			}
		}
		if annotations == nil {
			delete(metadata, "annotations")
		}
		left = append(left, rest)
	}
	return fmt.Sprint(left)
}

func keysOf(value any) []any {
	var keys []any
	mapping, _ := value.(map[string]any)
	for key, below := range mapping {
		keys = append(keys, key, keysOf(below))
	}
	return keys
}

// withoutNull returns a value without its null fields.
func withoutNull(value any) any {
	switch value := value.(type) {
	case map[string]any:
		left := map[string]any{}
		for key, below := range value {
			if below != nil {
				left[key] = withoutNull(below)
			}
		}
		return left
	case []any:
		left := []any{}
		for _, below := range value {
			if below != nil {
				left = append(left, withoutNull(below))
			}
		}
		return left
	default:
		return value
	}
}
