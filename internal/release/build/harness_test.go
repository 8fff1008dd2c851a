package build_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/runlevel/runlevel/internal/release/build"
)

// newYear is the time of releases in tests.
var newYear = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// startRegistry starts a registry, and returns its name. Texts with REGISTRY mean it.
func startRegistry(t testing.TB) string {
	t.Helper()
	server := httptest.NewServer(
		registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))),
	)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// imageOf returns an image with files and labels.
func imageOf(t testing.TB, labels, files map[string]string) v1.Image {
	t.Helper()
	var layer bytes.Buffer
	writer := tar.NewWriter(&layer)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := writer.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(writer, files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	added, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, added)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config.Labels = "linux", "amd64", labels
	config.Config.Entrypoint, config.Config.Env, config.Config.User = []string{"/run"}, []string{"A=b"}, "65532"
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// push pushes an image or index, and returns its digest.
func push(t testing.TB, ref string, pushed remote.Taggable) string {
	t.Helper()
	tag, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	switch pushed := pushed.(type) {
	case v1.Image:
		err = remote.Write(tag, pushed)
	case v1.ImageIndex:
		err = remote.WriteIndex(tag, pushed)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Get(tag)
	if err != nil {
		t.Fatal(err)
	}
	return got.Digest.String()
}

// write writes files into a new folder, and returns it.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for file, text := range files {
		path := filepath.Join(folder, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// buildIn builds release.yaml of a folder.
func buildIn(t testing.TB, folder string, options build.Options) (*build.Release, error) {
	t.Helper()
	config, err := build.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	options.Insecure = true
	if options.Time.IsZero() {
		options.Time = newYear
	}
	release, err := build.Build(context.Background(), config, options)
	if err == nil {
		t.Cleanup(func() { release.Close() })
	}
	return release, err
}

// errorOf returns the error of a build without its folder and registry.
func errorOf(t testing.TB, err error, folder, host string) string {
	t.Helper()
	if err == nil {
		t.Fatal("the build succeeded, want an error")
	}
	text := strings.ReplaceAll(err.Error(), folder+"/", "")
	if host != "" {
		text = strings.ReplaceAll(text, host, "REGISTRY")
	}
	return text
}

// deployment returns the manifest of a Deployment with an image.
func deployment(name, image string) string {
	return fmt.Sprintf(`# The %[1]s, which runs %[2]s
apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s
  namespace: shop
spec:
  selector:
    matchLabels: {app: %[1]s}
  template:
    metadata:
      labels: {app: %[1]s}
    spec:
      containers:
      - name: %[1]s
        image: %[2]s # the image
`, name, image)
}
