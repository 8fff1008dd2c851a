package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// source is the folder of the repository.
var source = filepath.Join("..", "..", "..")

// write writes the charts of a version, and returns the archive of one.
func write(t *testing.T, version, file string) []byte {
	t.Helper()
	folder := t.TempDir()
	if err := Write(source, folder, version, "registry.example/tools/runlevel"); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

// unpack returns the files of an archive.
func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
	}
}

func TestSameInputGivesTheSameBytes(t *testing.T) {
	for _, file := range []string{"runlevel-operator-0.1.0.tgz", "runlevel-machines-0.1.0.tgz"} {
		if !bytes.Equal(write(t, "v0.1.0", file), write(t, "v0.1.0", file)) {
			t.Errorf("two archives %s differ", file)
		}
	}
}

// The manifests are the only source of a chart: it has them as they are.
func TestOperatorChartHasTheManifests(t *testing.T) {
	files := unpack(t, write(t, "v0.1.0", "runlevel-operator-0.1.0.tgz"))
	manifests, err := filepath.Glob(filepath.Join(source, "install", "0000_*.yaml"))
	if err != nil || len(manifests) == 0 {
		t.Fatal(manifests, err)
	}
	for _, path := range manifests {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if files["runlevel-operator/manifests/"+filepath.Base(path)] != string(text) {
			t.Errorf("the chart does not have %s", path)
		}
	}
}

func TestFilesOfTheVersion(t *testing.T) {
	files := unpack(t, write(t, "v0.2.0-rc.1", "runlevel-machines-0.2.0-rc.1.tgz"))
	for name, parts := range map[string][]string{
		"Chart.yaml": {
			"\nversion: 0.2.0-rc.1\nappVersion: v0.2.0-rc.1\n", `artifacthub.io/prerelease: "true"`,
			"image: registry.example/tools/runlevel:v0.2.0-rc.1\n", "      name: machinesets.cluster.x-k8s.io\n",
		},
		"values.yaml": {
			"# The image of the machine controller.\nimage:\n  # Registry and repository.\n" +
				"  repository: registry.example/tools/runlevel\n",
			"\nresources:\n  requests:\n    cpu: 10m\n",
		},
		"values.schema.json": {`"additionalProperties": false`},
		"README.md": {
			"helm install machines oci://registry.example/charts/runlevel-machines --version 0.2.0-rc.1",
			"| `image.tag` | `\"\"` | Tag. By default, it is the appVersion of the chart. |\n",
		},
		"manifests/0000_30_machine-controller_06_deployment.yaml": {"value: 0.2.0-rc.1\n"},
		"templates/NOTES.txt": {"runlevel machines"},
		"LICENSE":             {"Apache License"},
	} {
		for _, part := range parts {
			if text := files["runlevel-machines/"+name]; !strings.Contains(text, part) {
				t.Errorf("%s lacks %q:\n%s", name, part, text)
			}
		}
	}
}

func TestAnotherFolderIsNotASource(t *testing.T) {
	if err := Write(t.TempDir(), t.TempDir(), "v0.1.0", "registry.example/runlevel"); err == nil {
		t.Error("no error")
	}
}
