package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A handlerTransport answers requests without a network, whose waits synctest could not skip.
type handlerTransport http.HandlerFunc

func (h handlerTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, "/v2/") {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: request}, nil
	}
	if request.Body == nil {
		request.Body = http.NoBody
	}
	defer request.Body.Close()
	recorded := httptest.NewRecorder()
	h(recorded, request)
	response := recorded.Result()
	response.Request = request
	if dropAt := response.Header.Get("Drop-At"); dropAt != "" {
		var length int64
		_, _ = fmt.Sscan(dropAt, &length)
		response.Body = io.NopCloser(io.MultiReader(io.LimitReader(response.Body, length),
			ReaderFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF })))
	}
	if response.StatusCode == http.StatusTeapot {
		return nil, attemptError{io.ErrUnexpectedEOF} // the connection drops
	}
	return response, nil
}

// fakeRegistry returns a repository of a registry with a handler.
func fakeRegistry(t *testing.T, repository string, handler http.HandlerFunc) *registryStore {
	t.Helper()
	t.Setenv("REGISTRY_AUTH_FILE", t.TempDir()+"/none")
	repo, err := name.NewRepository(repository, name.StrictValidation)
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Client{Transport: limitedTransport{next: handlerTransport(handler), registry: repo.RegistryStr()}}
	store := &registryStore{client: &client{repo: repo, base: base, scopes: []string{repo.Scope(transport.PushScope)}}}
	store.attempts.Store(maxPatient)
	return store
}

func describe(content []byte, kind types.MediaType) v1.Descriptor {
	digest, size, _ := v1.SHA256(bytes.NewReader(content))
	return v1.Descriptor{Digest: digest, Size: size, MediaType: kind}
}

// from returns the function that opens a content.
func from(content []byte) func(int64) (io.ReadCloser, error) {
	return func(offset int64) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content[offset:])), nil
	}
}

// An uploads is a registry that takes uploads as distribution does.
type uploads struct {
	content []byte
	exists  bool // the blob is complete
	begun   int
	extra   func(w http.ResponseWriter, request *http.Request, u *uploads) bool
}

func (u *uploads) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	const address = "https://registry.example/v2/shop/web/blobs/uploads/1"
	w.Header().Set("Location", address)
	switch {
	case u.extra != nil && u.extra(w, request, u):
	case request.Method == http.MethodHead && !u.exists:
		w.WriteHeader(http.StatusNotFound)
	case request.Method == http.MethodHead:
		w.Header().Set("Content-Length", fmt.Sprint(len(u.content)))
	case request.Method == http.MethodPost:
		u.begun++
		u.content = nil
		w.WriteHeader(http.StatusAccepted)
	case request.Method == http.MethodGet:
		w.Header().Set("Range", fmt.Sprintf("0-%d", len(u.content)-1))
		w.WriteHeader(http.StatusNoContent)
	case request.Method == http.MethodPatch:
		var begin int
		_, _ = fmt.Sscanf(request.Header.Get("Content-Range"), "%d-", &begin)
		if begin != len(u.content) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		u.receive(request, -1)
		w.WriteHeader(http.StatusAccepted)
	case request.Method == http.MethodPut:
		u.exists = true
		w.WriteHeader(http.StatusCreated)
	}
}

// receive adds bytes of a request to the upload.
func (u *uploads) receive(request *http.Request, limit int64) {
	var body io.Reader = request.Body
	if limit >= 0 {
		body = io.LimitReader(body, limit)
	}
	got, _ := io.ReadAll(body)
	u.content = append(u.content, got...)
}

// once returns a change that applies to the first request of a method.
func once(method string, change func(w http.ResponseWriter, request *http.Request, u *uploads)) func(
	http.ResponseWriter, *http.Request, *uploads) bool {
	isDone := false
	return func(w http.ResponseWriter, request *http.Request, u *uploads) bool {
		if isDone || request.Method != method {
			return false
		}
		isDone = true
		change(w, request, u)
		return true
	}
}

func TestUploadsContinueAfterABusyRegistry(t *testing.T) {
	for name, test := range map[string]struct {
		extra func(http.ResponseWriter, *http.Request, *uploads) bool
		begun int
	}{
		"half of the content": {once(http.MethodPatch, func(w http.ResponseWriter, r *http.Request, u *uploads) {
			u.receive(r, mib)
			w.WriteHeader(http.StatusBadGateway)
		}), 1},
		"all of the content": {once(http.MethodPatch, func(w http.ResponseWriter, r *http.Request, u *uploads) {
			u.receive(r, -1)
			w.WriteHeader(http.StatusServiceUnavailable)
		}), 1},
		"a completed upload": {once(http.MethodPut, func(w http.ResponseWriter, _ *http.Request, u *uploads) {
			u.exists = true
			w.WriteHeader(http.StatusGatewayTimeout)
		}), 1},
		"a lost upload": {once(http.MethodPatch, func(w http.ResponseWriter, r *http.Request, u *uploads) {
			u.receive(r, -1)
			w.WriteHeader(http.StatusNotFound)
		}), 2},
		"a range that does not fit": {once(http.MethodPut, func(w http.ResponseWriter, _ *http.Request, _ *uploads) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		}), 2},
	} {
		t.Run(name, func(t *testing.T) {
			handler := &uploads{extra: test.extra}
			store := fakeRegistry(t, "registry.example/shop/web", handler.ServeHTTP)
			synctest.Test(t, func(t *testing.T) {
				blob := bytes.Repeat([]byte("0123456789abcdef"), 2*mib/16)
				if err := store.PutBlob(t.Context(), describe(blob, types.OCILayer), from(blob)); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(handler.content, blob) || !handler.exists || handler.begun != test.begun {
					t.Errorf("%d bytes, %v, %d uploads", len(handler.content), handler.exists, handler.begun)
				}
			})
		})
	}
}

