package v1alpha1_test

import (
	"flag"
	"testing"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var update = flag.Bool("update", false, "write the files that are generated")

func TestGeneratedFilesAreCurrent(t *testing.T) {
	const root = "../../../../../"
	sandboxtest.CheckGenerated(t, root, map[string]string{
		"zz_generated.deepcopy.go": "zz_generated.deepcopy.go",
		"controlplane.runlevel.dev_runlevelcontrolplanes.yaml": root +
			"manifests/0000_30_machine-controller_01_cluster-api-runlevelcontrolplanes.crd.yaml",
	}, *update)
}
