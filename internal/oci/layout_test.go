package oci

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// put writes an image of one blob, and returns it.
func put(t *testing.T, layout *Layout, text, tag string) v1.Descriptor {
	t.Helper()
	blob := []byte(fmt.Sprintf("{%q: 1}", text))
	described := describe(blob, types.OCIConfigJSON)
	raw, err := json.Marshal(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: described})
	if err != nil {
		t.Fatal(err)
	}
	image := describe(raw, types.OCIManifestSchema1)
	exists, err := layout.HasBlob(t.Context(), described)
	if err == nil && !exists {
		err = layout.PutBlob(t.Context(), described, from(blob))
	}
	if err == nil {
		err = layout.PutManifest(t.Context(), image, raw, tag)
	}
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func create(t *testing.T, path string) *Layout {
	t.Helper()
	layout, err := CreateLayout(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return layout
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// writeImages writes images with tags, and commits them.
func writeImages(t *testing.T, path string, tags ...string) {
	t.Helper()
	layout := create(t, path)
	for _, tag := range tags {
		put(t, layout, tag, tag)
	}
	must(t, layout.Commit(t.Context()))
	must(t, layout.Close())
}

// checkImages checks that a layout has images with all of their parts.
func checkImages(t *testing.T, path string, tags ...string) {
	t.Helper()
	layout, err := OpenLayout(path)
	must(t, err)
	defer layout.Close()
	for _, tag := range tags {
		described, err := layout.Resolve(t.Context(), tag)
		must(t, err)
		image, err := FindImage(t.Context(), layout, described, v1.Platform{})
		must(t, err)
		if _, err := ReadBlob(t.Context(), layout, image.Config); err != nil {
			t.Errorf("%s: %v", tag, err)
		}
	}
	if _, err := os.Stat(path + partialSuffix); err == nil {
		t.Error("the partial folder is left")
	}
}

// A manifest may be a part of an index in one repository, and an image of its own in the same or another one.
func TestAnImageThatAnIndexContains(t *testing.T) {
	for _, other := range []string{"registry.example/shop/web", "registry.example/shop/all"} {
		path := filepath.Join(t.TempDir(), "layout")
		layout := create(t, path)
		image := put(t, layout, "web", "")
		index, err := json.Marshal(v1.IndexManifest{
			SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{image},
		})
		must(t, err)
		web := layout.Repository("registry.example/shop/web")
		put(t, web, "web", image.Digest.String())
		must(t, layout.Repository(other).PutManifest(t.Context(), describe(index, types.OCIImageIndex), index, "1"))
		must(t, layout.Commit(t.Context()))
		must(t, layout.Close())
		read, err := OpenLayout(path)
		must(t, err)
		got, err := read.Repository("registry.example/shop/web").Resolve(t.Context(), image.Digest.String())
		if err != nil || got.Digest != image.Digest {
			t.Errorf("%s: %v, %v", other, got, err)
		}
	}
}

func TestProcessesWriteToAnArchiveOneAfterTheOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar")
	const writers = 8
	done, tags := make(chan bool), []string{}
	for i := range writers {
		tag := fmt.Sprint("tag", i)
		tags = append(tags, tag)
		go func() {
			defer func() { done <- true }()
			writeImages(t, path, tag)
		}()
	}
	for range writers {
		<-done
	}
	checkImages(t, path, tags...)
}

// Artifacts name blobs instead of layers.
func TestAnArchiveKeepsTheBlobsOfArtifacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar")
	layout := create(t, path)
	blob := []byte("sbom")
	described := describe(blob, types.OCILayer)
	must(t, layout.PutBlob(t.Context(), described, from(blob)))
	raw, err := json.Marshal(map[string]any{"blobs": []v1.Descriptor{described}})
	must(t, err)
	const kind = "application/vnd.oci.artifact.manifest.v1+json"
	must(t, layout.PutManifest(t.Context(), describe(raw, kind), raw, "artifact"))
	must(t, layout.Commit(t.Context()))
	put(t, layout, "other", "other")
	must(t, layout.Commit(t.Context()))
	if _, err := ReadBlob(t.Context(), layout, described); err != nil {
		t.Error(err)
	}
	must(t, layout.Close())
}

func TestAnArchiveIsCommittedTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar")
	layout := create(t, path)
	for _, tag := range []string{"a", "b"} {
		put(t, layout, tag, tag)
		must(t, layout.Commit(t.Context()))
	}
	must(t, layout.Close())
	checkImages(t, path, "a", "b")
}

func TestAnArchiveWithoutChangesIsNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar")
	writeImages(t, path, "a", "b")
	before, err := os.Stat(path)
	must(t, err)
	writeImages(t, path, "a")
	after, err := os.Stat(path)
	must(t, err)
	if !os.SameFile(before, after) {
		t.Error("it was written again")
	}
	checkImages(t, path, "a", "b")
}

