package copy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/oci/copy"
)

const mib = 1 << 20

func randomImage(t testing.TB, size int64, layers int64) v1.Image {
	t.Helper()
	image, err := random.Image(size, layers)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestDroppedDownloadsContinueInsideABlob(t *testing.T) {
	for name, ignoresRange := range map[string]bool{"with ranges": false, "without ranges": true} {
		t.Run(name, func(t *testing.T) {
			drops := &dropping{after: 3 * mib / 2}
			source := serve(t, drops.middleware, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
					if ignoresRange {
						request.Header.Del("Range")
					}
					next.ServeHTTP(w, request)
				})
			})
			image := randomImage(t, 2*mib, 3)
			drops.isOff.Store(true)
			source.push(t, "shop/web:1", image)
			drops.isOff.Store(false)
			source.sent.Store(0)
			target := oci.Location{Path: filepath.Join(t.TempDir(), "layout"), Identifier: "1"}
			mustCopy(t, source.location(t, "shop/web:1"), target, copy.Options{})
			checkLayout(t, target.Path, digestOf(t, image))
			if sent := source.sent.Load(); !ignoresRange && sent > 3*2*mib+mib/2 {
				t.Errorf("the registry has sent %d bytes", sent)
			}
		})
	}
}

func TestDroppedUploadsContinueWhereTheRegistryKeepsThem(t *testing.T) {
	for name, keeps := range map[string]bool{"kept": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			source := serve(t)
			image := randomImage(t, 2*mib, 3)
			source.push(t, "shop/web:1", image)
			drops := &dropping{after: 3 * mib / 2, keepsUploads: keeps}
			target := serve(t, drops.middleware)
			mustCopy(t, source.location(t, "shop/web:1"), target.location(t, "mirror/web:1"), copy.Options{})
			drops.isOff.Store(true)
			checkRegistry(t, target.location(t, "mirror/web:1"), digestOf(t, image))
			// of each layer, 1.5 MiB arrive before the drop; the client may have sent more by then
			if received := target.received.Load(); keeps && received > 3*2*mib+mib {
				t.Errorf("the registry has received %d bytes", received)
			}
		})
	}
}

func TestBusyRegistriesAreAskedAgain(t *testing.T) {
	image := randomImage(t, 1000, 2)
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		var asked atomic.Int64
		busy := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				if count := asked.Add(1); count%2 == 0 && count < 20 {
					w.Header().Set("Retry-After", "0")
					w.WriteHeader(status)
					return
				}
				next.ServeHTTP(w, request)
			})
		}
		source, target := serve(t), serve(t, busy)
		source.push(t, "shop/web:1", image)
		mustCopy(t, source.location(t, "shop/web:1"), target.location(t, "mirror/web:1"), copy.Options{Jobs: 1})
		checkRegistry(t, target.location(t, "mirror/web:1"), digestOf(t, image))
	}
}

func TestALongPauseIsNotWaitedFor(t *testing.T) {
	var asked atomic.Int64
	busy := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		})
	}
	_, err := copyImage(t, serve(t, busy).location(t, "shop/web:1"), oci.Location{Path: t.TempDir()}, copy.Options{})
	checkError(t, err, "answers 429 Too Many Requests: try again later")
}

func checkError(t testing.TB, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, not %q", err, want)
	}
}

// tokens is a registry whose tokens expire after some requests, and so does the password for new ones.
type tokens struct {
	server   *httptest.Server
	issued   atomic.Int64
	requests atomic.Int64
	password atomic.Pointer[string]
}

const requestsPerToken = 5

func newTokens(t *testing.T) *tokens {
	issuer := &tokens{}
	password := "first"
	issuer.password.Store(&password)
	issuer.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if _, given, _ := request.BasicAuth(); given != *issuer.password.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"token": "token-%d"}`, issuer.issued.Add(1))
	}))
	t.Cleanup(issuer.server.Close)
	return issuer
}

func (t *tokens) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		valid := fmt.Sprintf("Bearer token-%d", t.issued.Load())
		if t.requests.Add(1)%requestsPerToken == 0 || request.Header.Get("Authorization") != valid {
			realm := strings.Replace(t.server.URL, "127.0.0.1", "localhost", 1)
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="test"`, realm))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, request)
	})
}

