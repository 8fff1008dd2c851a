// Package runtimehooktest runs runtime extensions for tests: real HTTPS servers in the process of the test, each with a
// certificate authority of its own, that answer hooks as the test configures and record their requests.
//
// New is the call to start from:
//
//	extension := runtimehooktest.New(t)
//	extension.Answer("UpdateMachine", `{"status":"Success","retryAfterSeconds":0}`)
package runtimehooktest

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// An Extension is a runtime extension.
type Extension struct {
	server *httptest.Server
	ca     []byte

	mu      sync.Mutex
	answers map[string]http.HandlerFunc // by the hook, in lower case
	calls   []TestCall
}

// A TestCall is a request that an extension received.
type TestCall struct {
	URL        string // path and query
	ServerName string // of the client's TLS handshake
	Body       string
}

// New runs an extension until the test ends. Its certificate is for the names, or for 127.0.0.1 if there are none.
func New(t testing.TB, names ...string) *Extension {
	t.Helper()
	e := &Extension{answers: map[string]http.HandlerFunc{}}
	e.server = httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	issued := issueCertificate(t, names...)
	certificate, err := tls.X509KeyPair(issued.cert, issued.key)
	if err != nil {
		t.Fatal(err)
	}
	e.ca = issued.ca
	e.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	e.server.StartTLS()
	t.Cleanup(e.server.Close)
	return e
}

// ClientConfig returns the configuration of clients of the extension.
func (e *Extension) ClientConfig() runtimev1.ClientConfig {
	return runtimev1.ClientConfig{URL: e.server.URL, CABundle: e.ca}
}

// CA returns the certificate of the extension's authority, as PEM.
func (e *Extension) CA() []byte { return e.ca }

// Address returns the host and port of the extension.
func (e *Extension) Address() string { return e.server.Listener.Addr().String() }

// Answer has the extension answer a hook with a text.
func (e *Extension) Answer(hook, text string) {
	e.Serve(hook, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

// Serve has the extension answer a hook by a function.
func (e *Extension) Serve(hook string, answer http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers[strings.ToLower(hook)] = answer
}

// Stop closes the extension's port: connections to it are refused.
func (e *Extension) Stop() { e.server.Close() }

// Calls returns the requests that the extension has received so far.
func (e *Extension) Calls() []TestCall {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]TestCall(nil), e.calls...)
}

func (e *Extension) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_, hook, _ := strings.Cut(r.URL.Path, "/v1alpha1/")
	hook, _, _ = strings.Cut(hook, "/")
	e.mu.Lock()
	e.calls = append(e.calls, TestCall{r.URL.RequestURI(), r.TLS.ServerName, string(body)})
	answer, isKnown := e.answers[hook]
	e.mu.Unlock()
	if !isKnown {
		http.NotFound(w, r)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer(w, r)
}

// FreeAddress returns an address of this machine where no server listens.
func FreeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
