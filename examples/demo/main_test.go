package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestDemo runs the whole demo, with the programs as they are shipped.
func TestDemo(t *testing.T) {
	sandboxtest.NeedControlPlane(t)
	programs := t.TempDir()
	build := exec.Command("go", "build", "-o", programs+string(filepath.Separator), "./cmd/...", "./examples/demo")
	build.Dir = "../.."
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	demo := exec.CommandContext(t.Context(), filepath.Join(programs, "demo"), "-programs", programs)
	demo.Dir = "../.."
	output, err := demo.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	names := regexp.MustCompile(`machines (.*) (?:are there|were updated in place|took their place)`).FindAllSubmatch(
		output, -1,
	)
	if len(names) != 3 || string(names[0][1]) != string(names[1][1]) || string(names[1][1]) == string(names[2][1]) {
		t.Errorf("the machines of the control plane: %s", names)
	}
	for _, pattern := range []string{
		`release default 1\.0\.0 applied in .*: 10 created`,
		`release default 1\.1\.0 applied in .*: 5 configured, 4 unchanged, 1 pending`,
		`blocked by PendingDelete: Deployment hello/hello-cache, which 1\.1\.0 deletes, `,
		`runlevel: the gate stops the update of release default 1\.2\.0, after 1\.1\.0`,
		`Deployment hello/hello-cache: gone`,
		`release default 1\.2\.0 applied in .*: 4 configured, 5 unchanged`,
		`1\.2\.0 +Completed +update`,
		`repaired +Deployment hello/hello-web: configured; spec\.replicas \(kubectl-scale\)`,
		`repaired +Service hello/hello-web: created`,
		`ClusterVersion: Cluster version is 1\.2\.1`,
		`repaired after .*s`,
		`preDrain hook Backup of backup-operator`,
		`machine and node web-\w+ are gone`,
		`etcd's members: etcd-2, etcd-3, etcd-4`,
	} {
		if !regexp.MustCompile(`(?m)^.*` + pattern).Match(output) {
			t.Errorf("nothing matches %q in\n%s", pattern, output)
		}
	}
}
