// Package registries contains the two ways in which real nodes get images that were not imported at the start: a
// registry of the sandbox, and a proxy to the registries that this machine reaches.
//
// Both listen on the network of the nodes. The registry has no users; the proxy serves container runtimes only, and
// refuses pods.
//
// Start with Start and StartPullProxy.
package registries

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"syscall"

	"github.com/google/go-containerregistry/pkg/registry"
)

// port is the port of the registry, unless another program listens there.
const port = "5000"

// Start starts a registry for the images of pods, which stores its layers in a folder.
func Start(address netip.Addr, folder string) (*http.Server, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp4", net.JoinHostPort(address.String(), port))
	if errors.Is(err, syscall.EADDRINUSE) {
		listener, err = net.Listen("tcp4", net.JoinHostPort(address.String(), "0"))
	}
	if err != nil {
		return nil, err
	}
	layers := registry.WithBlobHandler(registry.NewDiskBlobHandler(folder))
	return serve(listener, registry.New(registry.Logger(log.New(io.Discard, "", 0)), layers)), nil
}

// serve answers requests of the nodes. The address of the server is the listener's.
func serve(listener net.Listener, handler http.Handler) *http.Server {
	server := &http.Server{Addr: listener.Addr().String(), Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(listener) }()
	return server
}
