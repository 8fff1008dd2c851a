package source_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/internal/source"
)

// versions has one version of each release, whose file has its ref.
type versions struct{}

func (versions) OpenApplied(_ context.Context, name, version string) (*source.Release, error) {
	return &source.Release{
		FS:     fstest.MapFS{"ref": {Data: []byte(name + " " + version)}},
		Kind:   source.Applied,
		Values: []byte("{}"),
	}, nil
}

func TestRefsOfAppliedVersions(t *testing.T) {
	t.Chdir(t.TempDir())
	digest := "@sha256:" + strings.Repeat("a", 64)
	for ref, want := range map[string]string{
		"shop@3": "shop 3", "shop@1.4.0": "shop 1.4.0", "shop@1.4.0-rc.1+x": "shop 1.4.0-rc.1+x", "shop@": "shop ",
		"a-b2@x": "a-b2 x",
		"shop":   "", "@3": "", "Shop@3": "", "shop/web@3": "", "./shop@3": "", "registry.example/shop@3": "",
		"shop" + digest: "", "registry.example/shop" + digest: "",
	} {
		if got := source.IsApplied(ref); got != (want != "") {
			t.Errorf("%s is an applied version: %t", ref, got)
		}
		if want == "" {
			continue
		}
		release, err := source.Open(t.Context(), ref, source.Options{Versions: versions{}})
		if err != nil {
			t.Errorf("%s: %v", ref, err)
			continue
		}
		if text, err := fs.ReadFile(release.FS, "ref"); err != nil || string(text) != want {
			t.Errorf("%s is %q (%v), want %q", ref, text, err, want)
		}
	}
	if _, err := source.Open(t.Context(), "shop@3", source.Options{}); err == nil ||
		err.Error() != "shop@3: a version that was applied can't be read here" {
		t.Errorf("without a cluster, the error is %v", err)
	}
	for ref, want := range map[string]bool{"registry.example/shop" + digest: true, "registry.example/shop:1": false,
		"shop@3": false} {
		if got := source.IsByDigest(ref); got != want {
			t.Errorf("%s is by digest: %t", ref, got)
		}
	}
}

// TestAFolderOfTheSameNameWinsOverAVersion as over an image.
func TestAFolderOfTheSameNameWinsOverAVersion(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("shop@3", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("shop@3", "a.yaml"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	release, err := source.Open(t.Context(), "shop@3", source.Options{Versions: versions{}})
	if err != nil || release.Kind != source.Directory || source.IsApplied("shop@3") || !source.CanBeName("shop") ||
		source.CanBeName("shop@3") || source.CanBeName("./shop") {
		t.Errorf("got release %v (%v)", release, err)
	}
}
