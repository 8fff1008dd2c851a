package crd_test

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/crd"
)

// numbered is a definition whose fields are numbers of every kind, with a rule.
const numbered = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: numbers.example.com}
spec:
  group: example.com
  names: {kind: Number, plural: numbers}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: &schema
      openAPIV3Schema:
        type: object
        properties:
          integer: {type: integer, x-kubernetes-validations: [{rule: self < 10, message: integer is less than 10}]}
          number: {type: number}
          either: {x-kubernetes-int-or-string: true}
          filled: {type: object, default: {}, properties: {deep: {type: integer, default: 1}}}
        x-kubernetes-validations:
        - {rule: self.filled.deep == 1, message: deep is 1}
  - {name: v2, served: true, storage: false, schema: *schema}
  - {name: v3, served: false, storage: false, schema: *schema}
`

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	var result map[string]any
	if err := yaml.Unmarshal([]byte(text), &result); err != nil {
		t.Fatal(err)
	}
	return result
}

func numbers(t testing.TB) *crd.Definition {
	t.Helper()
	d, err := crd.NewDefinition(object(t, numbered))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// number is a custom resource with one field.
func number(field string, value any) map[string]any {
	return map[string]any{
		"apiVersion": "example.com/v1",
		"kind":       "Number",
		"metadata":   map[string]any{"name": "a"},
		field:        value,
	}
}

func TestServedVersions(t *testing.T) {
	d := numbers(t)
	if diff := cmp.Diff([]string{"v1", "v2"}, d.Served()); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
	if d.Scope() != "Cluster" {
		t.Errorf("scope is %q", d.Scope())
	}
}

func TestNumbersAreThoseOfJSON(t *testing.T) {
	d := numbers(t)
	for _, tc := range []struct {
		field string
		value any
		want  string
	}{
		{"integer", int64(1), ""},
		{"integer", 1, ""},
		{"integer", 1.0, ""},
		{"integer", math.Copysign(0, -1), ""},
		{"integer", 1.5, "integer: must be of type integer, not number"},
		{"integer", 1e30, "integer: must be of type integer, not number"},
		{"integer", "1", "integer: must be of type integer, not string"},
		{"number", int64(1), ""},
		{"number", 1.5, ""},
		{"number", true, "number: must be of type number, not boolean"},
		{"number", math.NaN(), "the object can't be written as JSON: json: unsupported value: NaN"},
		{"either", int64(80), ""},
		{"either", 80.0, ""},
		{"either", "80", ""},
		{"either", 80.5, "either: must be of type integer or string, not number"},
		{"number", []string{"a"}, "number: must be of type number, not array"},
	} {
		problems := d.Check(t.Context(), number(tc.field, tc.value))
		switch {
		case tc.want == "" && len(problems) > 0:
			t.Errorf("%s: %v (%T) is refused: %v", tc.field, tc.value, tc.value, problems)
		case tc.want != "" && !slices.ContainsFunc(problems, func(p crd.Problem) bool {
			return p.Message == tc.want
		}):
			t.Errorf("%s: %v (%T): want %q, got %v", tc.field, tc.value, tc.value, tc.want, problems)
		}
	}
}

func TestNothingGivenIsChanged(t *testing.T) {
	definition := object(t, numbered)
	crd.CheckDefinition(t.Context(), definition)
	d, err := crd.NewDefinition(definition)
	if err != nil {
		t.Fatal(err)
	}
	before, after := number("unknown", "x"), number("integer", 1.0)
	d.Check(t.Context(), after)
	d.CheckUpdate(t.Context(), before, after)
	for _, tc := range []struct{ got, want map[string]any }{
		{definition, object(t, numbered)}, {before, number("unknown", "x")}, {after, number("integer", 1.0)},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("object was changed (-before +after):\n%s", diff)
		}
	}
}

func TestADefinitionServesManyAtOnce(t *testing.T) {
	d := numbers(t)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			want := 0
			if i >= 10 {
				want = 1
			}
			if got := d.Check(t.Context(), number("integer", int64(i))); len(got) != want {
				t.Errorf("%d has %d problems, want %d: %v", i, len(got), want, got)
			}
		})
	}
	all.Wait()
}

func TestUpdateToleratesUnchangedProblems(t *testing.T) {
	d := numbers(t)
	with := func(field string, value any, either string) map[string]any {
		object := number(field, value)
		object["either"] = either
		return object
	}
	for field, wrong := range map[string]any{"number": "one", "integer": int64(10)} { // a type, and a rule
		if problems := d.CheckUpdate(t.Context(), with(field, wrong, "a"), with(field, wrong, "b")); len(problems) > 0 {
			t.Errorf("%v is refused, which was there before: %v", wrong, problems)
		}
		if problems := d.CheckUpdate(t.Context(), with(field, int64(1), "a"),
			with(field, wrong, "b")); len(problems) == 0 {
			t.Errorf("%v is not refused, which is new", wrong)
		}
	}
}

func TestIncomparableUpdates(t *testing.T) {
	d := numbers(t)
	second := number("integer", int64(1))
	second["apiVersion"] = "example.com/v2"
	unreadable := number("metadata", "text")
	for _, tc := range []struct {
		before map[string]any
		want   string
	}{
		{second, `apiVersion: was "example.com/v2" before, so the two can't be compared`},
		{nil, `apiVersion: was nothing before, so the two can't be compared`},
		{unreadable, "the object before can't be read: metadata: can't be a string"},
	} {
		problems := d.CheckUpdate(t.Context(), tc.before, number("integer", int64(1)))
		if len(problems) != 1 || problems[0].Message != tc.want {
			t.Errorf("want %q, got %v", tc.want, problems)
		}
	}
}

func TestUnusableDefinitions(t *testing.T) {
	for text, want := range map[string]string{
		"kind: ConfigMap": "kind: must be CustomResourceDefinition",
		"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: 1}":                        "spec: can't be a number",
		"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {versions: [{name: v1}]}}": `read the schema of version "v1"`,
		"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {versions: [{name: v1, schema: " +
			"{openAPIV3Schema: {$ref: x}}}]}}": `read the schema of version "v1"`,
	} {
		if _, err := crd.NewDefinition(object(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want %q, got %v", text, want, err)
		}
	}
}
