package cluster

import (
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// How often and for how long an API server is probed for readiness, which takes it milliseconds once it answers. After
// that, its refusal is returned.
const (
	rolesEvery = 100 * time.Millisecond
	rolesTries = 50
)

// A rolesTransport retries a request that an API server has refused before it had read its roles. A server that was
// started a moment ago refuses everything, whatever the user's rights are. Connections end with a server,
// so only a new connection may be to a new server. The server has read all its roles once it is ready.
type rolesTransport struct {
	next  http.RoundTripper
	path  string                   // path of the server's readiness, which all users may read
	ready atomic.Pointer[net.Conn] // the last connection to a server that was ready
}

func (t *rolesTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	// Readiness counts as of before the request was sent: when the refusal arrives, another request may have
	// found the server ready.
	var wasReady atomic.Bool
	traced := onConnection(request, func(conn net.Conn) { wasReady.Store(t.isReady(conn)) })
	response, err := t.next.RoundTrip(traced)
	if err != nil || response.StatusCode != http.StatusForbidden || wasReady.Load() || !isRepeatable(request) {
		return response, err
	}
	t.awaitReady(request)
	again := request.Clone(request.Context())
	if request.GetBody != nil {
		if again.Body, err = request.GetBody(); err != nil {
			return response, nil
		}
	}
	discard(response)
	return t.next.RoundTrip(again)
}

// onConnection returns a request that calls a function with its connection.
func onConnection(request *http.Request, got func(net.Conn)) *http.Request {
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { got(info.Conn) }}
	return request.WithContext(httptrace.WithClientTrace(request.Context(), trace))
}

// isReady reports whether the server of a connection is known to be ready.
func (t *rolesTransport) isReady(conn net.Conn) bool {
	known := t.ready.Load()
	return known != nil && *known == conn
}

// isRepeatable reports whether the body of a request can be sent again.
func isRepeatable(request *http.Request) bool {
	return request.Body == nil || request.Body == http.NoBody || request.GetBody != nil
}

// awaitReady waits until the server is ready, or can't be reached.
func (t *rolesTransport) awaitReady(refused *http.Request) {
	var last atomic.Pointer[net.Conn]
	for range rolesTries {
		// The probe is a request of the same user.
		probe := onConnection(refused.Clone(refused.Context()), func(conn net.Conn) { last.Store(&conn) })
		probe.Method, probe.Body, probe.GetBody, probe.ContentLength = http.MethodGet, nil, nil, 0
		probe.Header.Del("Content-Type")
		probe.URL.Path, probe.URL.RawPath, probe.URL.RawQuery = t.path, "", ""
		answer, err := t.next.RoundTrip(probe)
		if err != nil {
			return
		}
		discard(answer)
		if answer.StatusCode != http.StatusForbidden && answer.StatusCode < http.StatusInternalServerError {
			break
		}
		select {
		case <-time.After(rolesEvery):
		case <-refused.Context().Done():
			return
		}
	}
	t.ready.Store(last.Load())
}

// discard reads a response to its end, so that its connection can be used again.
func discard(response *http.Response) {
	const most = 64 << 10 // a refusal is short
	_, _ = io.CopyN(io.Discard, response.Body, most)
	_ = response.Body.Close()
}
