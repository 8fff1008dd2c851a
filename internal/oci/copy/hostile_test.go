package copy_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/oci/copy"
)

// answering is a registry that answers GET requests for blobs itself, once it is on.
func answering(isOn *atomic.Bool, answer http.HandlerFunc) middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			if isOn.Load() && isBlob(request) && request.Method == http.MethodGet {
				answer(w, request)
				return
			}
			next.ServeHTTP(w, request)
		})
	}
}

func TestRegistriesThatLie(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"other content": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, strings.Repeat("x", 2000))
		}, "content has "},
		"endless content": {func(w http.ResponseWriter, _ *http.Request) {
			for range 1000 {
				fmt.Fprint(w, strings.Repeat("x", 100_000))
			}
		}, "content has more than the "},
		"a web page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, "<html>Log in</html>")
		}, "answers with a web page, such as the login page of a network"},
		"a web page for an error": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<html>SECRET</html>")
		}, "denies access (403): log in to "},
		"a redirect to the metadata of the cloud": {func(w http.ResponseWriter, request *http.Request) {
			http.Redirect(w, request, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
		}, "leads to 169.254.169.254, an address of this machine or its host: refused"},
		"a redirect to a link-local address": {func(w http.ResponseWriter, request *http.Request) {
			http.Redirect(w, request, "http://[fe80::1]/latest", http.StatusFound)
		}, "leads to fe80::1, an address of this machine or its host: refused"},
		"redirects without an end": {func(w http.ResponseWriter, request *http.Request) {
			http.Redirect(w, request, request.URL.Path, http.StatusFound)
		}, "redirects more than 5 times"},
	} {
		t.Run(name, func(t *testing.T) {
			var isOn atomic.Bool
			source := serve(t, answering(&isOn, test.answer))
			source.push(t, "shop/web:1", randomImage(t, 1000, 2))
			isOn.Store(true)
			folder := filepath.Join(t.TempDir(), "layout")
			_, err := copyImage(t, source.location(t, "shop/web:1"), oci.Location{Path: folder}, copy.Options{})
			checkError(t, err, test.want)
			if err != nil && strings.Contains(err.Error(), "SECRET") {
				t.Errorf("error has the answer: %v", err)
			}
			if _, err := os.Stat(filepath.Join(folder, "index.json")); err == nil {
				t.Error("the image is in the layout")
			}
			if blobs, _ := filepath.Glob(filepath.Join(folder, "blobs/sha256/*[0-9a-f]")); len(blobs) > 0 {
				t.Errorf("blobs are %v", blobs)
			}
		})
	}
}

func TestPartsOtherThanThoseAskedForAreNotUsed(t *testing.T) {
	for name, lie := range map[string]func(w http.ResponseWriter, whole []byte){
		"another part": func(w http.ResponseWriter, whole []byte) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(whole)-1, len(whole)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(whole)
		},
		"no such part": func(w http.ResponseWriter, _ []byte) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		},
	} {
		t.Run(name, func(t *testing.T) {
			drops := &dropping{after: mib}
			drops.isOff.Store(true)
			source := serve(t, drops.middleware, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
					if request.Header.Get("Range") == "" {
						next.ServeHTTP(w, request)
						return
					}
					request.Header.Del("Range")
					drops.isOff.Store(true)
					recorder := httptest.NewRecorder()
					next.ServeHTTP(recorder, request)
					lie(w, recorder.Body.Bytes())
				})
			})
			image := randomImage(t, 3*mib, 2)
			source.push(t, "shop/web:1", image)
			drops.isOff.Store(false)
			folder := filepath.Join(t.TempDir(), "layout")
			target := oci.Location{Path: folder, Identifier: "1"}
			mustCopy(t, source.location(t, "shop/web:1"), target, copy.Options{Jobs: 1})
			checkLayout(t, folder, digestOf(t, image))
			if source.asked("GET blobs") < 5 {
				t.Error("no part was asked for")
			}
		})
	}
}

