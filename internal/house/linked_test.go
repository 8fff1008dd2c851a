package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// packagesOf returns the packages that a program of cmd is linked from, a line each.
func packagesOf(t *testing.T, program string) string {
	t.Helper()
	command := exec.Command("go", "list", "-deps", "./cmd/"+program)
	command.Dir = root
	listed, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return "\n" + string(listed)
}

// TestTheClusterProgramHasNoValidation: the validation of Kubernetes' own kinds is large, and a newer cluster may
// accept objects that it refuses. So only the command line has it. Programs on a cluster rely on the API server.
func TestTheClusterProgramHasNoValidation(t *testing.T) {
	linked := func(program string) bool {
		return strings.Contains(packagesOf(t, program), "\nk8s.io/kubernetes/")
	}
	if linked("runlevel-cluster") {
		t.Error("runlevel-cluster imports k8s.io/kubernetes: pass the findings of internal/review/refusals as data, " +
			"or remove the import")
	}
	if !linked("runlevel") {
		t.Error("runlevel does not import k8s.io/kubernetes: this test looks for the wrong name")
	}
}

// TestTheApplyPathHasNoMachines: programs that only apply releases don't link the code of machines and of Cluster API.
func TestTheApplyPathHasNoMachines(t *testing.T) {
	command := exec.Command("go", "list", "-deps", "./pkg/apply", "./internal/session/...", "./internal/operator/...")
	command.Dir = root
	listed, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(string(listed)) {
		if strings.Contains(name, "sigs.k8s.io/cluster-api/") || strings.HasPrefix(name, module+"internal/machines/") {
			t.Errorf("the apply path imports %s", strings.TrimSpace(name))
		}
	}
}

// TestTheCommandLineHasNoTestServers: some servers of the sandbox are for tests and the demo alone, and would only make
// the command line larger.
func TestTheCommandLineHasNoTestServers(t *testing.T) {
	linked := packagesOf(t, "runlevel")
	const sandbox = "github.com/runlevel/runlevel/internal/sandbox"
	for _, name := range []string{"hostpods", "etcdcluster", "imageregistry"} {
		if strings.Contains(linked, "\n"+sandbox+"/"+name+"\n") {
			t.Errorf("runlevel imports %s/%s, which is for tests and the demo", sandbox, name)
		}
		if _, err := os.Stat(filepath.Join(root, "internal/sandbox", name)); err != nil {
			t.Errorf("this test looks for the wrong name: %v", err)
		}
	}
	if !strings.Contains(linked, "\n"+sandbox+"\n") {
		t.Error("runlevel does not import the sandbox: this test looks for the wrong name")
	}
}
