package v1alpha1_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files that are generated")

// generated are the files of controller-gen, and where they stand.
var generated = map[string]string{
	"zz_generated.deepcopy.go":                                  "zz_generated.deepcopy.go",
	"infrastructure.runlevel.dev_kwokmachines.yaml":             definition("kwokmachines"),
	"infrastructure.runlevel.dev_externalmachines.yaml":         definition("externalmachines"),
	"infrastructure.runlevel.dev_kwokmachinetemplates.yaml":     definition("cluster-api-kwokmachinetemplates"),
	"infrastructure.runlevel.dev_externalmachinetemplates.yaml": definition("cluster-api-externalmachinetemplates"),
	"infrastructure.runlevel.dev_kwokconfigs.yaml":              definition("cluster-api-kwokconfigs"),
	"infrastructure.runlevel.dev_kwokconfigtemplates.yaml":      definition("cluster-api-kwokconfigtemplates"),
}

func definition(name string) string {
	return "../../../../manifests/0000_30_machine-controller_01_" + name + ".crd.yaml"
}

func TestGeneratedFilesAreCurrent(t *testing.T) {
	const tools = "-modfile=../../../../tools/go.mod"
	if err := exec.CommandContext(t.Context(), "go", "tool", tools, "controller-gen", "--version").Run(); err != nil {
		t.Skip("controller-gen can't be built here:", err)
	}
	folder := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "tool", tools, "controller-gen", "paths=.",
		"object", "crd", "output:dir="+folder).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, file := range generated {
		want, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if *update {
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
