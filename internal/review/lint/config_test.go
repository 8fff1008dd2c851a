package lint_test

import (
	"testing"

	"github.com/runlevel/runlevel/internal/review/lint"
)

// TestRefusedConfigurations checks that each is reported in one line.
func TestRefusedConfigurations(t *testing.T) {
	for text, want := range map[string]string{
		"a text":                               "c: line 1: this must be a mapping",
		"ignore: []\nignored: []":              `c: line 2: unknown key "ignored" here: there are kubernetesVersion, severities, ignore and known`,
		"known:\n  object: []":                 `c: line 2: unknown key "object" here: there are namespaces, capabilities, featureSets, featureGates and objects`,
		"known: []":                            "c: line 1: this must be a mapping",
		"known: {objects: Secret}":             "c: line 1: this must be a list of names",
		"ignore:\n- {rule: dropped, why: old}": `c: line 2: unknown key "why" here: there are rule, file, object and reason`,
		"ignore:\n-":                           "c: ignore has an empty entry: write a rule and a reason, or drop it",
		"severities: {dropped: [off]}":         "c: line 1: this must be a string",
		"known: {}\nignore: []\nknown: {}":     `c: line 3: the key "known" occurs twice: leave one out`,
		"known: {}\n---\nignore: []":           `c: line 2: the file has one document only: remove "---" and everything below it`,
		"known:\n\tobjects: []":                "c: line 2: this line begins with a tab: indent it with blanks",
		"kubernetesVersion: new":               `c: kubernetesVersion is "new", and must be a version such as 1.34`,
	} {
		if _, err := lint.ParseConfig("c", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
