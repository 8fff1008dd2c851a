package cli_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/cli"
)

// TestAReleaseInARegistry renders one whose manifest has the release's own image.
func TestAReleaseInARegistry(t *testing.T) {
	ref, digest := push(t, map[string]string{
		"manifests/0000_00_own_a.yaml":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\ndata: {image: '{{.ReleaseImage}}'}\n",
		"release-manifests/release-metadata": `{"kind":"cincinnati-metadata-v0","version":"1.2.3"}`,
		"release-manifests/image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"}}`,
	})
	var out, problems bytes.Buffer
	if code := cli.Run(context.Background(), []string{"render", ref, "--insecure"}, cli.Streams{Out: &out, Err: &problems}); code != 0 {
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
	code := cli.Run(context.Background(), []string{"render", ref}, cli.Streams{Out: &out, Err: &problems})
	if code != 2 || out.Len() > 0 || !strings.Contains(problems.String(), "needs --insecure") {
		t.Errorf("without --insecure the exit code is %d, and %s", code, &problems)
	}
}

// push makes an image of files and pushes it to a registry of plain http.
func push(t *testing.T, files map[string]string) (ref, digest string) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	for path, text := range files {
		if err := archive.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer(layer.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	ref = strings.TrimPrefix(server.URL, "http://") + "/team/release:v1"
	tag, err := name.ParseReference(ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image); err != nil {
		t.Fatal(err)
	}
	hash, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return ref, hash.String()
}
