package source_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"

	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// The smallest thing in the shape of a release.
var small = map[string]string{
	"manifests/0000_10_a.yaml":           "kind: A\n",
	"release-manifests/image-references": "kind: ImageStream\n",
}

// A tarEntry is one entry of an archive or a layer.
type tarEntry struct {
	name    string
	content string
	link    string
	kind    byte // a file if there is none
}

func file(name, content string) tarEntry { return tarEntry{name: name, content: content} }
func folder(name string) tarEntry        { return tarEntry{name: name, kind: tar.TypeDir} }
func symlink(name, targetName string) tarEntry {
	return tarEntry{name: name, link: targetName, kind: tar.TypeSymlink}
}
func hardLink(name, targetName string) tarEntry {
	return tarEntry{name: name, link: targetName, kind: tar.TypeLink}
}

func tarOf(t testing.TB, entries ...tarEntry) []byte {
	t.Helper()
	var written bytes.Buffer
	writer := tar.NewWriter(&written)
	for _, e := range entries {
		header := &tar.Header{
			Name:     e.name,
			Typeflag: e.kind,
			Linkname: e.link,
			Size:     int64(len(e.content)),
			Mode:     0o644,
		}
		if e.kind == 0 {
			header.Typeflag = tar.TypeReg
		}
		if e.kind == tar.TypeXGlobalHeader {
			header = &tar.Header{Typeflag: e.kind, PAXRecords: map[string]string{"comment": "c0ffee"}}
		}
		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(writer, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return written.Bytes()
}

// entriesOf makes entries of files.
func entriesOf(files map[string]string) []tarEntry {
	var entries []tarEntry
	for _, name := range slices.Sorted(maps.Keys(files)) {
		entries = append(entries, file(name, files[name]))
	}
	return entries
}

func gzipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var written bytes.Buffer
	writer := gzip.NewWriter(&written)
	if _, err := writer.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return written.Bytes()
}

func zstded(t testing.TB, content []byte, options ...zstd.EOption) []byte {
	t.Helper()
	var written bytes.Buffer
	encoder, err := zstd.NewWriter(&written, options...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := encoder.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := encoder.Close(); err != nil {
		t.Fatal(err)
	}
	return written.Bytes()
}

// write writes files below a new folder.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		writeFile(t, filepath.Join(dir, filepath.FromSlash(name)), []byte(content))
	}
	return dir
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// layer is a gzipped layer, as most are.
func layer(t testing.TB, entries ...tarEntry) v1.Layer {
	t.Helper()
	content := gzipped(t, tarOf(t, entries...))
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func imageOf(t testing.TB, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func smallImage(t testing.TB) v1.Image {
	t.Helper()
	return imageOf(t, layer(t, entriesOf(small)...))
}

// indexOf makes an index of images by platform.
func indexOf(t testing.TB, images map[string]v1.Image) v1.ImageIndex {
	t.Helper()
	index := v1.ImageIndex(empty.Index)
	for _, name := range slices.Sorted(maps.Keys(images)) {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: images[name], Descriptor: v1.Descriptor{Platform: platform},
		})
	}
	return index
}

func digestOf(t testing.TB, object interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	digest, err := object.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

func open(t testing.TB, ref string, options source.Options) *source.Release {
	t.Helper()
	release, err := source.Open(t.Context(), ref, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := release.Close(); err != nil {
			t.Error(err)
		}
	})
	return release
}

// checkFiles compares all files of a release, and has its file system checked.
func checkFiles(t *testing.T, files fs.FS, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		got[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if err := fstest.TestFS(files, slices.Collect(maps.Keys(want))...); err != nil {
		t.Error(err)
	}
}

// checkFailure opens what can't be opened and compares the message that a user
// sees, with REF for the name of the release.
func checkFailure(t *testing.T, ref string, options source.Options, want string) {
	t.Helper()
	checkFailureIn(t, t.Context(), ref, options, want)
}

func checkFailureIn(t *testing.T, ctx context.Context, ref string, options source.Options, want string) {
	t.Helper()
	release, err := source.Open(ctx, ref, options)
	if err == nil {
		release.Close()
		t.Fatalf("no error, want %q", want)
	}
	if got := strings.ReplaceAll(err.Error(), ref, "REF"); got != want {
		t.Errorf("error is\n\t%s\nwant\n\t%s", got, want)
	}
	if count := strings.Count(err.Error(), ref); count != 1 {
		t.Errorf("the error names the release %d times: %v", count, err)
	}
	var failure *reason.Error
	if !errors.As(err, &failure) || failure != err || failure.Reason != source.RetrievalFailed {
		t.Errorf("error is a %T with reason %q", err, reason.Of(err))
	}
}
