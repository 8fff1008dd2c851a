package registries

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
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
	"syscall"
	"time"

	"github.com/runlevel/runlevel/internal/sandbox/relay"
)

// errOffline is the error of all pulls of an offline sandbox.
var errOffline = errors.New("the sandbox is offline: it pulls images from its own registry only")

// StartPullProxy starts the proxy through which the container runtimes of the nodes pull images, and returns its URL
// with their credentials. If the sandbox is offline, the proxy refuses all pulls: without a proxy, the container
// runtimes would try to resolve names until a timeout.
func StartPullProxy(address netip.Addr, offline bool) (*http.Server, *url.URL, error) {
	listener, err := net.Listen("tcp4", net.JoinHostPort(address.String(), "0"))
	if err != nil {
		return nil, nil, err
	}
	user := url.UserPassword("containerd", rand.Text())
	proxy := &pullProxy{authorization: basicAuthorization(user)}
	proxy.dial = func(ctx context.Context, destination string) (net.Conn, error) {
		return dialRegistry(ctx, destination, http.ProxyFromEnvironment)
	}
	if offline {
		proxy.dial = func(context.Context, string) (net.Conn, error) { return nil, errOffline }
	}
	server := serve(listener, proxy)
	return server, &url.URL{Scheme: "http", User: user, Host: server.Addr}, nil
}

// A pullProxy connects the container runtimes of the nodes with registries: the network of the nodes has no other way
// out of this machine. It refuses pods: those on the host network have the addresses of nodes, but not the credentials.
type pullProxy struct {
	authorization string // Authorization header of the container runtimes
	dial          relay.DialFunc
}

func (p *pullProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case subtle.ConstantTimeCompare([]byte(r.Header.Get("Proxy-Authorization")), []byte(p.authorization)) != 1:
		http.Error(w, "only container runtimes may pull images through this proxy", http.StatusForbidden)
	case r.Method == http.MethodConnect:
		relay.Connect(w, r, p.dial)
	default: // a registry without TLS
		transport := &http.Transport{
			DialContext: func(ctx context.Context, _, destination string) (net.Conn, error) {
				return p.dial(ctx, destination)
			},
			DisableKeepAlives: true,
		}
		plain := &httputil.ReverseProxy{
			Rewrite:   func(*httputil.ProxyRequest) {},
			Transport: transport,
			ErrorLog:  log.New(io.Discard, "", 0),
		}
		plain.ServeHTTP(w, r)
	}
}

// refuseLocal refuses loopback and link-local addresses of this machine: no registry has such an address, but services
// that trust this machine do.
func refuseLocal(address netip.Addr) error {
	if a := address.Unmap(); a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a.IsMulticast() {
		return fmt.Errorf("%s: registries on the loopback or at link-local addresses are refused", address)
	}
	return nil
}

// refuseLocalName does the same as refuseLocal for a destination that another proxy resolves. It accepts names that
// this machine can't resolve.
func refuseLocalName(ctx context.Context, destination string) error {
	host, _, err := net.SplitHostPort(destination)
	if err != nil {
		return err
	}
	const patience = 2 * time.Second // behind a proxy, machines often have no resolver
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	addresses, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for _, address := range addresses {
		if err := refuseLocal(address); err != nil {
			return err
		}
	}
	return nil
}

// dialRegistry connects to a registry, through the proxy that proxyFor returns for the registry. The address is checked
// during the connect, so that the name can't resolve to another address in between.
func dialRegistry(ctx context.Context, destination string,
	proxyFor func(*http.Request) (*url.URL, error)) (net.Conn, error) {
	proxy, err := proxyFor(&http.Request{URL: &url.URL{Scheme: "https", Host: destination}})
	switch {
	case err != nil:
		return nil, err
	case proxy == nil:
		dialer := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
			target, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return refuseLocal(target.Addr())
		}}
		return dialer.DialContext(ctx, "tcp", destination)
	case proxy.Scheme != "http":
		return nil, fmt.Errorf("the proxy %s is not supported: only those with http:// are", proxy.Redacted())
	}
	if err := refuseLocalName(ctx, destination); err != nil {
		return nil, err
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

// basicAuthorization returns the header with a user's password.
func basicAuthorization(user *url.Userinfo) string {
	name := user.Username()
	password, _ := user.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
}

func hostAndPort(proxy *url.URL) string {
	if proxy.Port() == "" {
		return net.JoinHostPort(proxy.Hostname(), "80")
	}
	return proxy.Host
}

// requestTunnel asks a proxy to connect to a destination. The proxy sends nothing after its answer until this end
// sends, so the reader's buffer is empty.
func requestTunnel(connection net.Conn, destination string, user *url.Userinfo) error {
	request := &http.Request{
		Method: http.MethodConnect,
		URL:    &url.URL{Opaque: destination},
		Host:   destination,
		Header: http.Header{},
	}
	if user != nil {
		request.Header.Set("Proxy-Authorization", basicAuthorization(user))
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
