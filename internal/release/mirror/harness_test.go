package mirror_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/release/mirror"
	"github.com/runlevel/runlevel/internal/source"
)

// A server is a registry of a test.
type server struct {
	host    string
	inner   string // the address of the same content without middleware
	sent    atomic.Int64
	written atomic.Int64 // requests that write
	stored  atomic.Int64 // layers that were uploaded
	http    *httptest.Server
}

// serve starts a registry behind middleware, which may be nil.
func serve(t *testing.T, hasReferrers bool, middleware func(http.Handler) http.Handler) *server {
	t.Helper()
	return serveAt(t, hasReferrers, middleware, func(l net.Listener) net.Listener { return l })
}

// drop makes every second connection end early.
func drop(l net.Listener) net.Listener { return &droppingListener{Listener: l} }

// serveAt starts a registry with a listener.
func serveAt(t *testing.T, hasReferrers bool, middleware func(http.Handler) http.Handler,
	listen func(net.Listener) net.Listener) *server {
	t.Helper()
	content := registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(hasReferrers))
	outer := content
	if middleware != nil {
		outer = middleware(content)
	}
	s := &server{}
	var layers sync.Map // uploads of layers
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			s.written.Add(1)
		}
		counted := w
		if strings.Contains(r.URL.Path, "/blobs/") && r.Method == http.MethodGet {
			counted = &countingWriter{w, &s.sent}
		}
		outer.ServeHTTP(counted, r)
		if r.Method == http.MethodPatch && r.ContentLength >= layerSize {
			layers.Store(r.URL.Path, true)
		}
		if _, isLayer := layers.Load(r.URL.Path); r.Method == http.MethodPut && isLayer {
			s.stored.Add(1)
		}
	}))
	s.http.Listener = listen(s.http.Listener)
	s.http.Start()
	inner := httptest.NewServer(content)
	t.Cleanup(s.http.Close)
	t.Cleanup(inner.Close)
	s.host, s.inner = strings.TrimPrefix(s.http.URL, "http://"), strings.TrimPrefix(inner.URL, "http://")
	return s
}

type countingWriter struct {
	http.ResponseWriter
	count *atomic.Int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.count.Add(int64(n))
	return n, err
}

// A droppingListener closes every second connection after some bytes.
type droppingListener struct {
	net.Listener
	count atomic.Int64
}

// Accept implements net.Listener.
func (d *droppingListener) Accept() (net.Conn, error) {
	connection, err := d.Listener.Accept()
	if err != nil || d.count.Add(1)%2 == 0 {
		return connection, err
	}
	dropped := &droppedConnection{Conn: connection}
	dropped.left.Store(layerSize / 2)
	return dropped, nil
}

type droppedConnection struct {
	net.Conn
	left atomic.Int64
}

func (d *droppedConnection) Read(p []byte) (int, error)  { return d.drop(d.Conn.Read(p)) }
func (d *droppedConnection) Write(p []byte) (int, error) { return d.drop(d.Conn.Write(p)) }

func (d *droppedConnection) drop(n int, err error) (int, error) {
	if d.left.Add(-int64(n)) < 0 {
		return n, errors.Join(err, d.Conn.Close())
	}
	return n, err
}

