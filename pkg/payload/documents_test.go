package payload_test

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/pkg/payload"
)

// TestDocumentsAreThoseOfManifests compares what Documents and Parse count, and looks at
// where the documents stand.
func TestDocumentsAreThoseOfManifests(t *testing.T) {
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	const inJSON = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`
	for name, test := range map[string]struct {
		text string
		want []int // the numbers of documents that can be read
	}{
		"one":                        {object, []int{1}},
		"several":                    {object + "---\n" + object, []int{1, 2}},
		"empty ones do not count":    {"# comment\n---\n---\n" + object + "---\n# no\n--- # x\n" + object, []int{1, 2}},
		"broken ones do":             {"[\n---\n" + object, []int{2}},
		"a byte order mark":          {"\xef\xbb\xbf" + object + "---\n" + object, []int{1, 2}},
		"JSON one behind the other":  {inJSON + "\n" + inJSON + " " + inJSON + "\n---\n" + inJSON, []int{1, 2, 3, 4}},
		"JSON that breaks off":       {inJSON + "\n" + inJSON + "{\n---\n" + object, []int{1, 2, 4}},
		"YAML behind JSON":           {inJSON + "\n" + object, []int{1, 2}},
		"line breaks of another age": {"---\r\n" + object + "---\r\n" + object, []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			documents, err := payload.Documents([]byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			var numbers []int
			for i, d := range documents {
				if d.Number != i+1 || test.text[d.Start:d.Start+len(d.Text)] != string(d.Text) {
					t.Errorf("document %d does not stand at %d: %q", d.Number, d.Start, d.Text)
				}
				if d.Value != nil {
					numbers = append(numbers, d.Number)
				}
			}
			if diff := cmp.Diff(test.want, numbers); diff != "" {
				t.Errorf("documents (-want +got):\n%s", diff)
			}
			read, _, err := payload.Parse(t.Context(), fstest.MapFS{"a.yaml": {Data: []byte(test.text)}},
				payload.Options{})
			if err != nil {
				t.Fatal(err)
			}
			numbers = nil
			for _, m := range read.Manifests {
				numbers = append(numbers, m.Document)
			}
			if diff := cmp.Diff(test.want, numbers); diff != "" {
				t.Errorf("manifests (-want +got):\n%s", diff)
			}
		})
	}
	if documents, err := payload.Documents([]byte("a: b\n--- c\n")); err == nil {
		t.Errorf("what can't be cut is cut into %v", documents)
	}
}
