package copy_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/runlevel/runlevel/internal/oci"
)

// A middleware changes what a registry does.
type middleware func(http.Handler) http.Handler

// A testRegistry is a registry on this machine, which counts what it sends and receives.
type testRegistry struct {
	host           string
	sent, received atomic.Int64 // bytes of blobs
	requests       sync.Map     // count by method and last folder of the path
}

func serve(t testing.TB, changes ...middleware) *testRegistry {
	t.Helper()
	return serveWith(t, []registry.Option{registry.WithReferrersSupport(true)}, changes...)
}

func serveWith(t testing.TB, options []registry.Option, changes ...middleware) *testRegistry {
	t.Helper()
	r := &testRegistry{}
	handler := registry.New(append(options, registry.Logger(log.New(io.Discard, "", 0)))...)
	for _, change := range changes {
		handler = change(handler)
	}
	server := httptest.NewUnstartedServer(r.count(handler))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	return r
}

func (r *testRegistry) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		count, _ := r.requests.LoadOrStore(request.Method+" "+path.Base(path.Dir(request.URL.Path)), &atomic.Int64{})
		count.(*atomic.Int64).Add(1)
		if isBlob(request) {
			request.Body = countedBody{request.Body, &r.received}
			w = countedWriter{w, &r.sent}
		}
		next.ServeHTTP(w, request)
	})
}

// asked returns how often there was a request to a folder of the path.
func (r *testRegistry) asked(key string) int64 {
	count, _ := r.requests.LoadOrStore(key, &atomic.Int64{})
	return count.(*atomic.Int64).Load()
}

func isBlob(request *http.Request) bool { return strings.Contains(request.URL.Path, "/blobs/") }

func isUpload(request *http.Request) bool {
	return strings.Contains(request.URL.Path, "/blobs/uploads/")
}

type countedBody struct {
	io.ReadCloser
	count *atomic.Int64
}

func (c countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.count.Add(int64(n))
	return n, err
}

type countedWriter struct {
	http.ResponseWriter
	count *atomic.Int64
}

func (c countedWriter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.count.Add(int64(n))
	return n, err
}

func (c countedWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// location returns the location of a repository and a tag or digest.
func (r *testRegistry) location(t testing.TB, ref string) oci.Location {
	t.Helper()
	return parse(t, r.host+"/"+ref)
}

func parse(t testing.TB, ref string) oci.Location {
	t.Helper()
	location, err := oci.ParseRegistry(ref, true)
	if err != nil {
		t.Fatal(err)
	}
	return location
}

// push puts an image or index into the registry, with the library.
func (r *testRegistry) push(t testing.TB, ref string, pushed remote.Taggable, options ...remote.Option) {
	t.Helper()
	reference, err := name.ParseReference(r.host+"/"+ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Push(reference, pushed, options...); err != nil {
		t.Fatal(err)
	}
}

// dropping is a registry that drops connections: every second download or upload of a blob, after some bytes. It keeps
// what it has received if keepsUploads is set.
type dropping struct {
	after        int64
	keepsUploads bool

	isOff   atomic.Bool
	mu      sync.Mutex
	count   map[string]int
	uploads map[string]int64 // bytes by path
}

func (d *dropping) middleware(next http.Handler) http.Handler {
	d.count, d.uploads = map[string]int{}, map[string]int64{}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		d.mu.Lock()
		drops := false
		isLarge := isBlob(request) && (request.Method == http.MethodGet || request.Method == http.MethodPatch)
		if isLarge && !d.isOff.Load() {
			d.count[request.Method]++
			drops = d.count[request.Method]%2 == 1
		}
		have := d.uploads[request.URL.Path]
		d.mu.Unlock()
		switch {
		case isUpload(request) && request.Method == http.MethodGet && d.keepsUploads && have > 0:
			w.Header().Set("Location", request.URL.Path)
			w.Header().Set("Range", fmt.Sprintf("0-%d", have-1))
			w.WriteHeader(http.StatusNoContent)
		case request.Method == http.MethodPatch:
			d.patch(next, w, request, drops)
		case request.Method == http.MethodGet && isBlob(request) && !isUpload(request):
			request.Header.Set("Accept-Encoding", "identity")
			if drops {
				w = &cutWriter{w, d.after}
			}
			next.ServeHTTP(w, request)
		default:
			next.ServeHTTP(w, request)
		}
	})
}

func (d *dropping) patch(next http.Handler, w http.ResponseWriter, request *http.Request, drops bool) {
	body := request.Body
	if drops {
		body = io.NopCloser(io.LimitReader(body, d.after))
	}
	content, _ := io.ReadAll(body)
	request.Body = io.NopCloser(bytes.NewReader(content))
	if !drops {
		next.ServeHTTP(w, request)
		return
	}
	if d.keepsUploads {
		next.ServeHTTP(httptest.NewRecorder(), request)
		d.mu.Lock()
		d.uploads[request.URL.Path] += int64(len(content))
		d.mu.Unlock()
	}
	panic(http.ErrAbortHandler)
}

// A cutWriter drops the connection after some bytes.
type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (c *cutWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= int64(len(p))
	return c.ResponseWriter.Write(p)
}

func (c *cutWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func digestOf(t testing.TB, object interface{ Digest() (v1.Hash, error) }) v1.Hash {
	t.Helper()
	digest, err := object.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest
}
