package sandbox

import (
	"fmt"
	"net"
)

// ports are the loopback ports of one start. All other listeners are turned off.
type ports struct{ etcd, apiServer, callbacks int }

// reservePorts finds free loopback ports for programs, and keeps the kernel from assigning them to other programs for
// the next minute.
//
// If reservePorts only listened on port 0 and closed the listener, the next program could get the port. So it first
// opens and closes a connection, which leaves the port in TIME_WAIT: the kernel does not assign it as a free port, but
// the programs of the sandbox can bind it by number. If another program binds the same number, the start fails with
// component.ErrPortTaken, and Start tries again.
func reservePorts() (ports, error) {
	var p ports
	for _, port := range []*int{&p.etcd, &p.apiServer} {
		var err error
		if *port, err = reservePort(); err != nil {
			return p, fmt.Errorf("find a free port on 127.0.0.1: %w", err)
		}
	}
	return p, nil
}

func reservePort() (int, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	client, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		return 0, err
	}
	// The side that closes first enters TIME_WAIT: it must be the side with our port.
	if err := server.Close(); err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, nil
}
