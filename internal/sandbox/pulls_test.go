package sandbox

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// startProxy starts a pull proxy for the clients of a network, and returns its URL.
func startProxy(t *testing.T, clients string, offline bool) *url.URL {
	t.Helper()
	server, err := startPullProxy(netip.MustParseAddr("127.0.0.1"), netip.MustParsePrefix(clients), offline)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return &url.URL{Scheme: "http", Host: server.Addr}
}

// TestPullProxy connects container runtimes with registries, with and without TLS, and refuses pods.
func TestPullProxy(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "registry "+r.URL.Path) })
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	defer plain.Close()
	defer secure.Close()
	for name, test := range map[string]struct {
		clients  string
		offline  bool
		registry string
		want     string
	}{
		"TLS":               {"127.0.0.0/8", false, secure.URL, "registry /v2/"},
		"no TLS":            {"127.0.0.0/8", false, plain.URL, "registry /v2/"},
		"a pod":             {"10.0.0.0/24", false, secure.URL, "Forbidden"},
		"a pod without TLS": {"10.0.0.0/24", false, plain.URL, "only container runtimes may pull"},
		"offline":           {"127.0.0.0/8", true, secure.URL, "the sandbox is offline"},
		"offline, no TLS":   {"127.0.0.0/8", true, plain.URL, "Bad Gateway"},
	} {
		t.Run(name, func(t *testing.T) {
			transport := secure.Client().Transport.(*http.Transport).Clone()
			transport.Proxy = http.ProxyURL(startProxy(t, test.clients, test.offline))
			if got := get(transport, test.registry+"/v2/"); !strings.Contains(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// get returns the answer to a request, its status if it has no text, or its error.
func get(transport *http.Transport, url string) string {
	response, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	if len(text) == 0 {
		return response.Status
	}
	return string(text)
}

// TestTunnelThroughTheProxyOfThisMachine reaches a target through a proxy that wants a password.
func TestTunnelThroughTheProxyOfThisMachine(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	defer target.Close()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != "Basic YW5hOnNlY3JldA==" {
			http.Error(w, "who is it", http.StatusProxyAuthRequired)
			return
		}
		connect(w, r, func(ctx context.Context, target string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", target)
		})
	}))
	defer proxy.Close()
	for user, want := range map[*url.Userinfo]string{url.UserPassword("ana", "secret"): "here", nil: "407 Proxy Authentication Required"} {
		transport := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(proxy.URL, "http://"))
			if err != nil {
				return nil, err
			}
			return connection, requestTunnel(connection, address, user)
		}}
		if got := get(transport, target.URL); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
