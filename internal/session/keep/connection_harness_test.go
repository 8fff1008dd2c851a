package keep_test

import (
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A wire is a connection that counts its requests, and may be disturbed.
type wire struct {
	mu       sync.Mutex
	requests []sandboxtest.Request
	// may return a response, which answers the request
	before  func(*http.Request, sandboxtest.Request) (*http.Response, error)
	watches []*stream
	stalled chan struct{} // what watches see comes when it is closed; nil if at once
}

func isAny(sandboxtest.Request) bool     { return true }
func isLook(r sandboxtest.Request) bool  { return r.Verb == "list" || r.Verb == "watch" }
func isWrite(r sandboxtest.Request) bool { return !isLook(r) && r.Verb != "get" }

func is(verb, resource string) func(sandboxtest.Request) bool {
	return func(r sandboxtest.Request) bool { return r.Verb == verb && r.Resource == resource }
}

// of are requests about an object.
func of(resource, name string) func(sandboxtest.Request) bool {
	return func(r sandboxtest.Request) bool { return r.Resource == resource && r.Name == name }
}

// count counts requests.
func (w *wire) count(wanted func(sandboxtest.Request) bool) int { return len(w.all(wanted)) }

func (w *wire) all(wanted func(sandboxtest.Request) bool) []sandboxtest.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.requests), func(r sandboxtest.Request) bool { return !wanted(r) })
}

// forget begins to count again.
func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = nil
}

// disturb does something before each request from now on.
func (w *wire) disturb(before func(*http.Request, sandboxtest.Request) (*http.Response, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
}

// stall delays the events of watches until its result is called.
func (w *wire) stall() (resume func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stalled := make(chan struct{})
	w.stalled = stalled
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stalled = nil
		close(stalled)
	}
}

// cut ends all watches, as servers do from time to time.
func (w *wire) cut() {
	w.mu.Lock()
	watches := w.watches
	w.watches = nil
	w.mu.Unlock()
	for _, stream := range watches {
		_ = stream.Close()
	}
}

func (w *wire) tap(request *http.Request, send http.RoundTripper) (*http.Response, error) {
	parsed, isForObjects := sandboxtest.ParseRequest(request)
	w.mu.Lock()
	before := w.before
	if isForObjects {
		w.requests = append(w.requests, parsed)
	}
	w.mu.Unlock()
	if before != nil {
		if answer, err := before(request, parsed); answer != nil || err != nil {
			return answer, err
		}
	}
	answer, err := send.RoundTrip(request)
	if err == nil && parsed.Verb == "watch" && answer.StatusCode == http.StatusOK {
		seen := &stream{ReadCloser: answer.Body, wire: w}
		w.mu.Lock()
		w.watches = append(w.watches, seen)
		w.mu.Unlock()
		answer.Body = seen
	}
	return answer, err
}

// A stream is the body of the response of a watch.
type stream struct {
	io.ReadCloser
	wire *wire

	mu      sync.Mutex
	isEnded bool
}

func (s *stream) Read(into []byte) (int, error) {
	n, err := s.ReadCloser.Read(into)
	s.wire.mu.Lock()
	stalled := s.wire.stalled
	s.wire.mu.Unlock()
	if stalled != nil && err == nil {
		<-stalled
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.isEnded {
		return n, io.EOF
	}
	return n, err
}

func (s *stream) Close() error {
	s.mu.Lock()
	s.isEnded = true
	s.mu.Unlock()
	return s.ReadCloser.Close()
}
