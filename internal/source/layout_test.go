package source_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/source"
)

// newLayout is a layout of images by tag.
func newLayout(t testing.TB, images map[string]v1.Image) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "layout")
	path := writeLayout(t, dir)
	for tag, image := range images {
		if err := path.AppendImage(image,
			layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func writeLayout(t testing.TB, dir string) layout.Path {
	t.Helper()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// variant is a release that differs from others.
func variant(t testing.TB, name string) v1.Image {
	t.Helper()
	return imageOf(t, layer(t, file("manifests/name.yaml", name)))
}

func TestALayoutsImageIsChosen(t *testing.T) {
	image, two := variant(t, "one"), variant(t, "two")
	single := newLayout(t, map[string]v1.Image{"1.0": image})
	several := newLayout(t, map[string]v1.Image{"1.0": image, "registry.example/repo:2.0": two})
	retagged := newLayout(t, map[string]v1.Image{"1.0": image, "latest": image})
	for name, test := range map[string]struct{ ref, want string }{
		"the only one needs no choice":            {single, "one"},
		"but may be chosen":                       {single + ":1.0", "one"},
		"one of several is chosen by its tag":     {several + ":1.0", "one"},
		"or that of its whole reference":          {several + ":2.0", "two"},
		"or the whole reference":                  {several + ":registry.example/repo:2.0", "two"},
		"or its digest":                           {several + "@" + digestOf(t, two), "two"},
		"one image with several tags is the only": {retagged, "one"},
	} {
		t.Run(name, func(t *testing.T) {
			release := open(t, test.ref, source.Options{})
			checkFiles(t, release.FS, map[string]string{"manifests/name.yaml": test.want})
			want := map[string]string{"one": digestOf(t, image), "two": digestOf(t, two)}[test.want]
			if release.Kind != source.Layout || release.Image != "" || release.Digest != want {
				t.Errorf("got release %+v", release)
			}
		})
	}
	t.Run("none of several is an error", func(t *testing.T) {
		_, err := source.Open(t.Context(), several, source.Options{})
		if err == nil || !strings.Contains(err.Error(),
			"the layout has several images: add \":\" and a tag or \"@\" and a digest to choose one of ") ||
			!strings.Contains(err.Error(), "1.0 ("+digestOf(t, image)+")") ||
			!strings.Contains(err.Error(), "registry.example/repo:2.0 ("+digestOf(t, two)+")") {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("one that isn't there is an error", func(t *testing.T) {
		checkFailure(t, single+":3.0", source.Options{},
			fmt.Sprintf(`REF: the layout has no image "3.0": it has 1.0 (%s)`, digestOf(t, image)))
	})
	t.Run("no image at all is an error", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "layout")
		writeLayout(t, dir)
		checkFailure(t, dir, source.Options{}, "REF: the layout has no image")
	})
}

func TestAPlatformOfALayoutIsChosen(t *testing.T) {
	images := map[string]v1.Image{"linux/amd64": variant(t, "amd64"), "linux/arm64": variant(t, "arm64")}
	index := indexOf(t, images)
	nested := filepath.Join(t.TempDir(), "nested")
	if err := writeLayout(t, nested).AppendIndex(index); err != nil {
		t.Fatal(err)
	}
	flat := filepath.Join(t.TempDir(), "flat")
	path := writeLayout(t, flat)
	for name, image := range images {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := path.AppendImage(image, layout.WithPlatform(*platform)); err != nil {
			t.Fatal(err)
		}
	}
	for name, dir := range map[string]string{"in an index of its own": nested, "next to each other": flat} {
		t.Run(name, func(t *testing.T) {
			for platform := range images {
				release := open(t, dir, source.Options{Platform: platform})
				checkFiles(t, release.FS,
					map[string]string{"manifests/name.yaml": strings.TrimPrefix(platform, "linux/")})
			}
			checkFailure(t, dir, source.Options{Platform: "linux/s390x"},
				"REF: no image for platform linux/s390x, only for linux/amd64, linux/arm64")
		})
	}
	if got := open(t, nested, source.Options{Platform: "linux/arm64"}).Digest; got != digestOf(t, index) {
		t.Errorf("the digest is %s and not that of the index", got)
	}
}

// change changes a blob of a layout by a function.
func change(t *testing.T, dir string, digest v1.Hash, by func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, "blobs", digest.Algorithm, digest.Hex)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if content = by(content); content == nil {
		err = os.Remove(path)
	} else {
		err = os.WriteFile(path, content, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestALayoutIsComparedWithItsDigests(t *testing.T) {
	// A plain tar with more after its end, which a reader of the tar does not see.
	padded := static.NewLayer(append(tarOf(t, entriesOf(small)...), make([]byte, 4096)...), types.OCIUncompressedLayer)
	zipped := layer(t, file("manifests/more.yaml", "more"))
	image := imageOf(t, padded, zipped)
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	manifestDigest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	plain, gz, config := manifest.Layers[0].Digest, manifest.Layers[1].Digest, manifest.Config.Digest
	flip := func(fromEnd int) func([]byte) []byte {
		return func(content []byte) []byte {
			content = bytes.Clone(content)
			content[len(content)-fromEnd] ^= 1
			return content
		}
	}
	longer := func(content []byte) []byte { return append(bytes.Clone(content), 0) }
	shorter := func(content []byte) []byte { return content[:len(content)-1] }
	removed := func([]byte) []byte { return nil }
	for name, test := range map[string]struct {
		digest v1.Hash
		by     func([]byte) []byte
		want   string
	}{
		"a layer, past the tar's end": {plain, flip(1),
			"REF: layer " + plain.String() + ": content has digest sha256:…"},
		"a layer, in a file": {plain, flip(4096 + 1024 + 500),
			"REF: layer " + plain.String() + ": content has digest sha256:…"},
		"a layer, in a header": {plain, flip(4096 + 1024 + 1024),
			"REF: layer " + plain.String() + ": content has digest sha256:…"},
		"a compressed layer":       {gz, flip(20), "REF: layer " + gz.String() + ": content has digest sha256:…"},
		"a compressed layer's sum": {gz, flip(1), "REF: layer " + gz.String() + ": content has digest sha256:…"},
		"a layer that's longer": {plain, longer,
			fmt.Sprintf("REF: layer %s: content has more than the %d bytes that it should", plain,
				manifest.Layers[0].Size)},
		"a layer that's shorter": {plain, shorter,
			fmt.Sprintf("REF: layer %s: content ends after %d of %d bytes", plain, manifest.Layers[0].Size-1,
				manifest.Layers[0].Size)},
		"a layer that's missing": {gz, removed, "REF: layer " + gz.String() + ": the layout doesn't have it"},
		"the manifest": {manifestDigest, flip(3),
			"REF: manifest " + manifestDigest.String() + ": content has digest sha256:…"},
		"a manifest that's missing": {manifestDigest, removed,
			"REF: manifest " + manifestDigest.String() + ": the layout doesn't have it"},
		"the config": {config, flip(3),
			"REF: config " + config.String() + ": content has digest sha256:…"},
		"a config that's missing": {config, removed, "REF: config " + config.String() + ": the layout doesn't have it"},
		"a manifest that has no bound": {manifestDigest, func([]byte) []byte {
			return make([]byte, 9<<20)
		}, "REF: manifest " + manifestDigest.String() + ": it has more than 8 MiB, which is the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newLayout(t, map[string]v1.Image{"1.0": image})
			open(t, dir, source.Options{})
			change(t, dir, test.digest, test.by)
			_, err := source.Open(t.Context(), dir, source.Options{})
			if err == nil {
				t.Fatal("no error")
			}
			// The wrong digest itself does not matter here.
			got, wrong, found := strings.Cut(strings.Replace(err.Error(), dir, "REF", 1), "content has digest sha256:")
			if found && len(wrong) == 64 {
				got += "content has digest sha256:…"
			}
			if got != test.want {
				t.Errorf("error is %s, want %s", got, test.want)
			}
		})
	}
}

func TestBrokenLayouts(t *testing.T) {
	for name, test := range map[string]struct{ index, want string }{
		"no index": {"", "REF: index.json of the layout: the layout doesn't have it"},
		"an index of other form": {"[]",
			"REF: index.json of the layout: json: cannot unmarshal array into Go value of type v1.IndexManifest"},
		"a digest that leads out": {
			`{"manifests":[{"digest":"sha256:../../../etc/passwd","size":1,"mediaType":"application/vnd.oci.image.manifest.v1+json"}]}`,
			`REF: index.json of the layout: found non-hex character in hash: .`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`}
			if test.index != "" {
				files["index.json"] = test.index
			}
			checkFailure(t, write(t, files), source.Options{}, test.want)
		})
	}
}

func TestTheLayersOfAnImageLieOnEachOther(t *testing.T) {
	for name, test := range map[string]struct {
		layers [][]tarEntry // the lowest layer first
		want   map[string]string
	}{
		"only the release is taken": {
			[][]tarEntry{{file("etc/passwd", "p"), symlink("bin/sh", "../../../x"), file(`etc/a\x2db`, "odd"), {
				name: "dev/null",
				kind: tar.TypeChar,
			}, file("manifests/a", "a"), file("release-manifests/b", "b"), file("runlevel.yaml", "name: shop")}},
			map[string]string{"manifests/a": "a", "release-manifests/b": "b", "runlevel.yaml": "name: shop"},
		},
		"names may be absolute or begin with a dot": {
			[][]tarEntry{{file("/manifests/a", "a"), file("./manifests/b", "b")}},
			map[string]string{"manifests/a": "a", "manifests/b": "b"},
		},
		"a layer may be empty": {
			[][]tarEntry{{}, {file("manifests/a", "a")}, {}},
			map[string]string{"manifests/a": "a"},
		},
		"an upper file replaces a lower one": {
			[][]tarEntry{{file("manifests/a", "old"), file("manifests/b", "b")}, {file("manifests/a", "new")}},
			map[string]string{"manifests/a": "new", "manifests/b": "b"},
		},
		"a whiteout takes a file away": {
			[][]tarEntry{{file("manifests/a", "a"), file("manifests/b", "b")}, {file("manifests/.wh.a", "")}},
			map[string]string{"manifests/b": "b"},
		},
		"and a folder": {
			[][]tarEntry{{file("manifests/a", "a"), file("manifests/d/b", "b")}, {file("manifests/.wh.d", "")}},
			map[string]string{"manifests/a": "a"},
		},
		"and all of manifests": {
			[][]tarEntry{{file("manifests/a", "a"), file("release-manifests/b", "b")}, {file(".wh.manifests", "")}},
			map[string]string{"release-manifests/b": "b"},
		},
		"but not of its own layer": {
			[][]tarEntry{{file("manifests/d/a", "old"), file("manifests/d/b", "b")},
				{file("manifests/.wh.d", ""), file("manifests/d/a", "new")}},
			map[string]string{"manifests/d/a": "new"},
		},
		"nor of a layer above": {
			[][]tarEntry{{file("manifests/a", "a")}, {file("manifests/.wh.a", "")}, {file("manifests/a", "again")}},
			map[string]string{"manifests/a": "again"},
		},
		"an opaque folder hides what's below": {
			[][]tarEntry{{file("manifests/d/a", "a"), file("manifests/e", "e")},
				{file("manifests/d/.wh..wh..opq", ""), file("manifests/d/b", "b")}},
			map[string]string{"manifests/d/b": "b", "manifests/e": "e"},
		},
		"an opaque root hides all": {
			[][]tarEntry{{file("manifests/a", "a")}, {file(".wh..wh..opq", ""), file("manifests/b", "b")}},
			map[string]string{"manifests/b": "b"},
		},
		"a file replaces a folder": {
			[][]tarEntry{{file("manifests/d/a", "a")}, {file("manifests/d", "d")}},
			map[string]string{"manifests/d": "d"},
		},
		"a folder replaces a file": {
			[][]tarEntry{{file("manifests/d", "d")}, {file("manifests/d/a", "a")}},
			map[string]string{"manifests/d/a": "a"},
		},
		"links within the release work": {
			[][]tarEntry{{
				file("manifests/d/a", "a"), symlink("manifests/absolute", "/manifests/d/a"),
				symlink("manifests/relative", "d/a"),
				symlink("release-manifests/over", "../manifests/d/a"),
				symlink("manifests/above", "../../../manifests/d/a"), hardLink("manifests/hard", "manifests/d/a"),
			}},
			map[string]string{
				"manifests/d/a": "a", "manifests/absolute": "a", "manifests/relative": "a",
				"release-manifests/over": "a", "manifests/above": "a", "manifests/hard": "a",
			},
		},
		"a whole folder may be a link": {
			[][]tarEntry{{file("release-manifests/a", "a"), symlink("manifests", "release-manifests")}},
			map[string]string{"manifests/a": "a", "release-manifests/a": "a"},
		},
		"a hard link keeps what its layer had": {
			[][]tarEntry{{file("manifests/a", "old"), hardLink("manifests/hard", "manifests/a")},
				{file("manifests/a", "new")}},
			map[string]string{"manifests/a": "new", "manifests/hard": "old"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var layers []v1.Layer
			for _, entries := range test.layers {
				layers = append(layers, layer(t, entries...))
			}
			dir := newLayout(t, map[string]v1.Image{"1.0": imageOf(t, layers...)})
			checkFiles(t, open(t, dir, source.Options{}).FS, test.want)
		})
	}
}

func TestLayersMayBeCompressedOrNot(t *testing.T) {
	plain := tarOf(t, entriesOf(small)...)
	for name, layer := range map[string]v1.Layer{
		"not at all": static.NewLayer(plain, types.OCIUncompressedLayer),
		"by zstd":    static.NewLayer(zstded(t, plain), types.OCILayerZStd),
		"by gzip":    static.NewLayer(gzipped(t, plain), types.DockerLayer),
	} {
		t.Run(name, func(t *testing.T) {
			checkFiles(t, open(t, newLayout(t, map[string]v1.Image{"1.0": imageOf(t, layer)}), source.Options{}).FS,
				small)
		})
	}
}

func TestRefusedImages(t *testing.T) {
	for name, test := range map[string]struct {
		entries []tarEntry
		limits  source.Limits
		want    string // LAYER for the layer
	}{
		"no manifests": {
			[]tarEntry{file("etc/passwd", "p")}, source.Limits{},
			"REF is not a release image: it has neither manifests/ nor release-manifests/",
		},
		"a file for manifests": {
			[]tarEntry{file("manifests", "m")}, source.Limits{},
			"REF is not a release image: it has neither manifests/ nor release-manifests/",
		},
		"a link out of the release": {
			[]tarEntry{symlink("manifests/l", "../etc/passwd"), file("etc/passwd", "p")}, source.Limits{},
			`REF: link "manifests/l" to "/manifests/../etc/passwd": the target does not exist, or is not part of the payload`,
		},
		"an absolute link out of the release": {
			[]tarEntry{symlink("manifests/l", "/etc/passwd"), file("etc/passwd", "p")}, source.Limits{},
			`REF: link "manifests/l" to "/etc/passwd": the target does not exist, or is not part of the payload`,
		},
		"a hard link out of the release": {
			[]tarEntry{file("etc/passwd", "p"), hardLink("manifests/l", "etc/passwd")}, source.Limits{},
			`REF: layer LAYER: entry "manifests/l": hard link to "etc/passwd", which is not a file that comes before it`,
		},
		"a name that leads in from outside": {
			[]tarEntry{file("etc/../manifests/a", "a")}, source.Limits{},
			`REF: layer LAYER: entry "etc/../manifests/a": its name has ".." in it`,
		},
		"a device": {
			[]tarEntry{{name: "manifests/d", kind: tar.TypeChar}}, source.Limits{},
			`REF: layer LAYER: entry "manifests/d": is a device, pipe or other special file, which a release can't have`,
		},
		"a file over its limit": {
			[]tarEntry{file("etc/big", "12345"), file("manifests/a", "12345")}, source.Limits{File: 4},
			`REF: layer LAYER: "manifests/a" has 5 bytes: the limit for one file is 4 bytes`,
		},
		"too many files": {
			[]tarEntry{file("manifests/a", ""), file("manifests/b", "")}, source.Limits{Files: 2},
			"REF: layer LAYER: it has more than 2 files and folders, which is the limit",
		},
		"an operating system over the limit": {
			[]tarEntry{file("etc/big", strings.Repeat("0", 1<<20)), file("manifests/a", "12345")},
			source.Limits{Unpacked: 4096},
			"REF: layer LAYER: it unpacks to more than 4 KiB, which is the limit",
		},
		"a layer over the limit": {
			[]tarEntry{file("manifests/a", "12345")}, source.Limits{Unpacked: 16},
			"REF: layer LAYER: it has SIZE bytes: the limit for unpacking is 16 bytes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			only := layer(t, test.entries...)
			size, err := only.Size()
			if err != nil {
				t.Fatal(err)
			}
			want := strings.NewReplacer("LAYER", digestOf(t, only), "SIZE", fmt.Sprint(size)).Replace(test.want)
			dir := newLayout(t, map[string]v1.Image{"1.0": imageOf(t, only)})
			checkFailure(t, dir, source.Options{Limits: test.limits}, want)
		})
	}
}
