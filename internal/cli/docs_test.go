package cli_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"testing"

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/cli/core"
)

var update = flag.Bool("update", false, "draw the pictures of the documentation again")

// TestPicturesOfTheDocumentation compares them with the current pictures.
func TestPicturesOfTheDocumentation(t *testing.T) {
	for file, flags := range map[string][]string{
		"../../docs/graph-update.svg":  {"--mode", "update"},
		"../../docs/graph-install.svg": {"--mode", "install", "--edges", "all"},
	} {
		var drawn, problems bytes.Buffer
		args := append([]string{"graph", "../../examples/webshop", "--name", "webshop", "--release-version", "1.4.0",
			"-o", "svg"}, flags...)
		if code := cli.Run(context.Background(), args, core.Streams{Out: &drawn, Err: &problems}); code != 0 {
			t.Fatalf("exit code %d: %s", code, &problems)
		}
		if *update {
			if err := os.WriteFile(file, drawn.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(have, drawn.Bytes()) {
			t.Errorf("%s is outdated: run make generate (%v)", file, err)
		}
	}
}

// TestDocumentedPlan compares the example with the current output.
func TestDocumentedPlan(t *testing.T) {
	page, err := os.ReadFile("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	folder := "../../examples/removals/autoscaler/"
	if printed := run(t, "plan", folder+"old", folder+"new"); !bytes.Contains(page, []byte(printed)) {
		t.Errorf("docs/plan.md does not have the output of runlevel:\n%s", printed)
	}
}
