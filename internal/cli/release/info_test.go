package release_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cli/release"
	"github.com/runlevel/runlevel/internal/release/info"
	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
)

// run runs a verb of the group, and returns its exit code and output.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, problems bytes.Buffer
	command := release.New(core.Streams{Out: &out, Err: &problems})
	command.SetArgs(args)
	command.SilenceErrors, command.SilenceUsage = true, true
	code = core.ExitCode(command.ExecuteContext(t.Context()), &problems)
	return code, out.String(), problems.String()
}

// describe runs info, and returns its JSON.
func describe(t *testing.T, args ...string) *info.Info {
	t.Helper()
	code, out, problems := run(t, append([]string{"info", "-o", "json"}, args...)...)
	described := &info.Info{}
	if err := json.Unmarshal([]byte(out), described); err != nil {
		t.Fatalf("exit code %d, %s: %v", code, problems, err)
	}
	return described
}

// layerOf returns a layer of that many bytes.
func layerOf(content byte, size int) v1.Layer {
	return static.NewLayer(bytes.Repeat([]byte{content}, size), types.OCILayer)
}

func imageOf(t *testing.T, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON), layers...)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// releaseImage returns the image of a release that refers to images by their names.
func releaseImage(t *testing.T, images map[string]string, labels map[string]string) v1.Image {
	t.Helper()
	type tag struct {
		Name string            `json:"name"`
		From map[string]string `json:"from"`
	}
	var tags []tag
	for name, image := range images {
		tags = append(tags, tag{name, map[string]string{"kind": "DockerImage", "name": image}})
	}
	references, err := json.Marshal(map[string]any{
		"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": map[string]any{"name": "1.4.0"},
		"spec": map[string]any{"tags": tags},
	})
	if err != nil {
		t.Fatal(err)
	}
	return labelledImage(t, fstest.MapFS{
		"release-manifests/release-metadata": {Data: []byte(
			`{"kind": "cincinnati-metadata-v0", "version": "1.4.0"}`)},
		"release-manifests/image-references": {Data: references},
		"release-manifests/0000_10_web_a.yaml": {Data: []byte(
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n")},
	}, labels)
}

// labelledImage returns an image for linux/amd64 with files and labels.
func labelledImage(t *testing.T, files fs.FS, labels map[string]string) v1.Image {
	t.Helper()
	image, err := imageregistry.ImageOf(files)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config.Labels = "linux", "amd64", labels
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	return image
}

// push pushes an image or an index, and returns its name with the digest.
func push(t *testing.T, registry *imageregistry.Registry, repository string, pushed remote.Taggable) string {
	t.Helper()
	tag, err := name.NewTag(registry.Host+"/"+repository+":v1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Push(tag, pushed); err != nil {
		t.Fatal(err)
	}
	described, err := remote.Head(tag)
	if err != nil {
		t.Fatal(err)
	}
	return tag.Digest(described.Digest.String()).String()
}

func TestSizesCountSharedLayersOnce(t *testing.T) {
	registry := imageregistry.Start()
	t.Cleanup(registry.Close)
	shared := layerOf('s', 3_000_000)
	web := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{
			Add:        imageOf(t, shared, layerOf('w', 500_000)),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}},
		},
		mutate.IndexAddendum{
			Add:        imageOf(t, layerOf('a', 9_000_000)),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}},
		})
	ref := push(t, registry, "shop/release", releaseImage(t, map[string]string{
		"web":  push(t, registry, "shop/web", web),
		"db":   push(t, registry, "shop/db", imageOf(t, shared, layerOf('d', 250_000))),
		"gone": registry.Host + "/shop/gone@sha256:" + strings.Repeat("0", 64),
	}, nil))

	code, out, problems := run(t, "info", ref, "--insecure", "--size", "--platform", "linux/amd64")
	for _, want := range []string{"2       3.2 MB  0.2 MB", "2       3.5 MB  0.5 MB", "?       ?",
		"  3.8 MB for linux/amd64 in 3 layers; OWN"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if want := "warning: size of image gone: "; code != 1 || !strings.Contains(problems, want) {
		t.Errorf("exit code %d, %q is not in %s", code, want, problems)
	}

	described := describe(t, ref, "--insecure", "--size", "--platform", "linux/arm64")
	if described.Size.Bytes != 12_250_000 || len(described.Unreadable) != 1 {
		t.Errorf("linux/arm64: got %+v, %q", described.Size, described.Unreadable)
	}
}

func TestImageOfARelease(t *testing.T) {
	registry := imageregistry.Start()
	t.Cleanup(registry.Close)
	base := "sha256:" + strings.Repeat("b", 64)
	image := releaseImage(t, nil, map[string]string{"io.openshift.release.base-image-digest": base})
	index := mutate.AppendManifests(empty.Index)
	for _, architecture := range []string{"arm64", "amd64"} {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	ref := push(t, registry, "shop/release", index)
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	described := describe(t, ref, "--insecure")
	if described.BaseDigest != base || fmt.Sprint(described.Platforms) != "[linux/amd64 linux/arm64]" ||
		described.Digest != digest.String() || described.Image != ref || described.Attached != nil {
		t.Errorf("got %+v", described)
	}

	sbom := mutate.Subject(mutate.ConfigMediaType(imageOf(t, layerOf('{', 2)), "application/spdx+json"),
		v1.Descriptor{MediaType: types.OCIImageIndex, Digest: digest, Size: 1}).(v1.Image)
	push(t, registry, "shop/release", sbom)
	described = describe(t, ref, "--insecure")
	if len(described.Attached) != 1 || described.Attached[0].Type != "application/spdx+json" {
		t.Errorf("attached: %+v", described.Attached)
	}
	if _, out, _ := run(t, "info", ref, "--insecure"); !strings.Contains(out, "  application/spdx+json\n") {
		t.Errorf("no SBOM in\n%s", out)
	}

	folder, err := layout.Write(t.TempDir(), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := folder.AppendIndex(index); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "release.tar")
	writeTar(t, archive, os.DirFS(string(folder)))
	for _, ref := range []string{string(folder), archive, string(folder) + "@" + digest.String()} {
		described = describe(t, ref)
		if described.BaseDigest != base || described.Digest != digest.String() || described.Image != "" {
			t.Errorf("%s: got %+v", ref, described)
		}
	}
}

// writeTar writes files to an archive.
func writeTar(t *testing.T, name string, files fs.FS) {
	t.Helper()
	var text bytes.Buffer
	archive := tar.NewWriter(&text)
	if err := errors.Join(archive.AddFS(files), archive.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestReferrersThatCanNotBeRead asks a registry that fails for the referrers only.
func TestReferrersThatCanNotBeRead(t *testing.T) {
	registry := imageregistry.Start()
	t.Cleanup(registry.Close)
	ref := push(t, registry, "shop/release", releaseImage(t, nil, nil))
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registry.Host})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/referrers/") {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<html>\x1b[31mno</html>")
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	ref = strings.Replace(ref, registry.Host, strings.TrimPrefix(front.URL, "http://"), 1)
	code, out, problems := run(t, "info", ref, "--insecure")
	if code != 1 || !strings.HasPrefix(out, "release default 1.4.0\n") ||
		!strings.Contains(problems, "warning: what is attached to the image: ") || strings.Contains(problems, "\x1b") {
		t.Errorf("exit code %d, output %s, errors %q", code, out, problems)
	}
}
