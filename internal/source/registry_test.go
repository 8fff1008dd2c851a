package source_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/source"
)

// trust makes an authority that's trusted from then on, and its certificate for
// the names.
func trust(t *testing.T, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "registry"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "authority.pem")
	writeFile(t, file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	t.Setenv("SSL_CERT_FILE", file)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

// A testRegistry is one for real, in this process.
type testRegistry struct {
	host  string
	push  string // the address of the same image without a password or certificate
	count atomic.Int64
}

// newRegistry serves a registry behind middleware, with https that's trusted.
func newRegistry(t *testing.T, middleware func(http.Handler) http.Handler) *testRegistry {
	t.Helper()
	return serveRegistry(t, middleware, func(server *httptest.Server) {
		server.TLS = &tls.Config{Certificates: []tls.Certificate{trust(t, "127.0.0.1")}}
		server.StartTLS()
	})
}

func serveRegistry(t *testing.T, middleware func(http.Handler) http.Handler,
	start func(*httptest.Server)) *testRegistry {
	t.Helper()
	// The configuration of the user who runs this test must not be used.
	t.Setenv("DOCKER_CONFIG", write(t, map[string]string{"config.json": "{}"}))
	made := &testRegistry{}
	content := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	outer := content
	if middleware != nil {
		outer = middleware(content)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made.count.Add(1)
		if !strings.Contains(r.UserAgent(), "runlevel") {
			t.Errorf("%s by user agent %q", r.URL, r.UserAgent())
		}
		outer.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	start(server)
	t.Cleanup(server.Close)
	back := httptest.NewServer(content)
	t.Cleanup(back.Close)
	made.host = server.Listener.Addr().String()
	made.push = back.Listener.Addr().String()
	return made
}

// has puts an image or index into the registry, and returns its reference.
func (r *testRegistry) has(t *testing.T, path string, what remote.Taggable) string {
	t.Helper()
	ref, err := name.ParseReference(r.push + "/" + path)
	if err != nil {
		t.Fatal(err)
	}
	switch what := what.(type) {
	case v1.ImageIndex:
		err = remote.WriteIndex(ref, what)
	case v1.Image:
		err = remote.Write(ref, what)
	default:
		err = remote.Put(ref, what)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.host + "/" + path
}

func TestAnImageByTagAndByDigest(t *testing.T) {
	target := newRegistry(t, nil)
	image := smallImage(t)
	digest := digestOf(t, image)
	byTag := target.has(t, "some/repo:1.0", image)
	for _, ref := range []string{byTag, target.host + "/some/repo@" + digest, byTag + "@" + digest} {
		var progress bytes.Buffer
		release := open(t, ref, source.Options{Progress: &progress})
		checkFiles(t, release.FS, small)
		want := source.Release{
			FS:     release.FS,
			Kind:   source.Image,
			Image:  target.host + "/some/repo@" + digest,
			Digest: digest,
		}
		if release.Kind != want.Kind || release.Image != want.Image || release.Digest != want.Digest {
			t.Errorf("got release %+v, want %+v", release, want)
		}
		if progress.String() != "pulling "+ref+"\n" {
			t.Errorf("progress is %q", progress.String())
		}
	}
}

func TestAnImageOfSeveralLayers(t *testing.T) {
	target := newRegistry(t, nil)
	ref := target.has(t, "repo:1.0", imageOf(t,
		layer(t, file("etc/passwd", "p"), file("manifests/a", "a"), file("manifests/b", "old"),
			file("manifests/c", "c")),
		layer(t, file("manifests/.wh.a", ""), file("manifests/b", "new")),
	))
	checkFiles(t, open(t, ref, source.Options{}).FS, map[string]string{"manifests/b": "new", "manifests/c": "c"})
}

func TestAPlatformOfAnImageIsChosen(t *testing.T) {
	target := newRegistry(t, nil)
	index := indexOf(t, map[string]v1.Image{"linux/amd64": variant(t, "amd64"), "linux/arm64/v8": variant(t, "arm64")})
	ref := target.has(t, "repo:1.0", index)
	outer := target.has(t, "repo:outer", mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index}))
	for _, platform := range []string{"linux/amd64", "linux/arm64"} {
		release := open(t, ref, source.Options{Platform: platform})
		checkFiles(t, release.FS, map[string]string{"manifests/name.yaml": strings.TrimPrefix(platform, "linux/")})
		if release.Digest != digestOf(t, index) {
			t.Errorf("the digest is %s and not that of the index", release.Digest)
		}
		open(t, outer, source.Options{Platform: platform})
	}
	checkFailure(t, ref, source.Options{Platform: "linux/s390x"},
		"REF: no image for platform linux/s390x, only for linux/amd64, linux/arm64/v8")
	none := target.has(t, "repo:none", mutate.IndexMediaType(empty.Index, types.DockerManifestList))
	checkFailure(t, none, source.Options{Platform: "linux/s390x"},
		"REF: no image for platform linux/s390x, or for any other platform")
}

func TestIndexesAreNotNestedWithoutEnd(t *testing.T) {
	target := newRegistry(t, nil)
	index := indexOf(t, map[string]v1.Image{"linux/amd64": smallImage(t)})
	for range 5 {
		index = mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index})
	}
	checkFailure(t, target.has(t, "repo:1.0", index), source.Options{}, "REF: indexes are nested more than 4 deep")
}