// What the index no longer names is left out.
func TestAMovedTagLeavesNoBlobsInAnArchive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar")
	layout := create(t, path)
	old := put(t, layout, "old", "1")
	must(t, layout.Commit(t.Context()))
	put(t, layout, "new", "1")
	must(t, layout.Commit(t.Context()))
	must(t, layout.Close())
	checkImages(t, path, "1")
	opened, err := openArchive(path)
	must(t, err)
	defer opened.close()
	if _, exists := opened.sections[blobPath(old.Digest)]; exists || len(opened.sections) != 4 {
		t.Errorf("files are %v", opened.sections)
	}
}

// rewrite packs an archive again with changed headers.
func rewrite(t *testing.T, path string, change func(*tar.Header) (string, bool)) {
	t.Helper()
	opened, err := openArchive(path)
	must(t, err)
	defer opened.close()
	out, err := os.Create(path + ".new")
	must(t, err)
	written := tar.NewWriter(out)
	for name, place := range opened.sections {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: place.size}
		if target, isLink := change(header); isLink {
			must(t, written.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: header.Name, Linkname: target}))
			continue
		}
		must(t, written.WriteHeader(header))
		_, err := io.Copy(written, io.NewSectionReader(opened.file, place.offset, place.size))
		must(t, err)
	}
	must(t, written.Close())
	must(t, out.Close())
	must(t, os.Rename(path+".new", path))
}

func TestArchivesThatWouldLoseFilesAreNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar")
	writeImages(t, path, "a")
	rewrite(t, path, func(header *tar.Header) (string, bool) {
		return "elsewhere", strings.HasPrefix(header.Name, "blobs/")
	})
	const want = "it is a link or a sparse file in the archive: pack it with plain files"
	if _, err := CreateLayout(t.Context(), path); err == nil || err.Error() != want {
		t.Errorf("error of writing is %v", err)
	}
	layout, err := OpenLayout(path)
	must(t, err)
	defer layout.Close()
	described, err := layout.Resolve(t.Context(), "a")
	must(t, err)
	if _, err := layout.Manifest(t.Context(), described); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error of reading is %v", err)
	}
	saved := filepath.Join(t.TempDir(), "saved.tar")
	writeImages(t, saved, "a", "b")
	isRenamed := false
	rewrite(t, saved, func(header *tar.Header) (string, bool) {
		if strings.HasPrefix(header.Name, "blobs/") && !isRenamed {
			isRenamed, header.Name = true, "manifest.json"
		}
		return "", false
	})
	if _, err := CreateLayout(t.Context(), saved); err == nil || !strings.Contains(err.Error(), "docker save") {
		t.Errorf("error is %v", err)
	}
	for _, name := range []string{path, saved} {
		if _, err := os.Stat(name + partialSuffix); err == nil {
			t.Errorf("%s has a partial folder", name)
		}
	}
}

func TestAnExactNameIsPreferred(t *testing.T) {
	path := filepath.Join(t.TempDir(), "layout")
	layout := create(t, path)
	put(t, layout, "full", "registry.example/shop/web:1.4.0")
	want := put(t, layout, "exact", "1.4.0")
	other := put(t, layout, "other", "registry.example/shop/web:1.5.0")
	for tag, digest := range map[string]v1.Hash{"1.4.0": want.Digest, "1.5.0": other.Digest} {
		if got, err := layout.Resolve(t.Context(), tag); err != nil || got.Digest != digest {
			t.Errorf("%s is %v, %v", tag, got, err)
		}
	}
}

func TestABrokenEntryHidesNoReferrers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "layout")
	layout := create(t, path)
	broken := put(t, layout, "broken", "broken")
	image := put(t, layout, "image", "1")
	raw, err := json.Marshal(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: image,
		Subject: &image})
	must(t, err)
	signature := describe(raw, types.OCIManifestSchema1)
	must(t, layout.PutManifest(t.Context(), signature, raw, ""))
	must(t, layout.Commit(t.Context()))
	must(t, layout.Close())
	must(t, os.WriteFile(filepath.Join(path, blobPath(broken.Digest)), []byte("{"), 0o644))
	read, err := OpenLayout(path)
	must(t, err)
	listed, err := read.Referrers(t.Context(), image.Digest)
	if err != nil || len(listed) != 1 || listed[0].Digest != signature.Digest {
		t.Errorf("referrers are %v, %v", listed, err)
	}
}

// A source that sends too much must not write more than the size of a blob.
func TestADigestReaderReturnsNoMoreThanItsSize(t *testing.T) {
	want := describe([]byte("short"), types.OCILayer)
	checked, err := NewDigestReader(strings.NewReader("short"+strings.Repeat("evil", 100)), want)
	must(t, err)
	got, err := io.ReadAll(checked)
	if string(got) != "short" || !IsWrong(err) || !IsWrong(checked.Verify()) {
		t.Errorf("content is %q, %v", got, err)
	}
}

func TestTheIndexIsParsedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "layout")
	writeImages(t, path, "a")
	layout, err := OpenLayout(path)
	must(t, err)
	_, err = layout.Resolve(t.Context(), "a")
	must(t, err)
	must(t, os.Remove(filepath.Join(path, indexFile)))
	got, err := layout.images()
	if err != nil || !slices.ContainsFunc(got, func(d v1.Descriptor) bool { return d.Annotations[refName] == "a" }) {
		t.Errorf("images are %v, %v", got, err)
	}
}
