package cli_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
)

// TestReleaseInRegistry renders a release in a registry with a manifest that has the image of the release.
func TestReleaseInRegistry(t *testing.T) {
	ref, digest := push(t, map[string]string{
		"manifests/0000_00_own_a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\ndata: {image: " +
			"'{{.ReleaseImage}}'}\n",
		"release-manifests/release-metadata": `{"kind":"cincinnati-metadata-v0","version":"1.2.3"}`,
		"release-manifests/image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"}}`,
	})
	var out, problems bytes.Buffer
	if code := cli.Run(context.Background(), []string{"render", ref, "--insecure"},
		core.Streams{Out: &out, Err: &problems}); code != 0 {
		t.Fatalf("exit code %d: %s", code, &problems)
	}
	repository, _, _ := strings.Cut(ref, ":v1")
	if want := "image: " + repository + "@" + digest; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in\n%s", want, &out)
	}
	if want := "pulling " + ref + "\n"; problems.String() != want {
		t.Errorf("standard error is %q, want %q", &problems, want)
	}

	out.Reset()
	problems.Reset()
	code := cli.Run(context.Background(), []string{"render", ref}, core.Streams{Out: &out, Err: &problems})
	if code != 2 || out.Len() > 0 || !strings.Contains(problems.String(), "needs --insecure") {
		t.Errorf("without --insecure: got exit code %d and errors %s", code, &problems)
	}
}

// push pushes an image of files to a registry without TLS.
func push(t *testing.T, files map[string]string) (ref, digest string) {
	t.Helper()
	served := imageregistry.Start()
	t.Cleanup(served.Close)
	release := fstest.MapFS{}
	for path, text := range files {
		release[path] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	image, err := served.Push(t.Context(), "team/release:v1", release)
	if err != nil {
		t.Fatal(err)
	}
	return image.Context().Name() + ":v1", image.DigestStr()
}
