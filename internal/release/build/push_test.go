package build_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/build"
	"github.com/runlevel/runlevel/internal/source"
)

// TestPushedReleasesAreAlike wherever they are written: the image and the documents about it.
func TestPushedReleasesAreAlike(t *testing.T) {
	host := startRegistry(t)
	folder, _, _ := shopFolder(t, host)
	push(t, host+"/runlevel:v1", imageOf(t, nil, map[string]string{"run": "runlevel"}))
	release, err := buildIn(t, folder, build.Options{Base: host + "/runlevel:v1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for _, destination := range []string{
		host + "/shop/release", filepath.Join(folder, "layout"), filepath.Join(folder, "shop.tar"),
	} {
		written, err := release.Push(ctx, destination, true)
		if err != nil {
			t.Fatal(err)
		}
		if written.String() != destination+":1.4.0" {
			t.Errorf("written to %s, want the version as the tag", written)
		}
		opened, err := source.Open(ctx, destination+":1.4.0", source.Options{Insecure: true, Platform: "linux/amd64"})
		if err != nil {
			t.Fatal(err)
		}
		defer opened.Close()
		if opened.Digest != release.Root.Digest.String() {
			t.Errorf("%s has digest %s, want %s", destination, opened.Digest, release.Root.Digest)
		}
		read := *release
		read.Files = opened.FS
		if diff := cmp.Diff(filesOf(t, release), filesOf(t, &read)); diff != "" {
			t.Error(diff)
		}
		location, err := oci.Parse(destination+":1.4.0", true)
		if err != nil {
			t.Fatal(err)
		}
		store, err := oci.Open(ctx, location, oci.Options{Insecure: true})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		referrers, err := store.Referrers(ctx, release.Root.Digest)
		if err != nil {
			t.Fatal(err)
		}
		types := map[string]bool{}
		for _, described := range referrers {
			raw, err := store.Manifest(ctx, described) // the registry of the tests does not list the types
			if err != nil {
				t.Fatal(err)
			}
			manifest, err := v1.ParseManifest(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			types[manifest.ArtifactType] = true
		}
		if diff := cmp.Diff([]string{"application/spdx+json", "application/vnd.in-toto+json"},
			sortedKeys(types)); diff != "" {
			t.Errorf("%s: %s", destination, diff)
		}
	}
}

// TestInterruptedPush leaves no release behind.
func TestInterruptedPush(t *testing.T) {
	host := startRegistry(t)
	push(t, host+"/runlevel:v1", imageOf(t, nil, map[string]string{"run": "runlevel"}))
	folder := plainFolder(t)
	release, err := buildIn(t, folder, build.Options{Base: host + "/runlevel:v1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, name := range []string{"layout", "shop.tar"} {
		destination := filepath.Join(folder, name)
		if _, err := release.Push(ctx, destination, true); err == nil {
			t.Errorf("%s was written, want an error", name)
		}
		if _, err := source.Open(context.Background(), destination, source.Options{}); err == nil {
			t.Errorf("%s has a release", name)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "shop.tar")); err == nil {
		t.Error("shop.tar exists")
	}
}