// withPassword lets only the user "me" in.
func withPassword(password string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, given, _ := r.BasicAuth(); given != password {
				w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func TestCredentialsAreThoseOfDocker(t *testing.T) {
	target := newRegistry(t, withPassword("secret"))
	ref := target.has(t, "repo:1.0", smallImage(t))
	denied := fmt.Sprintf("REF: %s denies access (401): log in to %[1]s, for example with \"docker login %[1]s\"",
		target.host)
	checkFailure(t, ref, source.Options{}, denied)

	config := func(password string) {
		t.Setenv("DOCKER_CONFIG", write(t, map[string]string{
			"config.json": fmt.Sprintf(`{"auths": {%q: {"username": "me", "password": %q}}}`, target.host, password),
		}))
	}
	config("wrong")
	checkFailure(t, ref, source.Options{}, denied)
	config("secret")
	checkFiles(t, open(t, ref, source.Options{}).FS, small)
}

// failingServer responds to requests for a path with a status, a number of times for each URL or always.
func failingServer(status, times int, path string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		var mu sync.Mutex
		answered := map[string]int{}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			answered[r.URL.Path]++
			now := strings.Contains(r.URL.Path, path) && (times == 0 || answered[r.URL.Path] <= times)
			mu.Unlock()
			if now {
				w.WriteHeader(status)
				io.WriteString(w, `{"errors": [{"code": "WHY", "message": "\u001b[31mfor\nno reason"}]}`)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func TestTemporaryFailuresAreRetried(t *testing.T) {
	target := newRegistry(t, failingServer(http.StatusServiceUnavailable, 2, "/manifests/"))
	checkFiles(t, open(t, target.has(t, "repo:1.0", smallImage(t)), source.Options{}).FS, small)
}

func TestErrorsOfARegistry(t *testing.T) {
	image := smallImage(t)
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest := digestOf(t, layers[0])
	for name, test := range map[string]struct {
		status int
		where  string
		want   string // HOST for the registry
	}{
		"it's overloaded": {503, "/manifests/", "REF: HOST answers 503 Service Unavailable: try again later"},
		"it forbids": {403, "/manifests/",
			`REF: HOST denies access (403): log in to HOST, for example with "docker login HOST"`},
		"it has no such image": {404, "/manifests/", "REF: the registry has no such image"},
		"it has no such layer": {404, "/blobs/", "REF: layer " + digest + ": the registry doesn't have it"},
		"it forbids a layer": {403, "/blobs/", "REF: layer " + digest +
			`: HOST denies access (403): log in to HOST, for example with "docker login HOST"`},
		"it answers with a reason": {418, "/manifests/", "REF: HOST answers 418 I'm a teapot: [31mfor no reason"},
		"it's too much":            {429, "/manifests/", "REF: HOST answers 429 Too Many Requests: try again later"},
		"it's broken":              {500, "/v2/", "REF: HOST answers 500 Internal Server Error: try again later"},
	} {
		t.Run(name, func(t *testing.T) {
			target := newRegistry(t, failingServer(test.status, 0, test.where))
			ref := target.has(t, "repo:1.0", image)
			checkFailure(t, ref, source.Options{}, strings.ReplaceAll(test.want, "HOST", target.host))
		})
	}
}

func TestADigestThatIsNotThere(t *testing.T) {
	target := newRegistry(t, nil)
	target.has(t, "repo:1.0", smallImage(t))
	checkFailure(t, target.host+"/repo@sha256:"+strings.Repeat("0", 64), source.Options{},
		"REF: the registry has no such image")
}

// sending sends content in response to requests for a path.
func sending(path string, content func() []byte) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.Path, path) {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			w.Write(content())
		})
	}
}

