package cluster

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// How often and for how long an API server is asked whether it has read its roles, which takes it milliseconds. A server
// that still refuses is taken at its word.
const (
	rolesEvery = 100 * time.Millisecond
	rolesTries = 50
)

// A rolesTransport sends a request again that an API server has refused before it had read its roles. A server that was
// started a moment ago refuses everything, and that is no answer about the user's rights. Connections end with a server,
// so a server may be a new one only on a new connection.
type rolesTransport struct {
	next http.RoundTripper
	path string // which all users may read

	mu      sync.Mutex
	hasRead bool // the roles are read by the server of the last connection
}

func (t *rolesTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if !info.Reused {
			t.note(false)
		}
	}}
	request = request.WithContext(httptrace.WithClientTrace(request.Context(), trace))
	response, err := t.next.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusForbidden || t.hasReadRoles() || !isRepeatable(request) {
		return response, err
	}
	t.awaitRoles(request)
	again := request.Clone(request.Context())
	if request.GetBody != nil {
		if again.Body, err = request.GetBody(); err != nil {
			return response, nil
		}
	}
	discard(response)
	return t.next.RoundTrip(again)
}

// isRepeatable returns whether the body of a request can be sent again.
func isRepeatable(request *http.Request) bool {
	return request.Body == nil || request.Body == http.NoBody || request.GetBody != nil
}

func (t *rolesTransport) note(hasRead bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hasRead = hasRead
}

func (t *rolesTransport) hasReadRoles() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hasRead
}

// awaitRoles waits until the server no longer refuses what all users may read, or can't be asked.
func (t *rolesTransport) awaitRoles(refused *http.Request) {
	defer t.note(true)
	for range rolesTries {
		question := refused.Clone(refused.Context()) // by the same user
		question.Method, question.Body, question.GetBody, question.ContentLength = http.MethodGet, nil, nil, 0
		question.Header.Del("Content-Type")
		question.URL.Path, question.URL.RawPath, question.URL.RawQuery = t.path, "", ""
		answer, err := t.next.RoundTrip(question)
		if err != nil {
			return
		}
		discard(answer)
		if answer.StatusCode != http.StatusForbidden {
			return
		}
		select {
		case <-time.After(rolesEvery):
		case <-refused.Context().Done():
			return
		}
	}
}

// discard reads a response to its end, so that its connection can be used again.
func discard(response *http.Response) {
	const most = 64 << 10 // a refusal is short
	_, _ = io.CopyN(io.Discard, response.Body, most)
	_ = response.Body.Close()
}