func TestTokensThatExpireDuringACopy(t *testing.T) {
	keys := newTokens(t)
	var isOpen atomic.Bool
	isOpen.Store(true)
	source := serve(t, func(next http.Handler) http.Handler {
		closed := keys.middleware(next)
		return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			if isOpen.Load() {
				next.ServeHTTP(w, request)
				return
			}
			closed.ServeHTTP(w, request)
		})
	})
	image := randomImage(t, 100_000, 6)
	source.push(t, "shop/web:1", image, remote.WithAuth(authn.Anonymous))
	isOpen.Store(false)
	writeCredentials(t, source.host, "first")
	target := oci.Location{Path: filepath.Join(t.TempDir(), "layout"), Identifier: "1"}
	mustCopy(t, source.location(t, "shop/web:1"), target, copy.Options{Jobs: 1})
	checkLayout(t, target.Path, digestOf(t, image))
	if keys.issued.Load() < 3 {
		t.Errorf("%d tokens were issued", keys.issued.Load())
	}
	// uploads, and a password that changes
	mustCopy(t, target, source.location(t, "copy/web:1"), copy.Options{Jobs: 1})
	other := oci.Location{Path: filepath.Join(t.TempDir(), "layout"), Identifier: "1"}
	changed := "second"
	change := func(done, _ int64) {
		if done > 0 && *keys.password.Load() == "first" {
			keys.password.Store(&changed)
			writeCredentials(t, source.host, changed)
		}
	}
	mustCopy(t, source.location(t, "copy/web:1"), other, copy.Options{Jobs: 1, Progress: change})
	checkLayout(t, other.Path, digestOf(t, image))
}

// writeCredentials makes a password the one of docker's configuration.
func writeCredentials(t *testing.T, host, password string) {
	t.Helper()
	folder := os.Getenv("DOCKER_CONFIG")
	if !strings.HasPrefix(folder, os.TempDir()) {
		folder = t.TempDir()
		t.Setenv("DOCKER_CONFIG", folder)
	}
	text, err := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{
		"username": "me", "password": password}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCopyInAnotherProcess is no test: it is what TestACopyResumesAfterAKill runs and kills.
func TestCopyInAnotherProcess(t *testing.T) {
	source, target := os.Getenv("TEST_COPY_SOURCE"), os.Getenv("TEST_COPY_TARGET")
	if source == "" {
		t.Skip("runs in TestACopyResumesAfterAKill")
	}
	mustCopy(t, parse(t, source), oci.Location{Path: target, Identifier: "1"}, copy.Options{Jobs: 1})
}

func TestACopyResumesAfterAKill(t *testing.T) {
	const layer = 8 * mib
	for _, name := range []string{"layout", "x.tar"} {
		t.Run(name, func(t *testing.T) {
			half, done := make(chan bool), make(chan bool)
			var stops atomic.Bool
			stops.Store(true)
			var sent atomic.Int64
			source := serve(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
					if stops.Load() && isBlob(request) && request.Method == http.MethodGet {
						w = &stoppingWriter{w, &sent, layer + layer/2, half, done}
					}
					next.ServeHTTP(w, request)
				})
			})
			image := randomImage(t, layer, 3)
			stops.Store(false)
			source.push(t, "shop/web:1", image)
			stops.Store(true)
			source.sent.Store(0)
			path := filepath.Join(t.TempDir(), name)
			process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCopyInAnotherProcess$")
			process.Env = append(os.Environ(), "TEST_COPY_SOURCE="+source.host+"/shop/web:1", "TEST_COPY_TARGET="+path)
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			<-half
			waitForBytes(t, path, layer+layer/2-mib/2)
			if err := process.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = process.Wait()
			stops.Store(false)
			close(done)
			target := oci.Location{Path: path, Identifier: "1"}
			if _, err := oci.OpenLayout(path); name == "x.tar" && err == nil {
				t.Error("the archive is there before it is complete")
			}
			mustCopy(t, source.location(t, "shop/web:1"), target, copy.Options{})
			other := serve(t)
			mustCopy(t, target, other.location(t, "mirror/web:1"), copy.Options{})
			checkRegistry(t, other.location(t, "mirror/web:1"), digestOf(t, image))
			if all := source.sent.Load(); all > 3*layer+mib {
				t.Errorf("the registry has sent %d bytes, of %d", all, 3*layer)
			}
		})
	}
}

