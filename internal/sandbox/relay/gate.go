// Package relay forwards connections between the processes of a sandbox.
//
// The package does not read the data: a Gate forwards connections of components to the API server, and Connect answers
// the CONNECT requests that the API server, or a container runtime, sends to a proxy.
//
// Start with NewGate and Connect.
package relay

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// acceptDelay is the pause after a failure to accept a connection: most likely, too many files are open for a moment.
const acceptDelay = 10 * time.Millisecond

// A Gate is a proxy between the components and the API server: it accepts connections at any time, and forwards them
// while it is open.
//
// Without a gate, the controller manager, the scheduler and kwok, which start at the same time as the API server, would
// fail to connect, and retry after a second, two, four. The same happens when the API server crashes.
type Gate struct {
	target string
	closed chan struct{}

	mu        sync.Mutex
	opened    chan struct{} // closed while the gate is open
	listeners []net.Listener
}

// NewGate returns a closed gate to an address.
func NewGate(target string) *Gate {
	return &Gate{target: target, closed: make(chan struct{}), opened: make(chan struct{})}
}

// Listen accepts connections on a free port of a host, and returns the address.
func (g *Gate) Listen(host string) (string, error) {
	listener, err := net.Listen("tcp4", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listeners = append(g.listeners, listener)
	go g.serve(listener)
	return listener.Addr().String(), nil
}

// Open forwards the waiting connections, and new ones.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !isClosed(g.opened) {
		close(g.opened)
	}
}

// Shut makes new connections wait for the next Open.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if isClosed(g.opened) {
		g.opened = make(chan struct{})
	}
}

// IsOpen reports whether the gate is open.
func (g *Gate) IsOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return isClosed(g.opened)
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// Close stops listening, and closes the waiting connections. It must be called once.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.closed)
	for _, listener := range g.listeners {
		_ = listener.Close()
	}
}

func (g *Gate) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-time.After(acceptDelay)
			continue
		}
		go g.forward(client)
	}
}

// forward copies between a client and the API server until one of the two closes the connection.
func (g *Gate) forward(client net.Conn) {
	defer client.Close()
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
	case <-g.closed:
		return
	}
	server, err := net.Dial("tcp4", g.target)
	if err != nil {
		return // the client finds the connection closed, as by the API server
	}
	join(client, server)
}

// join copies between two connections until one side closes its own, and closes both.
func join(client, server net.Conn) {
	defer client.Close()
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}
