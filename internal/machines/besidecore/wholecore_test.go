package besidecore

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

// wholeCore is the variable with the path of Cluster API's manager, whose many packages are not compiled for each run
// of the tests.
const wholeCore = "RUNLEVEL_TEST_CLUSTER_API"

// TestWholeCore makes all controllers of Cluster API's core work on the machines of a control plane, by its test
// extension.
func TestWholeCore(t *testing.T) {
	path := os.Getenv(wholeCore)
	if path == "" {
		t.Skipf("%s does not name Cluster API's manager: CONTRIBUTING.md returns how to build it", wholeCore)
	}
	applyDefinitions(t)
	runWholeCore(t, path)
	runControllers(t, manager.ControlPlanes)
	updateByTestExtension(t)
}

// runWholeCore runs Cluster API's manager until the test ends. Its webhooks are not registered.
func runWholeCore(t *testing.T, path string) {
	t.Helper()
	certificates := t.TempDir()
	runtimehooktest.WriteCertificate(t, certificates)
	_, port, _ := strings.Cut(runtimehooktest.FreeAddress(t), ":")
	core := exec.Command(path, "--webhook-port="+port, "--webhook-cert-dir="+certificates, "--health-addr=",
		"--diagnostics-address=127.0.0.1:0",
		"--feature-gates=RuntimeSDK=true,InPlaceUpdates=true,MachinePool=false,ClusterTopology=false")
	core.Env = append(os.Environ(), "KUBECONFIG="+shared.Sandbox(t).Kubeconfig, "POD_NAMESPACE=default",
		"POD_NAME=core",
		"POD_UID=none")
	log, err := os.Create(filepath.Join(t.TempDir(), "core.log"))
	if err == nil {
		core.Stdout, core.Stderr = log, log
		err = core.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = core.Process.Signal(os.Interrupt)
		_ = core.Wait()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("Cluster API's core:\n%s", text[max(0, len(text)-20_000):])
		}
	})
}
