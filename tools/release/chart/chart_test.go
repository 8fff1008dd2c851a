package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const image = "registry.example/tools/runlevel@sha256:1111111111111111111111111111111111111111111111111111111111111111"

// source is the folder of the repository.
var source = filepath.Join("..", "..", "..")

func TestFilesOfTheVersion(t *testing.T) {
	folder := t.TempDir()
	if err := (Chart{Name: Machines, Version: "v0.2.0-rc.1", Image: image}).Write(source, folder); err != nil {
		t.Fatal(err)
	}
	for name, parts := range map[string][]string{
		"Chart.yaml": {
			"\nversion: 0.2.0-rc.1\nappVersion: v0.2.0-rc.1\n", `artifacthub.io/prerelease: "true"`,
			"image: " + image + "\n",
		},
		"values.yaml":        {"\n# Flags of the machine controller, by name"},
		"values.schema.json": {`"additionalProperties":false`},
		"README.md":          {"(https://github.com/runlevel/runlevel/blob/v0.2.0-rc.1/docs/machines.md#install)"},
		"manifests/0000_30_machine-controller_06_deployment.yaml": {
			"value: 0.2.0-rc.1\n", "image: " + image + "\n", "# A new process starts beside the old one",
		},
		"templates/NOTES.txt": {"runlevel machines"},
		"LICENSE":             {"Apache License"},
	} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Error(err)
		}
		for _, part := range parts {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s lacks %q:\n%s", name, part, text)
			}
		}
	}
}

func TestAnotherFolderIsNotASource(t *testing.T) {
	if err := (Chart{Name: Operator, Version: "v0.1.0", Image: image}).Write(t.TempDir(), t.TempDir()); err == nil {
		t.Error("no error")
	}
}