// A registry that takes the begin of a blob each time, but never the rest, must not keep a copy busy for ever.
func TestUploadsWithoutProgressEnd(t *testing.T) {
	handler := &uploads{extra: func(w http.ResponseWriter, request *http.Request, u *uploads) bool {
		if request.Method != http.MethodPatch {
			return false
		}
		if request.Header.Get("Content-Range") != "" {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		} else {
			u.receive(request, mib)
			w.WriteHeader(http.StatusTeapot)
		}
		return true
	}}
	store := fakeRegistry(t, "registry.example/shop/web", handler.ServeHTTP)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		blob := make([]byte, 2*mib)
		err := store.PutBlob(ctx, describe(blob, types.OCILayer), from(blob))
		if err == nil || ctx.Err() != nil || handler.begun > 2*maxPatient {
			t.Errorf("%d uploads, error is %v", handler.begun, err)
		}
	})
}

// A closedReader fails after it is closed.
type closedReader struct {
	io.Reader
	isClosed bool
}

func (c *closedReader) Read(p []byte) (int, error) {
	if c.isClosed {
		return 0, net.ErrClosed
	}
	return c.Reader.Read(p)
}

func (c *closedReader) Close() error {
	c.isClosed = true
	return nil
}

// With HTTP/2, a body may be read on after the answer: its error is not one of the content.
func TestABodyThatIsReadAfterItsEnd(t *testing.T) {
	handler := &uploads{extra: once(http.MethodPatch, func(w http.ResponseWriter, request *http.Request, _ *uploads) {
		request.Body.Close()
		_, _ = request.Body.Read(make([]byte, 10))
		w.WriteHeader(http.StatusTooManyRequests)
	})}
	store := fakeRegistry(t, "registry.example/shop/web", handler.ServeHTTP)
	synctest.Test(t, func(t *testing.T) {
		blob := make([]byte, 2*mib)
		err := store.PutBlob(t.Context(), describe(blob, types.OCILayer), func(offset int64) (io.ReadCloser, error) {
			return &closedReader{Reader: bytes.NewReader(blob[offset:])}, nil
		})
		if err != nil || handler.begun != 2 {
			t.Errorf("%d uploads, %v", handler.begun, err)
		}
	})
}

