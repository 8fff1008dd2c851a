package sandboxtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/runlevel/runlevel/internal/sandbox/realnode"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ReadRelease reads a release from a txtar archive of files, in which it replaces NS by a namespace.
func ReadRelease(ctx context.Context, namespace, files string, o payload.Options) (*payload.Payload, error) {
	folder, err := txtar.FS(txtar.Parse([]byte(strings.ReplaceAll(files, "NS", namespace))))
	if err != nil {
		return nil, err
	}
	release, _, err := payload.Load(ctx, folder, o)
	return release, err
}

// LoadRelease reads a release like ReadRelease. The test fails if the release has problems.
func LoadRelease(t testing.TB, namespace, files string, o payload.Options) *payload.Payload {
	t.Helper()
	release, err := ReadRelease(t.Context(), namespace, files, o)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

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

// builds allows one build at a time: concurrent builds would link the same program.
var builds sync.Mutex

// Program builds a program of the module into bin, the folder of make build, and returns its path. If the program is up
// to date, it is not linked again: linking would take longer than most tests.
func Program(t testing.TB, name string) string {
	t.Helper()
	NeedControlPlane(t)
	builds.Lock()
	defer builds.Unlock()
	const module = "github.com/runlevel/runlevel"
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal("find the module: ", err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join("bin", name), "./cmd/"+name)
	build.Dir = strings.TrimSpace(string(folder)) // the test may be in a nested module
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return filepath.Join(build.Dir, "bin", name)
}

// NodesVariable enables tests on real nodes. If a program is missing, "wanted" skips the tests, and "required" fails
// them.
const NodesVariable = "RUNLEVEL_TEST_NODES"

// NeedRealNodes skips a test that needs real nodes, unless NodesVariable is set, as by "make test-node".
func NeedRealNodes(t testing.TB) {
	t.Helper()
	NeedControlPlane(t)
	wanted := os.Getenv(NodesVariable)
	if wanted == "" {
		t.Skip(`this test needs real nodes: "make test-node" runs it`)
	}
	switch _, err := realnode.FindPrograms(); {
	case err != nil && wanted == "required":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
}
