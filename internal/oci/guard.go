package oci

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
)

// metadataServers answer with credentials of the machine in clouds, besides the link-local 169.254.169.254: those of
// AWS, Alibaba, Azure and Oracle.
var metadataServers = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
}

// translated are the IPv6 addresses that a network may translate to IPv4 ones, which are their last bytes (NAT64).
var translated = netip.MustParsePrefix("64:ff9b::/96")

// GuardedDial opens connections for requests to a registry or another host. It may lead to other hosts, by a redirect,
// the address of its token server or of an upload, but not to services that only this machine or its host reaches.
func GuardedDial(registry string) dialFunc {
	free := &net.Dialer{Timeout: dialTimeout}
	guarded := &net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		return checkHost(registry, host)
	}}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if host := hostname(address); host == hostname(registry) || isProxy(host) {
			return free.DialContext(ctx, network, address)
		}
		return guarded.DialContext(ctx, network, address)
	}
}

// isProxy reports whether a host is the proxy of the environment.
func isProxy(host string) bool {
	for _, scheme := range []string{"https", "http"} {
		request := &http.Request{URL: &url.URL{Scheme: scheme, Host: "registry.example"}}
		if proxy, err := http.ProxyFromEnvironment(request); err == nil && proxy != nil && proxy.Hostname() == host {
			return true
		}
	}
	return false
}

// hostname returns a host without its port.
func hostname(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// checkHost returns an error if a host is an address to which a registry must not lead.
func checkHost(registry, host string) error {
	address, err := netip.ParseAddr(host)
	if err != nil || registry == "" || host == hostname(registry) {
		return nil
	}
	address = address.WithZone("").Unmap()
	if translated.Contains(address) {
		address = netip.AddrFrom4([4]byte(address.AsSlice()[12:]))
	}
	isForbidden := address.IsLinkLocalUnicast() || slices.Contains(metadataServers, address) ||
		(address.IsLoopback() || address.IsUnspecified()) && !isLoopback(registry)
	if isForbidden {
		return limitError(fmt.Sprintf("%s leads to %s, an address of this machine or its host: refused", registry,
			address))
	}
	return nil
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	addresses, err := net.LookupIP(hostname(host))
	return err == nil && slices.ContainsFunc(addresses, net.IP.IsLoopback)
}