// waitForBytes waits until files of a path have some bytes.
func waitForBytes(t *testing.T, path string, want int64) {
	t.Helper()
	for have := int64(0); have < want; {
		have = 0
		blobs, _ := filepath.Glob(path + "*/blobs/sha256/*")
		for _, name := range blobs {
			if info, err := os.Stat(name); err == nil {
				have += info.Size()
			}
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the copy doesn't begin")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A stoppingWriter stops after some bytes of all writers, until it is told to end.
type stoppingWriter struct {
	http.ResponseWriter
	sent *atomic.Int64
	most int64
	half chan bool
	done chan bool
}

func (s *stoppingWriter) Write(p []byte) (int, error) {
	for begin := 0; begin < len(p); begin += mib / 4 {
		part := p[begin:min(begin+mib/4, len(p))]
		if s.sent.Add(int64(len(part))) > s.most {
			select {
			case s.half <- true:
			case <-s.done:
			}
			<-s.done
			panic(http.ErrAbortHandler)
		}
		if n, err := s.ResponseWriter.Write(part); err != nil {
			return begin + n, err
		}
		_ = http.NewResponseController(s.ResponseWriter).Flush()
	}
	return len(p), nil
}

func TestABrokenPartialIsReplaced(t *testing.T) {
	source := serve(t)
	image := randomImage(t, 1000, 1)
	source.push(t, "shop/web:1", image)
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"other content": bytes.Repeat([]byte("x"), 100),
		"too long":      bytes.Repeat([]byte("x"), 10_000),
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "blobs", "sha256", manifest.Layers[0].Digest.Hex+".partial")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			marker := []byte(`{"imageLayoutVersion":"1.0.0"}`)
			if err := os.WriteFile(filepath.Join(folder, "oci-layout"), marker, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
			mustCopy(t, source.location(t, "shop/web:1"), oci.Location{Path: folder, Identifier: "1"}, copy.Options{})
			checkLayout(t, folder, digestOf(t, image))
		})
	}
}

// An interrupted copy leaves blobs that another image does not have.
func TestAnArchiveHasNoBlobsOfAnInterruptedCopyOfAnotherImage(t *testing.T) {
	source := serve(t)
	abandoned, wanted := randomImage(t, 50_000, 3), randomImage(t, 1000, 2)
	source.push(t, "shop/web:1", abandoned)
	source.push(t, "shop/web:2", wanted)
	path := filepath.Join(t.TempDir(), "x.tar")
	begin := oci.Location{Path: path, Identifier: "1"}
	interrupted, cancel := context.WithCancel(t.Context())
	options := copy.Options{Jobs: 1, Progress: func(done, total int64) {
		if done > total/2 {
			cancel()
		}
	}}
	_, err := copyWith(t, interrupted, source.location(t, "shop/web:1"), begin, options)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v", err)
	}
	waitForBytes(t, path, 50_000)
	mustCopy(t, source.location(t, "shop/web:2"), oci.Location{Path: path, Identifier: "2"}, copy.Options{})
	other := serve(t)
	mustCopy(t, oci.Location{Path: path}, other.location(t, "mirror/web:2"), copy.Options{})
	checkRegistry(t, other.location(t, "mirror/web:2"), digestOf(t, wanted))
	if info, err := os.Stat(path); err != nil || info.Size() > 20_000 {
		t.Errorf("the archive has %d bytes, %v", info.Size(), err)
	}
}