func TestARegistryThatSendsSomethingElse(t *testing.T) {
	image, other := smallImage(t), variant(t, "other")
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	size, err := layers[0].Size()
	if err != nil {
		t.Fatal(err)
	}
	digest := digestOf(t, layers[0])
	raw, err := other.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a manifest", func(t *testing.T) {
		target := newRegistry(t, sending("/manifests/", func() []byte { return raw }))
		target.has(t, "repo:1.0", image)
		checkFailure(t, target.host+"/repo@"+digestOf(t, image), source.Options{},
			fmt.Sprintf("REF: %s sent something else, of digest %s", target.host, digestOf(t, other)))
	})
	t.Run("a layer", func(t *testing.T) {
		sum, _, err := v1.SHA256(bytes.NewReader(make([]byte, size)))
		if err != nil {
			t.Fatal(err)
		}
		target := newRegistry(t, sending("/blobs/", func() []byte { return make([]byte, size) }))
		checkFailure(t, target.has(t, "repo:1.0", image), source.Options{},
			fmt.Sprintf("REF: layer %s: content has digest %s", digest, sum))
	})
	t.Run("a shorter layer", func(t *testing.T) {
		target := newRegistry(t, sending("/blobs/", func() []byte { return make([]byte, size-10) }))
		checkFailure(t, target.has(t, "repo:1.0", image), source.Options{},
			fmt.Sprintf("REF: layer %s: content ends after %d of %d bytes", digest, size-10, size))
	})
	t.Run("a longer layer", func(t *testing.T) {
		target := newRegistry(t, sending("/blobs/", func() []byte { return make([]byte, size+10) }))
		checkFailure(t, target.has(t, "repo:1.0", image), source.Options{},
			fmt.Sprintf("REF: layer %s: content has more than the %d bytes that it should", digest, size))
	})
	t.Run("a page", func(t *testing.T) {
		target := newRegistry(t, sending("/manifests/", func() []byte { return []byte("<html>") }))
		_, err := source.Open(t.Context(), target.host+"/repo:1.0", source.Options{})
		if err == nil || !strings.HasSuffix(err.Error(), ": invalid character '<' looking for beginning of value") {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("the index of something else", func(t *testing.T) {
		target := newRegistry(t, sending("/manifests/", func() []byte { return []byte(`{"mediaType":"text/plain"}`) }))
		_, err := source.Open(t.Context(), target.host+"/repo:1.0", source.Options{})
		if err == nil || !strings.HasSuffix(err.Error(),
			` is of type "text/plain", which is neither an image nor an index of some`) {
			t.Errorf("error is %v", err)
		}
	})
}

func TestTheCertificateIsLookedAt(t *testing.T) {
	stranger := func(server *httptest.Server) { server.StartTLS() }
	t.Run("an unknown authority is refused without --insecure", func(t *testing.T) {
		target := serveRegistry(t, nil, stranger)
		ref := target.has(t, "repo:1.0", smallImage(t))
		checkFailure(t, ref, source.Options{},
			fmt.Sprintf("REF: the certificate of %s is of an authority that isn't trusted: "+
				"set SSL_CERT_FILE to that authority's certificate, or use --insecure", target.host))
		checkFiles(t, open(t, ref, source.Options{Insecure: true}).FS, small)
	})
	t.Run("so is a certificate for another host", func(t *testing.T) {
		target := serveRegistry(t, nil, func(server *httptest.Server) {
			server.TLS = &tls.Config{Certificates: []tls.Certificate{trust(t, "other.example")}}
			server.StartTLS()
		})
		ref := target.has(t, "repo:1.0", smallImage(t))
		checkFailure(t, ref, source.Options{},
			fmt.Sprintf("REF: the certificate of %s isn't valid: x509: cannot validate certificate for 127.0.0.1 "+
				"because it doesn't contain any IP SANs; pass --insecure to accept it", target.host))
	})
	t.Run("a certificate file that isn't there is an error", func(t *testing.T) {
		target := serveRegistry(t, nil, stranger)
		missing := filepath.Join(t.TempDir(), "missing.pem")
		t.Setenv("SSL_CERT_FILE", missing)
		_, err := source.Open(t.Context(), target.host+"/repo:1.0", source.Options{})
		if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "read SSL_CERT_FILE: ") {
			t.Errorf("error is %v", err)
		}
	})
}

func TestPlainHTTPIsRefusedWithoutInsecure(t *testing.T) {
	target := serveRegistry(t, nil, (*httptest.Server).Start)
	ref := target.has(t, "repo:1.0", smallImage(t))
	checkFailure(t, ref, source.Options{},
		fmt.Sprintf("REF: %s answers only plain http, which needs --insecure", target.host))
	if got := target.count.Load(); got != 0 {
		t.Errorf("got %d requests", got)
	}
	checkFiles(t, open(t, ref, source.Options{Insecure: true}).FS, small)
}

// Without TLS, what matters is what happens to the requests over http: the library tries https before.
func TestARegistryThatClosesConnections(t *testing.T) {
	drop := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if connection, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_ = connection.Close()
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for connection, err := listener.Accept(); err == nil; connection, err = listener.Accept() {
			_ = connection.Close()
		}
	}()
	plain, secure := httptest.NewServer(drop), httptest.NewTLSServer(drop)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	for name, host := range map[string]string{"http": plain.Listener.Addr().String(),
		"https": secure.Listener.Addr().String(), "neither": listener.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			checkFailure(t, host+"/repo:1.0", source.Options{Insecure: true},
				fmt.Sprintf("REF: %s closes the connection without an answer: check that a registry listens there, "+
					"or try again later", host))
		})
	}
}

