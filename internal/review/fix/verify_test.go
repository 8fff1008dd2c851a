package fix

import (
	"testing"

	"github.com/runlevel/runlevel/pkg/payload"
)

// TestVerifyTrustsNobody gives corrections that nothing in this package makes: those that
// do something else than they say, and those that would delete what was not to be.
func TestVerifyTrustsNobody(t *testing.T) {
	const text = "metadata:\n  annotations:\n    " + payload.DeleteAnnotation + ": "
	path := []string{"metadata", "annotations", payload.DeleteAnnotation}
	at := len(text)
	for name, test := range map[string]struct {
		value      string // of the delete annotation
		correction correction
		want       bool
	}{
		"what said yes":               {"yes", correction{edit: edit{at, at + 3, `"true"`}, path: path, value: "true"}, true},
		"what was asked for":          {"no!", correction{edit: edit{at, at + 3, `"true"`}, path: path, value: "true", delete: true}, true},
		"what said no":                {"no!", correction{edit: edit{at, at + 3, `"true"`}, path: path, value: "true"}, false},
		"what says something else":    {"yes", correction{edit: edit{at, at + 3, `"True"`}, path: path, value: "true"}, false},
		"what changes something else": {"yes", correction{edit: edit{at, at + 3, "\"true\"\n    a: b"}, path: path, value: "true"}, false},
		"what cuts the document":      {"yes", correction{edit: edit{at, at + 3, "\"true\"\n---\na: b"}, path: path, value: "true"}, false},
		"what breaks it":              {"yes", correction{edit: edit{at, at + 3, `"true`}, path: path, value: "true"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			documents, err := payload.Documents([]byte(text + test.value + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			if value, ok := verify(documents[0], []correction{test.correction}); ok != test.want {
				t.Errorf("it is %t for %v", ok, value)
			}
		})
	}
}
