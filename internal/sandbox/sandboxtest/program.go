package sandboxtest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

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
	program := filepath.Join(strings.TrimSpace(string(folder)), "bin", name)
	if out, err := exec.Command("go", "build", "-o", program, module+"/cmd/"+name).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return program
}
