package lint_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestPublicSets lints the folders in the folder that RUNLEVEL_TEST_SETS names, such as the rendered manifests of
// well-known projects. Each error is one of the set, or a false one.
func TestPublicSets(t *testing.T) {
	folder := os.Getenv("RUNLEVEL_TEST_SETS")
	if folder == "" {
		t.Skip("RUNLEVEL_TEST_SETS names no folder")
	}
	sets, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range sets {
		t.Run(set.Name(), func(t *testing.T) {
			read, problems, err := payload.Parse(t.Context(), os.DirFS(filepath.Join(folder, set.Name())),
				payload.Options{Namespace: "default", KeepText: true})
			if err != nil {
				t.Fatal(err)
			}
			if errors := errorsOf(run(t, lint.Input{Payload: read, Problems: problems}).Findings); errors != "" {
				t.Errorf("each of these is true, or a false error to be reported:\n%s", errors)
			}
		})
	}
}
