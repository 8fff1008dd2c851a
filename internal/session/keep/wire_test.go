package keep_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// A wire is a connection that counts what is asked for, and may be disturbed.
type wire struct {
	mu      sync.Mutex
	sent    []asked
	before  func(*http.Request, asked) (*http.Response, error) // what it returns, if anything, becomes of the request
	watches []*stream
	stalled chan struct{} // what watches see comes when it is closed; nil if at once
}

// An asked is one request.
type asked struct{ verb, resource, namespace, name string }

func (a asked) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s/%s", a.verb, a.resource, a.namespace, a.name))
}

func isAny(asked) bool        { return true }
func isLook(item asked) bool  { return item.verb == "list" || item.verb == "watch" }
func isWrite(item asked) bool { return !isLook(item) && item.verb != "get" }

func is(verb, resource string) func(asked) bool {
	return func(item asked) bool { return item.verb == verb && item.resource == resource }
}

// of are requests about an object.
func of(resource, name string) func(asked) bool {
	return func(item asked) bool { return item.resource == resource && item.name == name }
}

// count counts requests.
func (w *wire) count(wanted func(asked) bool) int { return len(w.all(wanted)) }

func (w *wire) all(wanted func(asked) bool) []asked {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.sent), func(item asked) bool { return !wanted(item) })
}

// forget begins to count again.
func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = nil
}

// disturb does something before each request from now on.
func (w *wire) disturb(before func(*http.Request, asked) (*http.Response, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
}

// stall holds back what watches see, until it is called back.
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
	asked, isKnown := askedFor(request)
	w.mu.Lock()
	before := w.before
	if isKnown {
		w.sent = append(w.sent, asked)
	}
	w.mu.Unlock()
	if before != nil {
		if answer, err := before(request, asked); answer != nil || err != nil {
			return answer, err
		}
	}
	answer, err := send.RoundTrip(request)
	if err == nil && asked.verb == "watch" && answer.StatusCode == http.StatusOK {
		seen := &stream{ReadCloser: answer.Body, wire: w}
		w.mu.Lock()
		w.watches = append(w.watches, seen)
		w.mu.Unlock()
		answer.Body = seen
	}
	return answer, err
}

// A stream is what a watch sees.
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

// askedFor reads a request as the server does.
func askedFor(request *http.Request) (asked, bool) {
	steps := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch {
	case steps[0] == "api" && len(steps) > 2:
		steps = steps[2:]
	case steps[0] == "apis" && len(steps) > 3:
		steps = steps[3:]
	default:
		return asked{}, false // which kinds there are
	}
	var item asked
	if steps[0] == "namespaces" && len(steps) > 2 {
		item.namespace, steps = steps[1], steps[2:]
	}
	item.resource = steps[0]
	if len(steps) > 1 {
		item.name = steps[1]
	}
	item.verb = strings.ToLower(request.Method)
	if request.Method == http.MethodGet && item.name == "" {
		item.verb = "list"
		if request.URL.Query().Get("watch") != "" {
			item.verb = "watch"
		}
	}
	return item, true
}
