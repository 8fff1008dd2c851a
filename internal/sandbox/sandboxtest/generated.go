package sandboxtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// CheckGenerated compares the files that controller-gen generates from the package under test with those in the
// repository, or writes them if update is set. The keys of files are the names that controller-gen uses; root is the
// path to the repository.
func CheckGenerated(t *testing.T, root string, files map[string]string, update bool) {
	t.Helper()
	tools := "-modfile=" + filepath.Join(root, "tools", "go.mod")
	if err := exec.CommandContext(t.Context(), "go", "tool", tools, "controller-gen", "--version").Run(); err != nil {
		t.Skip("controller-gen can't be built here:", err)
	}
	folder := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "tool", tools, "controller-gen", "paths=.", "object", "crd",
		"output:dir="+folder).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, file := range files {
		want, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is not current (\"make generate\" writes it): (-want +got)\n%s", file, diff)
		}
	}
}
