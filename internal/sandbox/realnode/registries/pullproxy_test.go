package registries

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

	"github.com/runlevel/runlevel/internal/sandbox/relay"
)

// machineAddress returns an address of this machine outside the loopback: the source address of packets to other
// networks. machineAddress sends no packet.
func machineAddress(t *testing.T) string {
	t.Helper()
	connection, err := net.Dial("udp4", "192.0.2.1:9")
	if err != nil {
		t.Skip("this machine has no network:", err)
	}
	defer connection.Close()
	return connection.LocalAddr().(*net.UDPAddr).IP.String()
}

// startRegistries starts a server without TLS and one with it at an address. They answer with the path, and with the
// credentials for a proxy, which a registry must not receive.
func startRegistries(t *testing.T, address string) (plain, secure *httptest.Server) {
	t.Helper()
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "registry "+r.URL.Path+r.Header.Get("Proxy-Authorization"))
	})
	plain, secure = httptest.NewUnstartedServer(answer), httptest.NewUnstartedServer(answer)
	for _, server := range []*httptest.Server{plain, secure} {
		server.Listener.Close()
		var err error
		if server.Listener, err = net.Listen("tcp4", net.JoinHostPort(address, "0")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
	}
	plain.Start()
	secure.StartTLS()
	return plain, secure
}

// TestPullProxy connects container runtimes with registries, with and without TLS. The proxy refuses pods, which do
// not have the credentials, and loopback and link-local destinations, by address and by name.
func TestPullProxy(t *testing.T) {
	plain, secure := startRegistries(t, machineAddress(t))
	plainHere, secureHere := startRegistries(t, "127.0.0.1")
	named := func(server *httptest.Server, host string) string {
		scheme, address, _ := strings.Cut(server.URL, "://")
		return scheme + "://" + host + address[strings.LastIndex(address, ":"):]
	}
	const refused = "registries on the loopback or at link-local addresses are refused"
	for name, test := range map[string]struct {
		user     *url.Userinfo // instead of the container runtime's
		offline  bool
		registry string
		want     string
	}{
		"TLS":               {registry: secure.URL, want: "registry /v2/"},
		"no TLS":            {registry: plain.URL, want: "registry /v2/"},
		"a pod":             {user: url.User(""), registry: secure.URL, want: "Forbidden"},
		"a pod without TLS": {user: url.User(""), registry: plain.URL, want: "only container runtimes may pull"},
		"a guess": {
			user:     url.UserPassword("containerd", "guess"),
			registry: secure.URL,
			want:     "Forbidden",
		},
		"offline":               {offline: true, registry: secure.URL, want: "the sandbox is offline"},
		"offline, no TLS":       {offline: true, registry: plain.URL, want: "Bad Gateway"},
		"the loopback":          {registry: secureHere.URL, want: refused},
		"the loopback, no TLS":  {registry: plainHere.URL, want: "Bad Gateway"},
		"the loopback by name":  {registry: named(secureHere, "localhost"), want: refused},
		"the loopback in short": {registry: named(secureHere, "0.0.0.0"), want: refused},
		"the loopback as IPv6":  {registry: named(secureHere, "[::ffff:127.0.0.1]"), want: refused},
		"a link-local address":  {registry: named(secureHere, "169.254.169.254"), want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			server, proxy, err := StartPullProxy(netip.MustParseAddr("127.0.0.1"), test.offline)
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			if test.user != nil {
				proxy.User = test.user
			}
			transport := secure.Client().Transport.(*http.Transport).Clone()
			// which the certificate has
			transport.Proxy, transport.TLSClientConfig.ServerName = http.ProxyURL(proxy), "example.com"
			if got := get(transport, test.registry+"/v2/"); !strings.Contains(got, test.want) ||
				strings.Contains(got, "Basic") {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestPullsThroughTheProxyOfThisMachine checks that pulls go to that proxy, except for names on the loopback, which
// the proxy might resolve as its own.
func TestPullsThroughTheProxyOfThisMachine(t *testing.T) {
	for destination, want := range map[string]string{"registry.invalid:443": "407", "localhost:443": "are refused",
		"169.254.169.254:443": "are refused"} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusProxyAuthRequired)
		}))
		defer proxy.Close()
		through := func(*http.Request) (*url.URL, error) { return url.Parse(proxy.URL) }
		if connection, err := dialRegistry(t.Context(), destination, through); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("dial %s: %v, %v; want %s", destination, connection, err, want)
		}
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

// TestTunnelThroughTheProxyOfThisMachine reaches a target through a proxy that requires a password.
func TestTunnelThroughTheProxyOfThisMachine(t *testing.T) {
	target := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }),
	)
	defer target.Close()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != "Basic YW5hOnNlY3JldA==" {
			http.Error(w, "no password", http.StatusProxyAuthRequired)
			return
		}
		relay.Connect(w, r, func(ctx context.Context, target string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", target)
		})
	}))
	defer proxy.Close()
	for user, want := range map[*url.Userinfo]string{url.UserPassword("ana", "secret"): "here",
		nil: "407 Proxy Authentication Required"} {
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