// withPassword lets only user shop with password secret in.
func withPassword(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// push pushes an image or index, and returns its digest.
func (s *server) push(t *testing.T, repository string, what remote.Taggable) v1.Hash {
	t.Helper()
	ref := must[name.Reference](t)(name.ParseReference(s.inner + "/" + repository))
	var digest v1.Hash
	var err error
	switch what := what.(type) {
	case v1.ImageIndex:
		digest, _ = what.Digest()
		err = remote.WriteIndex(ref, what)
	case v1.Image:
		digest, _ = what.Digest()
		err = remote.Write(ref, what)
	}
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// digest returns the digest of a tag or digest, "" if there is none.
func (s *server) digest(t *testing.T, image string) string {
	t.Helper()
	ref := must[name.Reference](t)(name.ParseReference(s.inner + "/" + image))
	described, err := remote.Head(ref)
	if err != nil {
		return ""
	}
	return described.Digest.String()
}

// delete deletes a tag.
func (s *server) delete(t *testing.T, tagged string) {
	t.Helper()
	if err := remote.Delete(must[name.Reference](t)(name.ParseReference(s.inner + "/" + tagged))); err != nil {
		t.Fatal(err)
	}
}

// referrers returns the digests of the referrers of an image.
func (s *server) referrers(t *testing.T, repository string, digest v1.Hash) []string {
	t.Helper()
	index := must[v1.ImageIndex](t)(remote.Referrers(must[name.Digest](t)(
		name.NewDigest(s.inner + "/" + repository + "@" + digest.String()))))
	var all []string
	for _, described := range must[*v1.IndexManifest](t)(index.IndexManifest()).Manifests {
		all = append(all, described.Digest.String())
	}
	return all
}

// about returns an image about another one.
func about(t *testing.T, subject v1.Descriptor, content string) v1.Image {
	t.Helper()
	image := must[v1.Image](t)(mutate.AppendLayers(empty.Image,
		static.NewLayer([]byte(content), "application/vnd.example+json")))
	image = mutate.MediaType(image, types.OCIManifestSchema1)
	return mutate.Subject(image, subject).(v1.Image)
}

// A shop is a release with its images in a registry.
type shop struct {
	*server
	release string // its name by tag
	digest  v1.Hash
	web     v1.Hash // an index of two platforms
	child   v1.Hash // an image of the index
	tool    v1.Hash // an image with a tag
	sbom    v1.Hash // a referrer of the child
	bytes   int64   // of the layers of web and tool
}

const layerSize = 300_000

// newShop pushes a release: image-references name an index by digest, which has a signature with cosign's tag, and an
// image of which has an SBOM as referrer; a pod names an image by tag.
func newShop(t *testing.T, s *server, config string) *shop {
	t.Helper()
	made := &shop{server: s, bytes: 4 * layerSize}
	index := must[v1.ImageIndex](t)(random.Index(layerSize, 1, 2))
	manifests := must[*v1.IndexManifest](t)(index.IndexManifest()).Manifests
	made.web, made.child = s.push(t, "shop/web:1.0", index), manifests[0].Digest
	made.tool = s.push(t, "shop/tools/migrate:1.0", must[v1.Image](t)(random.Image(layerSize, 2)))
	made.sbom = s.push(t, "shop/web:unused", about(t, manifests[0], "sbom"))
	s.push(t, fmt.Sprintf("shop/web:sha256-%s.sig", made.web.Hex), must[v1.Image](t)(random.Image(100, 1)))
	made.digest = s.push(t, "shop/release:1.0.0", imageOf(t, map[string]string{
		"release-manifests/release-metadata": `{"kind": "cincinnati-metadata-v0", "version": "1.0.0"}`,
		"release-manifests/image-references": fmt.Sprintf(`{"kind": "ImageStream",
			"apiVersion": "image.openshift.io/v1",
			"metadata": {"name": "1.0.0"}, "spec": {"tags": [{"name": "web", "from": {"kind": "DockerImage",
			"name": "%s/shop/web@%s"}}]}}`, s.host, made.web),
		"release-manifests/0000_10_shop_job.yaml": fmt.Sprintf(`{"apiVersion": "batch/v1", "kind": "Job",
			"metadata": {"name": "migrate", "namespace": "shop"}, "spec": {"template": {"spec": {
			"restartPolicy": "Never",
			"initContainers": [{"name": "web", "image": "%[1]s/shop/web@%[2]s"}],
			"containers": [{"name": "migrate", "image": "%[1]s/shop/tools/migrate:1.0"}]}}}}`, s.host, made.web),
		"release-manifests/0000_10_shop_config.yaml": config,
	}))
	made.release = s.host + "/shop/release:1.0.0"
	return made
}

func imageOf(t *testing.T, files map[string]string) v1.Image {
	t.Helper()
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(files[name]))}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(archive, files[name])
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return must[v1.Image](t)(mutate.AppendLayers(empty.Image, static.NewLayer(layer.Bytes(), types.DockerLayer)))
}

var insecure = mirror.Options{Source: source.Options{Insecure: true}}

// run mirrors a release, and returns the result and the error of the copy.
func run(ctx context.Context, t *testing.T, from, target string, options mirror.Options) (*mirror.Mirror, error) {
	t.Helper()
	m, err := mirror.New(ctx, from, target, options)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if err := m.Survey(ctx); err != nil {
		return m, err
	}
	return m, m.Copy(ctx)
}

// mirrored mirrors a release, which must not fail.
func mirrored(t *testing.T, from, target string, options mirror.Options) *mirror.Mirror {
	t.Helper()
	m, err := run(t.Context(), t, from, target, options)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range m.Items {
		if item.Error != "" {
			t.Errorf("%s: %s", item.Image, item.Error)
		}
	}
	return m
}

// expectAt fails the test if a registry lacks a part of the shop, below a path, which may be empty.
func (s *shop) expectAt(t *testing.T, target *server, path string) {
	t.Helper()
	for image, want := range map[string]string{
		"shop/release:1.0.0": s.digest.String(), "shop/web@" + s.web.String(): s.web.String(),
		"shop/web:digest-" + s.web.Hex[:12]: s.web.String(), "shop/tools/migrate:1.0": s.tool.String(),
		"shop/web@" + s.child.String():          s.child.String(),
		"shop/web:sha256-" + s.web.Hex + ".sig": s.server.digest(t, "shop/web:sha256-"+s.web.Hex+".sig"),
	} {
		if got := target.digest(t, path+image); got != want || want == "" {
			t.Errorf("%s is %q, want %q", path+image, got, want)
		}
	}
	if got := target.referrers(t, path+"shop/web", s.child); !slices.Contains(got, s.sbom.String()) {
		t.Errorf("the SBOM is not a referrer: %q", got)
	}
}
