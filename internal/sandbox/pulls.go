package sandbox

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"syscall"

	"github.com/google/go-containerregistry/pkg/registry"
)

// registryPort is the port of the registry, if no other program listens there.
const registryPort = "5000"

// startRegistry starts a registry for the images of pods. Its layers are in a folder.
func startRegistry(address netip.Addr, folder string) (*http.Server, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp4", net.JoinHostPort(address.String(), registryPort))
	if errors.Is(err, syscall.EADDRINUSE) {
		listener, err = net.Listen("tcp4", net.JoinHostPort(address.String(), "0"))
	}
	if err != nil {
		return nil, err
	}
	return serveHTTP(listener, registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(registry.NewDiskBlobHandler(folder)))), nil
}

// startPullProxy starts the proxy through which the container runtimes of the nodes pull images. Offline, it refuses to:
// without a proxy, the container runtimes would wait for names to be resolved.
func startPullProxy(address netip.Addr, nodes netip.Prefix, offline bool) (*http.Server, error) {
	listener, err := net.Listen("tcp4", net.JoinHostPort(address.String(), "0"))
	if err != nil {
		return nil, err
	}
	proxy := &pullProxy{nodes: nodes, dial: dialRegistry}
	if offline {
		proxy.dial = func(context.Context, string) (net.Conn, error) { return nil, errOffline }
	}
	return serveHTTP(listener, proxy), nil
}

// errOffline is why an image is not pulled.
var errOffline = errors.New("the sandbox is offline: it pulls images from its own registry only")

// serveHTTP answers requests of the nodes. The address of the server is the listener's.
func serveHTTP(listener net.Listener, handler http.Handler) *http.Server {
	server := &http.Server{Addr: listener.Addr().String(), Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(listener) }()
	return server
}

// A pullProxy connects the container runtimes of the nodes with registries: the network of the nodes has no other way
// out of this machine. It refuses pods.
type pullProxy struct {
	nodes netip.Prefix
	dial  func(ctx context.Context, destination string) (net.Conn, error)
}

func (p *pullProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	switch {
	case err != nil || !p.nodes.Contains(from.Addr()):
		http.Error(w, "only container runtimes may pull images through this proxy", http.StatusForbidden)
	case r.Method == http.MethodConnect:
		connect(w, r, p.dial)
	default: // a registry without TLS
		transport := &http.Transport{DialContext: func(ctx context.Context, _, destination string) (net.Conn, error) { return p.dial(ctx, destination) }, DisableKeepAlives: true}
		plain := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: transport, ErrorLog: log.New(io.Discard, "", 0)}
		plain.ServeHTTP(w, r)
	}
}

// dialRegistry connects to a registry, through the proxy that the environment of this process names for it.
func dialRegistry(ctx context.Context, destination string) (net.Conn, error) {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: destination}})
	switch {
	case err != nil:
		return nil, err
	case proxy == nil:
		return (&net.Dialer{}).DialContext(ctx, "tcp", destination)
	case proxy.Scheme != "http":
		return nil, fmt.Errorf("the proxy %s is not supported: only those with http:// are", proxy.Redacted())
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", hostAndPort(proxy))
	if err != nil {
		return nil, err
	}
	if err := requestTunnel(connection, destination, proxy.User); err != nil {
		connection.Close()
		return nil, fmt.Errorf("proxy %s: %w", proxy.Redacted(), err)
	}
	return connection, nil
}

func hostAndPort(proxy *url.URL) string {
	if proxy.Port() == "" {
		return net.JoinHostPort(proxy.Hostname(), "80")
	}
	return proxy.Host
}

// requestTunnel has a proxy connect to a destination. Nothing follows the answer before this end sends, so that the reader's
// buffer is empty.
func requestTunnel(connection net.Conn, destination string, user *url.Userinfo) error {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: destination}, Host: destination, Header: http.Header{}}
	if user != nil {
		request.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.String())))
	}
	if err := request.Write(connection); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}
