// Package besidecore tests the machine controller beside Cluster API itself: Cluster API's controller of Clusters, and
// its test extension for updates in place, both from the module sandbox/clusterapi, run as processes on a sandbox.
//
// The package has only tests, which are skipped where the modules of Cluster API can't be fetched. Start with
// core_test.go.
package besidecore

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var shared = machinetest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// module is the folder of the programs' module.
const module = "../../../sandbox/clusterapi"

// program builds the program of Cluster API's parts into bin, once.
var program = sync.OnceValues(func() (string, error) {
	built, err := filepath.Abs("../../../bin/clusterapi")
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-C", module, "-o", built, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build sandbox/clusterapi: %w\n%s", err, out)
	}
	return built, nil
})

// isLocal reports whether the go command has named a command that corrects the module: otherwise something can't be
// fetched.
func isLocal(out []byte) bool {
	return strings.Contains(string(out), "go get ") || strings.Contains(string(out), "go mod tidy")
}

// clusterAPI returns a command of the program. The test is skipped if modules can't be fetched.
func clusterAPI(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	out, err := exec.Command("go", "list", "-C", module, "-deps", ".").CombinedOutput()
	if err != nil && !isLocal(out) {
		t.Skipf("Cluster API can't be fetched, to test beside it: %v\n%s", err, out)
	}
	built, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(built, arguments...)
}

// runCore runs Cluster API's controller of Clusters until the test ends.
func runCore(t *testing.T) {
	t.Helper()
	core := clusterAPI(t, "core")
	core.Env = append(os.Environ(), "KUBECONFIG="+shared.Sandbox(t).Kubeconfig)
	log, err := os.Create(filepath.Join(t.TempDir(), "core.log"))
	if err != nil {
		t.Fatal(err)
	}
	core.Stdout, core.Stderr = log, log
	stdin, err := core.StdinPipe() // it ends with the process of the test
	if err == nil {
		err = core.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := core.Wait(); err != nil {
			t.Error("Cluster API's core has ended:", err)
		}
		_, _ = log.Seek(0, io.SeekStart)
		if text, _ := io.ReadAll(log); t.Failed() {
			t.Logf("Cluster API's core:\n%s", text[max(0, len(text)-20_000):])
		}
		_ = log.Close()
	})
}
