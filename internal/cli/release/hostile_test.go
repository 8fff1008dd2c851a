package release_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
)

// A layoutFolder is an OCI layout whose parts a test writes itself, and so may lie.
type layoutFolder string

func newLayout(t testing.TB) layoutFolder {
	t.Helper()
	folder := layoutFolder(t.TempDir())
	folder.write(t, "oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	return folder
}

func (l layoutFolder) write(t testing.TB, name string, content []byte) {
	t.Helper()
	path := filepath.Join(string(l), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// blob writes a blob, and returns its descriptor.
func (l layoutFolder) blob(t testing.TB, kind types.MediaType, content []byte) v1.Descriptor {
	t.Helper()
	digest, size, err := v1.SHA256(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	l.write(t, filepath.Join("blobs", "sha256", digest.Hex), content)
	return v1.Descriptor{MediaType: kind, Digest: digest, Size: size}
}

// document writes a value as JSON.
func (l layoutFolder) document(t testing.TB, kind types.MediaType, value any) v1.Descriptor {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return l.blob(t, kind, text)
}

// setIndex writes the index of the layout.
func (l layoutFolder) setIndex(t testing.TB, images ...v1.Descriptor) {
	t.Helper()
	text, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: images})
	if err != nil {
		t.Fatal(err)
	}
	l.write(t, "index.json", text)
}

// image writes an image with a layer of these files, and changes its manifest.
func (l layoutFolder) image(t testing.TB, entries []tar.Header, change func(*v1.Manifest)) v1.Descriptor {
	t.Helper()
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	for _, header := range entries {
		content := header.PAXRecords["TEST.content"]
		header.PAXRecords, header.Mode, header.Size = nil, 0o644, int64(len(content))
		if err := archive.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	manifest := &v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: l.document(t, types.OCIConfigJSON, v1.ConfigFile{OS: "linux", Architecture: "amd64"}),
		Layers: []v1.Descriptor{l.blob(t, types.OCIUncompressedLayer, layer.Bytes())},
	}
	if change != nil {
		change(manifest)
	}
	return l.document(t, types.OCIManifestSchema1, manifest)
}

// file returns an entry of a layer.
func file(name, content string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, PAXRecords: map[string]string{"TEST.content": content}}
}

// aRelease are the files of a small release.
func aRelease(more ...tar.Header) []tar.Header {
	return append([]tar.Header{
		file("release-manifests/release-metadata", `{"kind": "cincinnati-metadata-v0", "version": "1.4.0"}`),
		file("release-manifests/image-references",
			`{"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": {"name": "1.4.0"}}`),
		file("release-manifests/0000_10_web_a.yaml",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n"),
	}, more...)
}

// checkRefused runs info and extract, which must fail with one line, and leave nothing behind.
func checkRefused(t *testing.T, ref, want string) {
	t.Helper()
	for _, args := range [][]string{{"info", ref, "--platform", "linux/amd64"}, {"extract", ref, "--platform",
		"linux/amd64"}} {
		parent := t.TempDir()
		if args[0] == "extract" {
			args = append(args, "--to", filepath.Join(parent, "out"))
		}
		if strings.Contains(ref, "127.0.0.1") {
			args = append(args, "--insecure")
		}
		code, out, problems := run(t, args...)
		message := strings.TrimPrefix(problems, "pulling "+ref+"\n")
		if code == 0 || out != "" || !strings.Contains(message, want) || strings.Count(message, "\n") != 1 ||
			len(message) > 2500 || strings.ContainsAny(message, "\x1b\x00") {
			t.Errorf("%s: exit code %d, output %q, want one line with %q:\n%.3000q", args[0], code, out, want, message)
		}
		if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
			t.Errorf("%s has left %v, %v", args[0], left, err)
		}
	}
}

func TestLayoutsThatLie(t *testing.T) {
	zeros := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}
	for name, test := range map[string]struct {
		write func(layoutFolder)
		want  string
	}{
		"no index": {func(layoutFolder) {}, "index.json"},
		"an index of HTML": {func(l layoutFolder) { l.write(t, "index.json", []byte("<html>\x1b[31m</html>")) },
			"index.json of the layout: invalid character"},
		"a folder as the index": {func(l layoutFolder) { l.write(t, "index.json/x", nil) }, "is not a file"},
		"no image":              {func(l layoutFolder) { l.setIndex(t) }, "the layout has no image"},
		"a missing manifest": {func(l layoutFolder) {
			l.setIndex(t, v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: zeros, Size: 1})
		}, "the layout doesn't have it"},
		"another manifest": {func(l layoutFolder) {
			described := l.image(t, aRelease(), nil)
			l.write(t, filepath.Join("blobs", "sha256", described.Digest.Hex), []byte("{}"))
			l.setIndex(t, described)
		}, "content has digest sha256:44136fa3"},
		"a digest that is a path": {func(l layoutFolder) {
			l.write(t, "index.json", []byte(`{"schemaVersion": 2, "manifests": [{"mediaType": "`+
				string(types.OCIManifestSchema1)+`", "digest": "sha256:../../../../etc/passwd", "size": 2}]}`))
		}, "index.json of the layout: "},
		"an unknown algorithm": {func(l layoutFolder) {
			l.write(t, "index.json", []byte(`{"schemaVersion": 2, "manifests": [{"mediaType": "`+
				string(types.OCIManifestSchema1)+`", "digest": "md5:`+strings.Repeat("0", 32)+`", "size": 2}]}`))
		}, "md5"},
		"a missing config": {func(l layoutFolder) {
			l.setIndex(t, l.image(t, aRelease(), func(m *v1.Manifest) { m.Config.Digest = zeros }))
		}, "config sha256:000"},
		"a config of another size": {func(l layoutFolder) {
			l.setIndex(t, l.image(t, aRelease(), func(m *v1.Manifest) { m.Config.Size = 3 }))
		}, "content has more than the 3 bytes"},
		"a huge config": {func(l layoutFolder) {
			l.setIndex(t, l.image(t, aRelease(), func(m *v1.Manifest) { m.Config.Size = 5 << 30 }))
		}, "it has more than 8 MiB"},
		"a missing layer": {func(l layoutFolder) {
			l.setIndex(t, l.image(t, aRelease(), func(m *v1.Manifest) { m.Layers[0].Digest = zeros }))
		}, "layer sha256:000"},
		"a layer of 5 GB": {func(l layoutFolder) {
			l.setIndex(t, l.image(t, aRelease(), func(m *v1.Manifest) { m.Layers[0].Size = 5 << 30 }))
		}, "the limit for unpacking is 4 GiB"},
		"a layer of a negative size": {func(l layoutFolder) {
			l.setIndex(t, l.image(t, aRelease(), func(m *v1.Manifest) { m.Layers[0].Size = -1 }))
		}, "content has more than the -1 bytes"},
		"no manifests": {func(l layoutFolder) {
			l.setIndex(t, l.image(t, []tar.Header{file("etc/passwd", "root")}, nil))
		}, "is not a release image"},
		"an index in an index in an index": {func(l layoutFolder) {
			described := l.image(t, aRelease(), nil)
			for range 6 {
				described = l.document(t, types.OCIImageIndex, v1.IndexManifest{
					SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{described},
				})
			}
			l.setIndex(t, described)
		}, "indexes are nested more than 4 deep"},
		"an index for another platform": {func(l layoutFolder) {
			described := l.image(t, aRelease(), nil)
			described.Platform = &v1.Platform{OS: "linux", Architecture: "s390x\x1b[31m"}
			l.setIndex(t, l.document(t, types.OCIImageIndex, v1.IndexManifest{
				SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{described, described},
			}))
		}, "no image for platform linux/amd64"},
		"an artifact": {func(l layoutFolder) {
			l.setIndex(t, l.document(t, "application/vnd.example.thing", map[string]any{"a": 1}))
		}, "neither an image nor an index"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := newLayout(t)
			test.write(folder)
			checkRefused(t, string(folder), test.want)
		})
	}
}

