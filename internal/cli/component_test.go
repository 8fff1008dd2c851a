package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/cli/core"
)

// TestComponentInImage reads a component of a release image, and of a copy of the release for a disconnected cluster.
func TestComponentInImage(t *testing.T) {
	config := func(name string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: default}\n", name)
	}
	ref, _ := push(t, map[string]string{
		"manifests/0000_00_own_a.yaml":          config("own") + "data: {image: '{{.ReleaseImage}}'}\n",
		"release-manifests/0000_50_web_01.yaml": config("settings"),
		"release-manifests/0000_50_web_02.yaml": config("banner"),
		"release-manifests/release-metadata":    `{"kind":"cincinnati-metadata-v0","version":"1.2.3"}`,
		"release-manifests/image-references":    `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"}}`,
	})
	component := t.TempDir()
	if err := os.WriteFile(filepath.Join(component, "01.yaml"), []byte(config("settings")), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, release := range []string{ref, writeLayout(t, ref), writeLayout(t, ref) + ":v1"} {
		for _, verb := range []string{"lint", "plan"} {
			var out, problems bytes.Buffer
			args := []string{verb, component, "--component", "web", "--into", release, "--insecure"}
			code := cli.Run(context.Background(), args, core.Streams{Out: &out, Err: &problems})
			if want := map[string]int{"lint": 1, "plan": 0}[verb]; code != want {
				t.Errorf("%v: exit code %d: %s", args, code, &problems)
			}
			if !strings.Contains(out.String(), "ConfigMap default/banner") || strings.Contains(out.String(), "own") {
				t.Errorf("%v: got output\n%s", args, &out)
			}
			if pulled := strings.Count(problems.String(), "pulling"); release == ref && pulled != 1 ||
				release != ref && pulled != 0 {
				t.Errorf("%v: got errors\n%s", args, &problems)
			}
		}
	}
}

// writeLayout writes an image to an OCI layout.
func writeLayout(t *testing.T, ref string) string {
	t.Helper()
	parsed, err := name.ParseReference(ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(parsed)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	written, err := layout.Write(folder, empty.Index)
	if err == nil {
		err = written.AppendImage(image,
			layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "v1"}))
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder
}
