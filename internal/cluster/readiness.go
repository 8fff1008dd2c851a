package cluster

import (
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// How often and for how long an API server is asked whether it is ready, which takes it milliseconds once it answers. A
// server that still refuses is taken at its word.
const (
	rolesEvery = 100 * time.Millisecond
	rolesTries = 50
)

// A rolesTransport sends a request again that an API server has refused before it had read its roles. A server that was
// started a moment ago refuses everything, and that is no answer about the user's rights. Connections end with a server,
// so a server may be a new one only on a new connection. It has read all its roles once it is ready.
type rolesTransport struct {
	next  http.RoundTripper
	path  string                   // where a server says whether it is ready, which all users may read
	ready atomic.Pointer[net.Conn] // the last connection to a server that was ready
}

func (t *rolesTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	// It counts whether the server was ready before the request was sent: when its refusal is here, another request may have
	// found out that the server is ready by now.
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

// onConnection returns a request that calls a function with the connection that it gets.
func onConnection(request *http.Request, got func(net.Conn)) *http.Request {
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { got(info.Conn) }}
	return request.WithContext(httptrace.WithClientTrace(request.Context(), trace))
}

// isReady returns whether the server of a connection is known to be ready.
func (t *rolesTransport) isReady(conn net.Conn) bool {
	known := t.ready.Load()
	return known != nil && *known == conn
}

// isRepeatable returns whether the body of a request can be sent again.
func isRepeatable(request *http.Request) bool {
	return request.Body == nil || request.Body == http.NoBody || request.GetBody != nil
}

// awaitReady waits until the server is ready, or can't be asked.
func (t *rolesTransport) awaitReady(refused *http.Request) {
	var last atomic.Pointer[net.Conn]
	for range rolesTries {
		question := onConnection(refused.Clone(refused.Context()), func(conn net.Conn) { last.Store(&conn) }) // by the same user
		question.Method, question.Body, question.GetBody, question.ContentLength = http.MethodGet, nil, nil, 0
		question.Header.Del("Content-Type")
		question.URL.Path, question.URL.RawPath, question.URL.RawQuery = t.path, "", ""
		answer, err := t.next.RoundTrip(question)
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