func TestCredentialsStayWithTheirRegistry(t *testing.T) {
	var leaked, isClosed atomic.Bool
	var content atomic.Pointer[http.Handler]
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if isClosed.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if request.Header.Get("Authorization") != "" || strings.Contains(fmt.Sprint(request.Header), "pass-word") {
			leaked.Store(true)
		}
		(*content.Load()).ServeHTTP(w, request)
	}))
	t.Cleanup(elsewhere.Close)
	var isOn atomic.Bool
	source := serve(t, func(next http.Handler) http.Handler {
		content.Store(&next)
		return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			_, password, _ := request.BasicAuth()
			switch {
			case isOn.Load() && password != "pass-word":
				w.Header().Set("WWW-Authenticate", "Basic")
				w.WriteHeader(http.StatusUnauthorized)
			case isOn.Load() && isBlob(request) && request.Method == http.MethodGet:
				address := elsewhere.URL + request.URL.Path + "?signature=SECRET"
				http.Redirect(w, request, address, http.StatusTemporaryRedirect)
			default:
				next.ServeHTTP(w, request)
			}
		})
	})
	image := randomImage(t, 1000, 2)
	source.push(t, "shop/web:1", image)
	isOn.Store(true)
	writeCredentials(t, source.host, "pass-word")
	target := oci.Location{Path: filepath.Join(t.TempDir(), "layout"), Identifier: "1"}
	mustCopy(t, source.location(t, "shop/web:1"), target, copy.Options{})
	checkLayout(t, target.Path, digestOf(t, image))
	if leaked.Load() {
		t.Error("another host has got the credentials")
	}
	isClosed.Store(true)
	target.Path = filepath.Join(t.TempDir(), "layout")
	_, err := copyImage(t, source.location(t, "shop/web:1"), target, copy.Options{})
	if err == nil || strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "pass-word") {
		t.Errorf("error is %v", err)
	}
}

