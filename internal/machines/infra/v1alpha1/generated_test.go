package v1alpha1_test

import (
	"flag"
	"testing"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var update = flag.Bool("update", false, "write the files that are generated")

const root = "../../../../"

func definition(name string) string {
	return root + "manifests/0000_30_machine-controller_01_" + name + ".crd.yaml"
}

func TestGeneratedFilesAreCurrent(t *testing.T) {
	sandboxtest.CheckGenerated(t, root, map[string]string{
		"zz_generated.deepcopy.go":                                  "zz_generated.deepcopy.go",
		"infrastructure.runlevel.dev_kwokmachines.yaml":             definition("kwokmachines"),
		"infrastructure.runlevel.dev_externalmachines.yaml":         definition("externalmachines"),
		"infrastructure.runlevel.dev_kwokmachinetemplates.yaml":     definition("cluster-api-kwokmachinetemplates"),
		"infrastructure.runlevel.dev_externalmachinetemplates.yaml": definition("cluster-api-externalmachinetemplates"),
		"infrastructure.runlevel.dev_kwokconfigs.yaml":              definition("cluster-api-kwokconfigs"),
		"infrastructure.runlevel.dev_kwokconfigtemplates.yaml":      definition("cluster-api-kwokconfigtemplates"),
	}, *update)
}