func TestNamesInLayersThatLeadOut(t *testing.T) {
	long := strings.Repeat("a", 300)
	for name, test := range map[string]struct {
		entry tar.Header
		want  string
	}{
		"parent":    {file("release-manifests/../../out.yaml", "x"), `".."`},
		"backslash": {file(`release-manifests/..\..\out.yaml`, "x"), "backslash"},
		"link": {tar.Header{Name: "release-manifests/a.yaml", Typeflag: tar.TypeSymlink,
			Linkname: "../../../../etc/passwd"}, "release-manifests/a.yaml"},
		"link to a link": {tar.Header{Name: "release-manifests/a.yaml", Typeflag: tar.TypeSymlink,
			Linkname: "a.yaml"}, "release-manifests/a.yaml"},
		"device": {tar.Header{Name: "release-manifests/a.yaml", Typeflag: tar.TypeChar}, "device"},
		"hard link": {tar.Header{Name: "release-manifests/a.yaml", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
			"hard link"},
		"twice": {file("release-manifests/0000_10_web_a.yaml", "x"), "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := newLayout(t)
			folder.setIndex(t, folder.image(t, aRelease(test.entry), nil))
			checkRefused(t, string(folder), test.want)
		})
	}
	t.Run("too long for a file", func(t *testing.T) {
		folder, parent := newLayout(t), t.TempDir()
		folder.setIndex(t, folder.image(t, aRelease(file("release-manifests/"+long+".yaml", "")), nil))
		code, _, problems := run(t, "extract", string(folder), "--to", filepath.Join(parent, "out"))
		if left, err := os.ReadDir(parent); code == 0 || err != nil || len(left) > 0 {
			t.Errorf("exit code %d, left %v, %v: %s", code, left, err, problems)
		}
	})
}

