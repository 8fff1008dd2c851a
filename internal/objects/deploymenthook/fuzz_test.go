package deploymenthook_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
)

// FuzzParse looks for texts that Parse panics on, that it reads otherwise when they are printed, that have a problem
// nowhere, or whose values are shown when they are masked.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, annotation string) {
		hooks, problems := deploymenthook.Parse(deployment(t, "Recreate", annotation))
		lines := strings.Split(annotation, "\n")
		for _, p := range problems {
			if p.Line < 1 || p.Line > len(lines) || p.Column < 1 || p.Message == "" {
				t.Errorf("a problem stands at %d:%d of %d lines: %s", p.Line, p.Column, len(lines), p.Message)
			}
		}
		shown := deploymenthook.Masked(annotation)
		if hooks == nil {
			return
		}
		printed, err := yaml.Marshal(hooks)
		if err != nil {
			t.Fatal(err)
		}
		if again := printAgain(t, string(printed)); again != string(printed) {
			t.Errorf("hooks differ when parsed and printed again (-first +second):\n%s",
				cmp.Diff(string(printed), again))
		}
		for _, value := range valuesOf(t, shown) {
			if value != "***" {
				t.Errorf("%q shows the value %q of\n%s", shown, value, annotation)
			}
		}
	})
}

// printAgain reads hooks that have no problems, and prints them.
func printAgain(t *testing.T, annotation string) string {
	t.Helper()
	hooks, problems := deploymenthook.Parse(deployment(t, "Recreate", annotation))
	if hooks == nil {
		t.Fatalf("%s\nis refused: %v", annotation, problems)
	}
	printed, err := yaml.Marshal(hooks)
	if err != nil {
		t.Fatal(err)
	}
	return string(printed)
}

// valuesOf are the values of all environment variables of a text with hooks.
func valuesOf(t *testing.T, annotation string) []string {
	t.Helper()
	hooks, problems := deploymenthook.Parse(deployment(t, "Recreate", annotation))
	if hooks == nil {
		t.Fatalf("%s\nis refused: %v", annotation, problems)
	}
	var values []string
	for _, stage := range deploymenthook.Stages {
		if hook := hooks.Of(stage); hook != nil {
			for _, variable := range hook.ExecNewPod.Env {
				if variable.ValueFrom == nil && variable.Value != "" {
					values = append(values, variable.Value)
				}
			}
		}
	}
	return values
}
