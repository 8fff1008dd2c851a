package sandboxtest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Tap returns a client configuration that passes its requests to a function of the test, which may inspect them,
// answer them itself, or send them.
func Tap(config *rest.Config,
	tap func(request *http.Request, send http.RoundTripper) (*http.Response, error)) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(request *http.Request) (*http.Response, error) { return tap(request, next) })
	})
	return config
}

// Before returns a client configuration that calls a function of the test before each request. A request fails with the
// error of the function.
func Before(config *rest.Config, before func(*http.Request) error) *rest.Config {
	return Tap(config, func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
		if err := before(request); err != nil {
			return nil, err
		}
		return send.RoundTrip(request)
	})
}

// ShiftClock returns a client configuration whose responses have dates as if the API server's clock were ahead.
func ShiftClock(config *rest.Config, ahead time.Duration) *rest.Config {
	return Tap(config, func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
		response, err := send.RoundTrip(request)
		if err == nil {
			response.Header.Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		}
		return response, err
	})
}

// A RoundTripper is a function that answers requests. As the Transport of a client configuration, it replaces the
// server.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (r RoundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// A ConnectionCut disconnects a program from the API server at one of its writes, as if the program had crashed: no
// later request arrives. Its method Check is an argument of Before. Events, statuses and Leases do not count as
// writes.
type ConnectionCut struct {
	mu     sync.Mutex
	isCut  func(write string) bool
	missed string // the write that did not arrive, or empty
}

// NewCut returns a ConnectionCut that cuts the connection at the write with this number.
func NewCut(write int) *ConnectionCut {
	return &ConnectionCut{isCut: func(string) bool {
		write--
		return write == 0
	}}
}

// Missed returns the write that did not arrive, or "".
func (c *ConnectionCut) Missed() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missed
}

// Check returns an error for a request that does not arrive.
func (c *ConnectionCut) Check(r *http.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	write := r.Method + " " + r.URL.Path
	isWrite := r.Method != http.MethodGet && !strings.Contains(write, "/events") &&
		!strings.HasSuffix(write, "/status") && !strings.Contains(write, "/leases")
	if isWrite && c.missed == "" && c.isCut(write) {
		c.missed = write
	}
	if c.missed != "" {
		return errors.New("the connection is cut")
	}
	return nil
}

// WriteCuts are the connections of a program that crashes at each of its writes and is restarted. A write arrives only
// if the same write has been cut before. Two writes are the same if they have the same method, the same path, and the
// same number of earlier writes with both.
type WriteCuts struct {
	mu              sync.Mutex
	missed, arrived map[string]int
}

// Next returns the connection of the next run of the program.
func (w *WriteCuts) Next() *ConnectionCut { return &ConnectionCut{isCut: w.isCut} }

func (w *WriteCuts) isCut(write string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.missed == nil {
		w.missed, w.arrived = map[string]int{}, map[string]int{}
	}
	if w.missed[write] <= w.arrived[write] {
		w.missed[write]++
		return true
	}
	w.arrived[write]++
	return false
}

// A Request is a request for an object, or for all objects of a resource if it has no name. Its verb is list, watch,
// or the HTTP method in lower case, which for some methods is not the verb of RBAC.
type Request struct{ Verb, Resource, Namespace, Name string }

func (r Request) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s/%s", r.Verb, r.Resource, r.Namespace, r.Name))
}

// ParseRequest parses the URL of a request. It returns false for requests without objects, such as discovery.
func ParseRequest(request *http.Request) (Request, bool) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	prefix := map[string]int{"api": 2, "apis": 3}[parts[0]] // parts that name the API and its group and version
	if prefix == 0 || len(parts) <= prefix {
		return Request{}, false
	}
	parts = parts[prefix:]
	parsed := Request{Verb: strings.ToLower(request.Method)}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parsed.Namespace, parts = parts[1], parts[2:]
	}
	parsed.Resource = parts[0]
	if len(parts) > 1 {
		parsed.Name = parts[1]
	}
	if request.Method == http.MethodGet && parsed.Name == "" {
		parsed.Verb = "list"
		if request.URL.Query().Get("watch") != "" {
			parsed.Verb = "watch"
		}
	}
	return parsed, true
}