// TestHostileTextIsPrintedSafely has control characters and large values in all places of a release.
func TestHostileTextIsPrintedSafely(t *testing.T) {
	const hostile = "a\x1b[31mb\u202ec\u2028d\nfaked: e"
	metadata := map[string]any{hostile: hostile, "a": strings.Repeat("long ", 100_000)}
	for i := range 10_000 {
		metadata[fmt.Sprintf("key-%d", i)] = map[string]any{hostile: []any{hostile, i}}
	}
	text, err := json.Marshal(map[string]any{
		"kind": "cincinnati-metadata-v0", "version": "1.4.0", "previous": []string{hostile, strings.Repeat("1", 5000)},
		"next": []string{hostile}, "metadata": metadata,
	})
	if err != nil {
		t.Fatal(err)
	}
	references, err := json.Marshal(map[string]any{
		"kind": "ImageStream", "apiVersion": "image.openshift.io/v1",
		"metadata": map[string]any{"name": "1.4.0", "creationTimestamp": hostile},
		"spec": map[string]any{"tags": []any{map[string]any{
			"name": hostile, "from": map[string]any{"kind": "DockerImage", "name": "registry.example/web:1"},
			"annotations": map[string]any{
				"io.openshift.build.commit.id": hostile, "io.openshift.build.source-location": hostile,
				"io.openshift.build.versions": hostile + "=1.2.3",
			},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	folder := newLayout(t)
	release := folder.image(t, []tar.Header{
		file("release-manifests/release-metadata", string(text)),
		file("release-manifests/image-references", string(references)),
		file("release-manifests/0000_10_"+hostile+"_a.yaml",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n"),
	}, func(m *v1.Manifest) {
		m.Annotations = map[string]string{"org.opencontainers.image.base.digest": hostile}
		m.Config = folder.document(t, types.OCIConfigJSON, v1.ConfigFile{OS: hostile, Architecture: hostile,
			Config: v1.Config{Labels: map[string]string{
				"io.openshift.release.base-image-digest": "sha256:" + hostile,
			}}})
	})
	artifact := folder.document(t, types.OCIManifestSchema1, map[string]any{
		"schemaVersion": 2, "mediaType": types.OCIManifestSchema1, "artifactType": hostile, "subject": release,
	})
	artifact.ArtifactType = hostile
	folder.setIndex(t, release, artifact)
	ref := string(folder) + "@" + release.Digest.String()
	for _, args := range [][]string{{"info", ref}, {"info", ref, "--pullspecs"}, {"info", ref, "-o", "json"},
		{"info", ref, "-o", "yaml"}, {"extract", ref, "--to", filepath.Join(t.TempDir(), "out")},
		{"extract", ref, "--file", hostile}, {"info", ref, "--image-for", hostile}} {
		_, out, problems := run(t, args...)
		for line := range strings.Lines(out + problems) {
			if strings.ContainsAny(line, "\x1b\u202e\u2028") || strings.HasPrefix(line, "faked") {
				t.Errorf("%v prints %.300q", args, line)
			}
		}
		if args[0] == "info" && len(args) == 2 && (len(out) > 20_000 || !strings.Contains(out, "more with -o json")) {
			t.Errorf("%d bytes of text:\n%.3000s", len(out), out)
		}
	}
}

// TestRegistriesThatLie serves a registry with one wrong answer.
func TestRegistriesThatLie(t *testing.T) {
	registry := imageregistry.Start()
	t.Cleanup(registry.Close)
	push(t, registry, "shop/release", releaseImage(t, nil, nil))
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registry.Host})
	page := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>\x1b[31mlog in</html>") }
	metadata := "http://169.254.169.254/latest/meta-data/"
	for name, test := range map[string]struct {
		path   string // part of the paths with another answer
		answer http.HandlerFunc
		want   string
	}{
		"a page for a manifest": {"/manifests/", page, "answers with a web page"},
		"a page for a blob":     {"/blobs/", page, "answers with a web page"},
		"an endless manifest": {"/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			for range 20 {
				if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
					return
				}
			}
		}, "8 MiB"},
		"redirects": {"/manifests/", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}, "redirects more than 5 times"},
		"a redirect to a metadata server": {"/blobs/", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, metadata, http.StatusTemporaryRedirect)
		}, "leads to 169.254.169.254"},
		"a metadata server for tokens": {"/v2/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+metadata+`",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}, "169.254.169.254"},
		"a page for a token": {"", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/token" {
				page(w, r)
				return
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}, "answers with a web page"},
		"a list of tags": {"/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"name": "shop", "tags": ["1.4.0"]}`)
		}, "neither an image nor an index"},
		"an error with a page": {"/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, strings.Repeat("<p>\x1b[31mno\n", 10_000))
		}, "answers 502 Bad Gateway"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, test.path) {
					test.answer(w, r)
				} else {
					proxy.ServeHTTP(w, r)
				}
			}))
			t.Cleanup(server.Close)
			checkRefused(t, strings.TrimPrefix(server.URL, "http://")+"/shop/release:v1", test.want)
		})
	}
}