// An upload takes as long as it needs, also after an attempt that has failed.
func TestSlowUploads(t *testing.T) {
	handler := &uploads{extra: once(http.MethodPatch, func(w http.ResponseWriter, _ *http.Request, _ *uploads) {
		w.WriteHeader(http.StatusTooManyRequests)
	})}
	store := fakeRegistry(t, "registry.example/shop/web", handler.ServeHTTP)
	synctest.Test(t, func(t *testing.T) {
		blob := make([]byte, 2*mib)
		err := store.PutBlob(t.Context(), describe(blob, types.OCILayer), func(offset int64) (io.ReadCloser, error) {
			rest := bytes.NewReader(blob[offset:])
			return io.NopCloser(ReaderFunc(func(p []byte) (int, error) {
				<-time.After(20 * time.Second)
				return rest.Read(p[:min(len(p), mib/2)])
			})), nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestABlobIsClosedWhileItIsRead(t *testing.T) {
	blob := make([]byte, mib)
	store := fakeRegistry(t, "registry.example/shop/web", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(blob)
	})
	reader, err := store.Blob(t.Context(), describe(blob, types.OCILayer), 0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, reader, make([]byte, 100))
		ended <- err
	}()
	if err := reader.Close(); err != nil { // go test -race finds unguarded fields
		t.Error(err)
	}
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestClosedStoresHaveNoConnections(t *testing.T) {
	closed := make(chan bool, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/v2/" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	var idle sync.Map // not the connection that tries https
	server.Config.ConnState = func(connection net.Conn, state http.ConnState) {
		switch _, wasIdle := idle.Load(connection); {
		case state == http.StateIdle:
			idle.Store(connection, true)
		case state == http.StateClosed && wasIdle:
			closed <- true
		}
	}
	server.Start()
	defer server.Close()
	location, err := ParseRegistry(strings.TrimPrefix(server.URL, "http://")+"/shop/web:1", true)
	must(t, err)
	store, err := Open(t.Context(), location, Options{Insecure: true})
	must(t, err)
	if _, err := store.Resolve(t.Context(), "1"); err == nil {
		t.Error("the image is there")
	}
	must(t, store.Close())
	select {
	case <-closed:
	case <-time.After(5 * time.Second):
		t.Error("the connection is open")
	}
}

func TestConnectionsThatEndAreExplained(t *testing.T) {
	for _, cause := range []error{
		syscall.EPIPE, net.ErrClosed, io.ErrUnexpectedEOF, errors.New("http2: client connection lost"),
		errors.New("stream error: stream ID 5; INTERNAL_ERROR"),
	} {
		for err, want := range map[error]string{
			attemptError{cause}:               "registry.example closes the connection without an answer",
			&url.Error{Op: "Get", Err: cause}: "registry.example closed the connection in the middle of its answer",
		} {
			if got := explain("registry.example", "", err).Error(); !strings.HasPrefix(got, want) {
				t.Errorf("%q is %q", cause, got)
			}
		}
	}
}

func TestGiantManifestsAreNotRead(t *testing.T) {
	for _, repository := range []string{"shop/web", "blobs/web", "shop/blobs"} {
		var sent atomic.Int64
		store := fakeRegistry(t, "registry.example/"+repository, nil)
		giant := ReaderFunc(func(p []byte) (int, error) {
			sent.Add(int64(len(p)))
			return len(p), nil
		})
		store.base.Transport = limitedTransport{next: roundTripper(func(r *http.Request) (*http.Response, error) {
			body := io.NopCloser(io.LimitReader(giant, gib))
			return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
		}), registry: "registry.example"}
		_, err := store.Resolve(t.Context(), "1")
		if err == nil || !strings.Contains(err.Error(), "more than 8 MiB") || sent.Load() > 3*MaxManifest {
			t.Errorf("%s: %d bytes were read: %v", repository, sent.Load(), err)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

func TestRefusedMountsEndNoCopy(t *testing.T) {
	for _, code := range []int{400, 401, 403, 404, 405, 429, 500, 501} {
		var mounts int
		store := fakeRegistry(t, "registry.example/mirror/web", func(w http.ResponseWriter, request *http.Request) {
			if request.URL.Query().Get("mount") != "" {
				mounts++
				w.WriteHeader(code)
			}
		})
		source := fakeRegistry(t, "registry.example/shop/web", nil)
		synctest.Test(t, func(t *testing.T) {
			for range 2 {
				asked := mounts
				isMounted, err := store.Mount(t.Context(), v1.Descriptor{}, source)
				if isMounted || err != nil {
					t.Errorf("%d: %v, %v", code, isMounted, err)
				}
				if asked > 0 && mounts > asked {
					t.Errorf("%d: a registry that does not mount is asked again", code)
				}
			}
		})
	}
}

func TestAnswersThatDropOrStallAreReadAgain(t *testing.T) {
	manifest := []byte(`{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}`)
	asked := 0
	store := fakeRegistry(t, "registry.example/shop/web", func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			w.Header().Set("Drop-At", "10")
		}
		_, _ = w.Write(manifest)
	})
	stalls := 0
	stalling := fakeRegistry(t, "registry.example/shop/web", nil)
	stalling.base.Transport = limitedTransport{next: roundTripper(func(r *http.Request) (*http.Response, error) {
		response := &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(manifest)), Request: r}
		if strings.Contains(r.URL.Path, "/blobs/") {
			if stalls++; stalls == 1 {
				response.Body = io.NopCloser(ReaderFunc(func([]byte) (int, error) {
					<-r.Context().Done()
					return 0, r.Context().Err()
				}))
			}
		}
		return response, nil
	}), registry: "registry.example"}
	synctest.Test(t, func(t *testing.T) {
		got, err := store.Resolve(t.Context(), "1")
		if err != nil || got.Size != int64(len(manifest)) {
			t.Errorf("manifest %+v, %v", got, err)
		}
		blob, err := stalling.Blob(t.Context(), describe(manifest, types.OCILayer), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer blob.Close()
		if content, err := io.ReadAll(blob); err != nil || !bytes.Equal(content, manifest) {
			t.Errorf("content is %q, %v", content, err)
		}
	})
}

func TestRegistriesWithoutReferrers(t *testing.T) {
	for _, code := range []int{200, 400, 404, 405, 406, 410, 415, 422, 501} {
		store := fakeRegistry(t, "registry.example/shop/web", func(w http.ResponseWriter, request *http.Request) {
			if !strings.Contains(request.URL.Path, "/referrers/") {
				_, _ = io.WriteString(w, `{"manifests": [{"digest": "sha256:`+strings.Repeat("1", 64)+`"}]}`)
				return
			}
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "<html></html>")
		})
		listed, err := store.Referrers(t.Context(), v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)})
		if err != nil || len(listed) != 1 {
			t.Errorf("%d: %v, %v", code, listed, err)
		}
	}
}