func TestTLSThatRedirectsToPlainHTTPIsRefused(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	target := newRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/blobs/") {
				http.Redirect(w, r, plain.URL, http.StatusTemporaryRedirect)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	image := smallImage(t)
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	checkFailure(t, target.has(t, "repo:1.0", image), source.Options{},
		fmt.Sprintf("REF: layer %s: %s answers only plain http, which needs --insecure",
			digestOf(t, layers[0]), plain.Listener.Addr()))
}

func TestARegistryThatIsNotThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := listener.Addr().String()
	listener.Close()
	for _, insecure := range []bool{false, true} {
		checkFailure(t, host+"/repo:1.0", source.Options{Insecure: insecure},
			fmt.Sprintf(
				"REF: nothing answers at %s (connection refused): check its name and port, and that it's running", host,
			))
	}
	checkFailure(t, "registry.invalid/repo:1.0", source.Options{},
		"REF: there is no host registry.invalid: check the registry's name and your network")
}

func TestAnInterruptEndsAPull(t *testing.T) {
	for _, path := range []string{"/v2/", "/manifests/", "/blobs/"} {
		t.Run(path, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			target := newRegistry(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !strings.HasSuffix(r.URL.Path, path) && !strings.Contains(r.URL.Path, "repo"+path) {
						next.ServeHTTP(w, r)
						return
					}
					cancel()
					<-r.Context().Done() // answers never
				})
			})
			ref := target.has(t, "repo:1.0", smallImage(t))
			begin := time.Now()
			checkFailureIn(t, ctx, ref, source.Options{}, "REF: context canceled")
			if _, err := source.Open(ctx, ref, source.Options{}); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}
