package source

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// FuzzArchive reads what may be an archive or not: it never fails but by an error,
// and no name in its result is outside or a link.
func FuzzArchive(f *testing.F) {
	for _, seed := range fuzzSeeds(f) {
		f.Add(seed)
	}
	limits := Limits{File: mib, Total: 4 * mib, Files: 1000, Unpacked: 8 * mib}
	f.Fuzz(func(t *testing.T, content []byte) {
		files, err := readArchive(bytes.NewReader(content), limits)
		if err != nil {
			return
		}
		checkYield(t, files, limits)
		// The same as a layer, of which there is less.
		layer := newTree(&budget{limits: limits}, true)
		if layer.read(bytes.NewReader(content)) != nil {
			return
		}
		for name := range layer.nodes {
			if !fs.ValidPath(name) || name != "." && !isOfRelease(name) {
				t.Errorf("a layer yields %q", name)
			}
		}
		if files, err := layer.files(".", limits); err == nil {
			checkYield(t, files, limits)
		}
	})
}

func checkYield(t *testing.T, files fs.FS, limits Limits) {
	t.Helper()
	count, total := 0, int64(0)
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !fs.ValidPath(name) || strings.Contains(name, `\`) || (!entry.IsDir() && !entry.Type().IsRegular()) {
			t.Errorf("got file %q of type %s", name, entry.Type())
		}
		if entry.IsDir() {
			return nil
		}
		content, err := fs.ReadFile(files, name)
		count++
		total += int64(len(content))
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if count > limits.Files || total > limits.Total {
		t.Errorf("got %d files of %d bytes", count, total)
	}
}

func fuzzSeeds(f *testing.F) [][]byte {
	var plain bytes.Buffer
	writer := tar.NewWriter(&plain)
	for _, header := range []*tar.Header{
		{Name: "manifests/", Typeflag: tar.TypeDir},
		{Name: "manifests/a", Typeflag: tar.TypeReg, Size: 4},
		{Name: "manifests/.wh.b", Typeflag: tar.TypeReg},
		{Name: "manifests/link", Typeflag: tar.TypeSymlink, Linkname: "../manifests/a"},
		{Name: "manifests/hard", Typeflag: tar.TypeLink, Linkname: "manifests/a"},
		{Name: "manifests/" + strings.Repeat("long", 60), Typeflag: tar.TypeReg, Format: tar.FormatPAX},
		{Name: "d", Typeflag: tar.TypeSymlink, Linkname: "manifests"},
	} {
		if err := writer.WriteHeader(header); err != nil {
			f.Fatal(err)
		}
		if _, err := writer.Write(make([]byte, header.Size)); err != nil {
			f.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		f.Fatal(err)
	}
	var zipped, packed bytes.Buffer
	gz := gzip.NewWriter(&zipped)
	zst, err := zstd.NewWriter(&packed)
	if err != nil {
		f.Fatal(err)
	}
	gz.Write(plain.Bytes())
	zst.Write(plain.Bytes())
	gz.Close()
	zst.Close()
	return [][]byte{plain.Bytes(), zipped.Bytes(), packed.Bytes(), nil, []byte("kind: A\n")}
}

// FuzzRef parses what may name a release or not: what comes out is here, or has a
// registry that was spelt out.
func FuzzRef(f *testing.F) {
	for _, seed := range []string{
		"", ".", "testdata", "/dev/null", "paylod", "./paylod:1.0", "~/x", "repo:tag", "registry.example/repo:tag",
		"localhost/repo:tag",
		"registry.example:5000/a/b@sha256:" + strings.Repeat("0", 64), "[::1]:5000/repo:tag", "a@b:c", "@", ":",
		"registry.example/repo",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		found, err := locate(ref, false)
		if err != nil {
			if text := wrapError(t.Context(), ref, err).Error(); strings.ContainsAny(text, "\n\r") {
				t.Errorf("the message has several lines: %q", text)
			}
			return
		}
		if found.kind != Image {
			if where := found.path + found.image.Path; where == "" || !strings.HasPrefix(ref, where) {
				t.Errorf("%q is at %+v", ref, found)
			}
			return
		}
		host := found.image.Repository.RegistryStr()
		spelt, _, _ := strings.Cut(ref, "/")
		if host == "" || found.image.Identifier == "" || strings.HasPrefix(ref, ".") ||
			(spelt != host && "index."+spelt != host) {
			t.Errorf("%q is an image at registry %q", ref, host)
		}
	})
}
