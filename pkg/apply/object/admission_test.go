package object

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestFieldsKeptAsSent(t *testing.T) {
	for name, c := range map[string]struct {
		sent, live string
		want       bool
	}{
		"the same": {"{spec: {a: 1, b: [x, {c: true}]}}", "{spec: {a: 1, b: [x, {c: true}]}}",
			true},
		"with defaults and a status": {"{spec: {a: 1}}", "{spec: {a: 1, b: 2}, status: {c: 3}}", true},
		"a whole number":             {"{spec: {a: 1.0}}", "{spec: {a: 1}}", true},
		"another value":              {"{spec: {a: 1}}", "{spec: {a: 2}}", false},
		"another type":               {"{spec: {a: true}}", `{spec: {a: "true"}}`, false},
		"quantities in another notation": {"{spec: {cpu: 1, memory: 1024Mi, storage: 0.5}}",
			`{spec: {cpu: "1", memory: 1Gi, storage: 500m}}`, true},
		"another quantity":                {"{spec: {cpu: 1}}", `{spec: {cpu: 1m}}`, false},
		"no value":                        {"{spec: {a: true}}", "{spec: {}}", false},
		"no value, for an empty value":    {"{spec: {a: false, b: 0, c: \"\"}}", "{spec: {}}", true},
		"a value, for an empty value":     {"{spec: {a: false}}", "{spec: {a: true}}", false},
		"nothing, where nothing was sent": {"{spec: {a: {}, b: [], c: null}}", "{spec: {}}", true},
		"not a mapping":                   {"{spec: {a: {b: c}}}", "{spec: {a: [b]}}", false},
		"not a list":                      {"{spec: {a: []}}", "{spec: {a: b}}", false},
		"a list with more, in any order": {"{spec: {a: [{n: 1}, {n: 2}]}}",
			"{spec: {a: [{n: 3}, {n: 2, x: y}, {n: 1}]}}", true},
		"a list with less": {"{spec: {a: [{n: 1}, {n: 2}]}}", "{spec: {a: [{n: 2}]}}", false},
		"a status":         {"{status: {a: 1}}", "{}", true},
	} {
		t.Run(name, func(t *testing.T) {
			var sent, live unstructured.Unstructured
			for text, into := range map[string]*unstructured.Unstructured{c.sent: &sent, c.live: &live} {
				if err := yaml.Unmarshal([]byte(text), &into.Object); err != nil {
					t.Fatal(err)
				}
			}
			if got := len(mutatedFields(&live, &sent)) == 0; got != c.want {
				t.Errorf("live %s, sent %s: got %t", c.live, c.sent, got)
			}
		})
	}
}

func TestFieldsChangedByAdmission(t *testing.T) {
	for name, c := range map[string]struct {
		sent, live string
		want       []string
	}{
		"the same, with defaults": {"{spec: {a: x}}", "{spec: {a: x, b: y}, status: {a: z}}", nil},
		"other values": {"{spec: {a: x, b: 1, c: true, d: {e: u}}}",
			"{spec: {a: z, b: 2, c: false, d: {e: w}}}", []string{".spec.a", ".spec.b", ".spec.c", ".spec.d.e"}},
		"values that the server normalizes": {`{spec: {a: 1000m, b: 60s, c: "2026-01-01T00:00:00+00:00"}}`,
			`{spec: {a: "1", b: 1m0s, c: "2026-01-01T00:00:00Z"}}`, nil},
		"other types, and absent": {"{spec: {a: 80, b: x}}", "{spec: {a: http}}", []string{".spec.a?", ".spec.b?"}},
		"labels, and a status": {"{metadata: {labels: {mood: good}}, status: {a: b}}",
			"{metadata: {labels: {mood: bad}}, status: {a: c}}", []string{".metadata.labels.mood"}},
	} {
		t.Run(name, func(t *testing.T) {
			var sent, live unstructured.Unstructured
			for text, into := range map[string]*unstructured.Unstructured{c.sent: &sent, c.live: &live} {
				if err := yaml.Unmarshal([]byte(text), &into.Object); err != nil {
					t.Fatal(err)
				}
			}
			if got := mutatedFields(&live, &sent); !slices.Equal(got, c.want) {
				t.Errorf("got changed fields %v, want %v", got, c.want)
			}
		})
	}
}