// writeLayout writes a layout with the library, and returns its folder.
func writeLayout(t testing.TB, image mutate.Appendable) string {
	t.Helper()
	folder := t.TempDir()
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	switch appended := image.(type) {
	case v1.Image:
		err = path.AppendImage(appended)
	case v1.ImageIndex:
		err = path.AppendIndex(appended)
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// edit replaces a text in a file.
func edit(t *testing.T, path, old, replaced string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), old) {
		t.Fatalf("%s has no %q", path, old)
	}
	content = []byte(strings.ReplaceAll(string(content), old, replaced))
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLayoutsThatLie(t *testing.T) {
	image := randomImage(t, 1000, 1)
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	layer := "blobs/sha256/" + manifest.Layers[0].Digest.Hex
	foreign, err := mutate.Append(image, mutate.Addendum{
		Layer: layerOf(t), URLs: []string{"https://elsewhere.example/layer"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		image mutate.Appendable
		lie   func(t *testing.T, folder string)
		want  string
	}{
		"a digest that leads out": {image, func(t *testing.T, folder string) {
			edit(t, filepath.Join(folder, "index.json"), digestOf(t, image).Hex, "../../../../etc/passwd")
		}, "index.json of the layout: "},
		"an algorithm that leads out": {image, func(t *testing.T, folder string) {
			edit(t, filepath.Join(folder, "index.json"), "sha256:", "../sha256:")
		}, "index.json of the layout: "},
		"a changed manifest": {image, func(t *testing.T, folder string) {
			edit(t, filepath.Join(folder, "blobs/sha256", digestOf(t, image).Hex), "schemaVersion", "schemaversion")
		}, "content has digest sha256:"},
		"a changed layer": {image, func(t *testing.T, folder string) {
			zeros := make([]byte, manifest.Layers[0].Size)
			if err := os.WriteFile(filepath.Join(folder, layer), zeros, 0o644); err != nil {
				t.Fatal(err)
			}
		}, "content has digest sha256:"},
		"a short layer": {image, func(t *testing.T, folder string) {
			if err := os.Truncate(filepath.Join(folder, layer), 100); err != nil {
				t.Fatal(err)
			}
		}, fmt.Sprintf("content ends after 100 of %d bytes", manifest.Layers[0].Size)},
		"a missing layer": {image, func(t *testing.T, folder string) {
			if err := os.Remove(filepath.Join(folder, layer)); err != nil {
				t.Fatal(err)
			}
		}, manifest.Layers[0].Digest.String() + ": the layout doesn't have it"},
		"a foreign layer": {foreign, func(t *testing.T, folder string) {
			layers, err := foreign.Manifest()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(folder, "blobs/sha256", layers.Layers[1].Digest.Hex)); err != nil {
				t.Fatal(err)
			}
		}, "it is only at https://elsewhere.example/layer, and foreign layers are not downloaded"},
		"indexes in indexes": {image, nest, "manifests are nested more than 6 deep"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := writeLayout(t, test.image)
			test.lie(t, folder)
			target := serve(t)
			_, err := copyImage(t, oci.Location{Path: folder}, target.location(t, "shop/web:1"), copy.Options{})
			checkError(t, err, test.want)
			if target.asked("PUT manifests") > 0 {
				t.Error("a manifest was written")
			}
			archive := oci.Location{Path: filepath.Join(t.TempDir(), "x.tar")}
			_, err = copyImage(t, oci.Location{Path: folder}, archive, copy.Options{})
			checkError(t, err, test.want)
			if _, err := os.Stat(archive.Path); err == nil {
				t.Error("the archive was written")
			}
		})
	}
}

// nest puts the image of a layout into indexes in indexes.
func nest(t *testing.T, folder string) {
	t.Helper()
	path := filepath.Join(folder, "index.json")
	for range 8 {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		digest, size, err := v1.SHA256(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		outer := fmt.Sprintf(`{"schemaVersion": 2, "manifests": [{"mediaType": %q, "digest": %q, "size": %d}]}`,
			types.OCIImageIndex, digest, size)
		err = os.WriteFile(filepath.Join(folder, "blobs/sha256", digest.Hex), content, 0o644)
		if err == nil {
			err = os.WriteFile(path, []byte(outer), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func layerOf(t *testing.T) v1.Layer {
	t.Helper()
	layer, err := random.Layer(100, "application/vnd.docker.image.rootfs.diff.tar.gzip")
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

func TestSchema1IsRefused(t *testing.T) {
	source := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			if strings.Contains(request.URL.Path, "/manifests/") {
				w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v1+prettyjws")
				fmt.Fprint(w, `{"schemaVersion": 1, "name": "shop/web", "tag": "1", "fsLayers": []}`)
				return
			}
			next.ServeHTTP(w, request)
		})
	})
	target := oci.Location{Path: filepath.Join(t.TempDir(), "layout")}
	_, err := copyImage(t, source.location(t, "shop/web:1"), target, copy.Options{})
	checkError(t, err, "is of Docker's schema 1, which is not supported: build the image with a current tool")
	if _, err := os.Stat(target.Path); err == nil {
		t.Error("the folder was created")
	}
}

func TestLinksThatLeadOutAreNotWrittenThrough(t *testing.T) {
	image := randomImage(t, 1000, 1)
	from := writeLayout(t, image)
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{
		"blobs", "blobs/sha256", "oci-layout", "blobs/sha256/" + manifest.Layers[0].Digest.Hex + ".partial",
	} {
		t.Run(strings.ReplaceAll(link, "/", "_"), func(t *testing.T) {
			outside, folder := t.TempDir(), t.TempDir()
			victim := filepath.Join(outside, "victim")
			isFolder := strings.HasPrefix(link, "blobs") && !strings.HasSuffix(link, ".partial")
			pointed := victim
			if isFolder {
				pointed = outside
			}
			if err := os.WriteFile(victim, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(folder, filepath.Dir(link)), 0o755); err != nil {
				t.Fatal(err)
			}
			if link != "oci-layout" {
				if err := os.WriteFile(filepath.Join(folder, "oci-layout"), []byte("{}"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(pointed, filepath.Join(folder, link)); err != nil {
				t.Fatal(err)
			}
			_, err := copyImage(t, oci.Location{Path: from}, oci.Location{Path: folder}, copy.Options{})
			if err == nil {
				t.Error("the link was followed")
			}
			content, err := os.ReadFile(victim)
			entries, _ := os.ReadDir(outside)
			if err != nil || len(content) > 0 || len(entries) > 1 {
				t.Errorf("outside are %v, %q, %v", entries, content, err)
			}
		})
	}
}

func TestProcessesWriteToALayoutOneAfterTheOther(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "layout")
	results := make(chan error)
	const writers = 4
	from := oci.Location{Path: writeLayout(t, randomImage(t, mib, 3))}
	for i := range writers {
		go func() {
			_, err := copyImage(t, from, oci.Location{Path: folder, Identifier: fmt.Sprint(i)}, copy.Options{})
			results <- err
		}()
	}
	for range writers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	for i := range writers {
		mustCopy(t, oci.Location{Path: folder, Identifier: fmt.Sprint(i)},
			oci.Location{Path: filepath.Join(t.TempDir(), "x.tar")}, copy.Options{})
	}
}
