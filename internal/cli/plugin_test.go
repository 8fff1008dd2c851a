package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/cli/core"
)

// TestHelpOfThePlugin runs the program under the names that kubectl's plugins have.
func TestHelpOfThePlugin(t *testing.T) {
	name := os.Args[0]
	t.Cleanup(func() { os.Args[0] = name })
	for program, want := range map[string]string{
		"/usr/bin/kubectl-runlevel": "kubectl runlevel plan ",
		"kubectl-runlevel.exe":      "kubectl runlevel plan ",
		"/kubectl-1.37/runlevel":    "runlevel plan ",
	} {
		os.Args[0] = program
		var out, stderr bytes.Buffer
		streams := core.Streams{In: strings.NewReader(""), Out: &out, Err: &stderr}
		if code := Run(t.Context(), []string{"plan", "--help"}, streams); code != 0 {
			t.Fatal(stderr.String())
		}
		if !strings.Contains(out.String(), "\nUsage:\n  "+want) {
			t.Errorf("%s: want %q in\n%s", program, want, out.String())
		}
		prefix := strings.TrimSuffix(want, "plan ")
		for verb, example := range map[string]string{
			"list":    "\nExamples:\n  " + prefix + "list\n",
			"convert": " | " + prefix + "convert - ",
			"sandbox": `"$(` + prefix + `sandbox kubeconfig)"`,
		} {
			out.Reset()
			if Run(t.Context(), []string{verb, "--help"}, streams); !strings.Contains(out.String(), example) {
				t.Errorf("%s: want %q in\n%s", program, example, out.String())
			}
		}
		Run(t.Context(), []string{"plan", "--nothing"}, streams)
		if !strings.Contains(stderr.String(), `see "`+want+`--help"`) {
			t.Errorf("%s: got error\n%s", program, stderr.String())
		}
	}
}
