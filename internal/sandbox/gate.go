package sandbox

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A gate is a proxy between the components and the API server: it accepts
// connections at any time and forwards them once the API server is ready.
//
// Without it, the controller manager, the scheduler and kwok, which start together with the API server, would find
// their connections refused, and wait a second, two, four before the next attempt. The same holds after a crash.
type gate struct {
	listener net.Listener
	target   string
	closed   chan struct{}

	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
}

// newGate listens on a free port of an address.
func newGate(address, target string) (*gate, error) {
	listener, err := net.Listen("tcp4", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, err
	}
	g := &gate{listener: listener, target: target, closed: make(chan struct{}), opened: make(chan struct{})}
	go g.serve()
	return g, nil
}

func (g *gate) address() string { return g.listener.Addr().String() }

// open forwards the connections that wait, and new ones.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !isClosed(g.opened) {
		close(g.opened)
	}
}

// shut makes new connections wait for the next open.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if isClosed(g.opened) {
		g.opened = make(chan struct{})
	}
}

func (g *gate) isOpen() bool {
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

// close ends the gate, and closes the connections that wait.
func (g *gate) close() { _ = g.listener.Close() }

func (g *gate) serve() {
	defer close(g.closed)
	for {
		client, err := g.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-time.After(pollInterval) // most likely too many open files, which is temporary
			continue
		}
		go g.forward(client)
	}
}

// forward copies between a client and the API server until one of the two closes the connection.
func (g *gate) forward(client net.Conn) {
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
		return // closes the connection, as the API server would
	}
	join(client, server)
}

// join copies between two connections until one of the two sides closes its own, and closes both.
func join(client, server net.Conn) {
	defer client.Close()
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}