// FuzzInfo describes and extracts images of any content, whose digests are right.
func FuzzInfo(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2}`), []byte(`{"os":"linux","config":{"Labels":{"a":"b"}}}`),
		[]byte(`{"kind":"cincinnati-metadata-v0","version":"1.4.0","metadata":{"a":[{}]}}`),
		[]byte(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.4.0"},"spec":{"tags":[`+
			`{"name":"web","from":{"kind":"DockerImage","name":"r.example/web@sha256:00"}}]}}`),
		[]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n"), "0000_10_web_a.yaml")
	f.Fuzz(func(t *testing.T, manifest, config, metadata, references, text []byte, name string) {
		folder := newLayout(t)
		if strings.ContainsAny(name, "/\x00") || name == "" || len(name) > 100 {
			t.Skip()
		}
		folder.setIndex(t, folder.image(t, []tar.Header{
			file("release-manifests/release-metadata", string(metadata)),
			file("release-manifests/image-references", string(references)),
			file("release-manifests/"+name, string(text)),
		}, func(m *v1.Manifest) {
			layers := m.Layers
			_ = json.Unmarshal(manifest, m)
			m.MediaType, m.Layers = types.OCIManifestSchema1, layers
			m.Config = folder.blob(t, types.OCIConfigJSON, config)
		}))
		out := filepath.Join(t.TempDir(), "out")
		for _, args := range [][]string{{"info", string(folder)}, {"info", string(folder), "-o", "json"},
			{"info", string(folder), string(folder)}, {"extract", string(folder), "--to", out}} {
			code, printed, problems := run(t, args...)
			if strings.ContainsAny(printed+problems, "\x1b\u202e\u2028\x00") {
				t.Errorf("%v prints %q", args, printed+problems)
			}
			if args[len(args)-1] == "json" && printed != "" && !json.Valid([]byte(printed)) {
				t.Errorf("not JSON: %q", printed)
			}
			if written, err := os.ReadFile(filepath.Join(out, "release-manifests", name)); args[0] == "extract" &&
				code == 0 && (err != nil || !bytes.Equal(written, text)) {
				t.Errorf("extracted %q, %v; want %q", written, err, text)
			}
		}
	})
}
