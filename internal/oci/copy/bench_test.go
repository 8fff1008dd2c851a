package copy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/oci/copy"
)

// discarding is a registry that takes all blobs and keeps none.
func discarding(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		status := map[string]int{
			http.MethodHead:  http.StatusNotFound,
			http.MethodPost:  http.StatusAccepted,
			http.MethodPatch: http.StatusAccepted,
			http.MethodPut:   http.StatusCreated,
		}[request.Method]
		switch {
		case isBlob(request) && status != 0:
			_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{request.Body}, make([]byte, 64<<10))
			w.Header().Set("Location", "/v2/shop/web/blobs/uploads/1")
			w.WriteHeader(status)
		default:
			next.ServeHTTP(w, request)
		}
	})
}

// manifestOf returns the manifest of an image with an empty config.
func manifestOf(t testing.TB, layers ...v1.Descriptor) ([]byte, v1.Descriptor) {
	t.Helper()
	config, size, err := v1.SHA256(strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		Config:        v1.Descriptor{MediaType: types.OCIConfigJSON, Digest: config, Size: size},
		Layers:        layers,
	})
	if err != nil {
		t.Fatal(err)
	}
	digest, size, err := v1.SHA256(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return raw, v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, Size: size}
}

func TestLargeLayersNeedLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 5 GiB")
	}
	const zeros = "7f06c62352aebd8125b2a1841e2b9e1ffcbed602f381c3dcb3200200e383d1d5"
	layer := v1.Descriptor{
		MediaType: types.OCIUncompressedLayer, Size: 5 << 30, Digest: v1.Hash{Algorithm: "sha256", Hex: zeros},
	}
	raw, described := manifestOf(t, layer)
	folder := t.TempDir()
	blobs := filepath.Join(folder, "blobs", "sha256")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	index := fmt.Sprintf(`{"schemaVersion": 2, "manifests": [{"mediaType": %q, "digest": %q, "size": %d}]}`,
		described.MediaType, described.Digest, described.Size)
	for name, content := range map[string]string{
		"oci-layout": `{"imageLayoutVersion": "1.0.0"}`,
		"index.json": index,
		"blobs/sha256/44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a": "{}",
		"blobs/sha256/" + described.Digest.Hex:                                          string(raw),
		"blobs/sha256/" + zeros:                                                         "",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(filepath.Join(blobs, zeros), layer.Size); err != nil { // a sparse file
		t.Fatal(err)
	}
	target := serve(t, discarding)
	mustCopy(t, oci.Location{Path: folder}, target.location(t, "shop/web:1"), copy.Options{})
	if got := target.received.Load(); got < layer.Size {
		t.Errorf("%d bytes were received", got)
	}
	checkMemory(t)
}

const maxMemory = 150 * mib

// checkMemory checks the most memory that this process has had from the system.
func checkMemory(t testing.TB) {
	t.Helper()
	var used runtime.MemStats
	runtime.ReadMemStats(&used)
	if used.Sys > maxMemory {
		t.Errorf("%d MiB of memory were used", used.Sys/mib)
	}
}

// BenchmarkCopyOf2GB compares a copy between registries with the same by the registry library alone.
func BenchmarkCopyOf2GB(b *testing.B) {
	const size, layers, shift = 250_000_000, 8, 1000
	random := make([]byte, size+layers*shift)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	contents := map[string][]byte{}
	var described []v1.Descriptor
	for i := range layers {
		content := random[i*shift : i*shift+size]
		digest, _, err := v1.SHA256(bytes.NewReader(content))
		if err != nil {
			b.Fatal(err)
		}
		contents[digest.String()] = content
		described = append(described, v1.Descriptor{MediaType: types.OCIUncompressedLayer, Size: size, Digest: digest})
	}
	raw, manifest := manifestOf(b, described...)
	contents["sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"] = []byte("{}")
	source := serve(b, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			last := path.Base(request.URL.Path)
			switch content, exists := contents[last]; {
			case exists:
				http.ServeContent(w, request, "", time.Time{}, bytes.NewReader(content))
			case last == "1":
				w.Header().Set("Content-Type", string(manifest.MediaType))
				w.Header().Set("Docker-Content-Digest", manifest.Digest.String())
				_, _ = w.Write(raw)
			default:
				next.ServeHTTP(w, request)
			}
		})
	})
	var ours, plain time.Duration
	for b.Loop() {
		target := serve(b, discarding) // a new one: the library skips an image whose manifest is there
		begin := time.Now()
		mustCopy(b, source.location(b, "shop/web:1"), target.location(b, "shop/web:1"), copy.Options{})
		ours += time.Since(begin)
		begin = time.Now()
		copyPlainly(b, source.location(b, "shop/web:1"), target.location(b, "shop/web:2"))
		plain += time.Since(begin)
	}
	b.SetBytes(2 * layers * size)
	b.ReportMetric(plain.Seconds()/ours.Seconds(), "x-of-library")
	if ours > plain*5/4 {
		b.Errorf("a copy takes %s, and %s by the library alone", ours, plain)
	}
}

// copyPlainly copies an image by the registry library.
func copyPlainly(b *testing.B, from, target oci.Location) {
	b.Helper()
	source, err := name.ParseReference(from.String(), name.Insecure)
	if err != nil {
		b.Fatal(err)
	}
	written, err := name.ParseReference(target.String(), name.Insecure)
	if err != nil {
		b.Fatal(err)
	}
	image, err := remote.Image(source)
	if err == nil {
		err = remote.Write(written, image)
	}
	if err != nil {
		b.Fatal(err)
	}
}
