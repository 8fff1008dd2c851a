package sandbox

import (
	"fmt"
	"net"
)

// ports are the loopback ports of one start. What else could listen does not.
type ports struct{ etcd, apiServer, kubelet, egress int }

// reservePorts finds free loopback ports for programs and keeps them from being handed out to
// anyone else for the next minute.
//
// To listen on port 0, look and close would leave the port to the next program
// that asks. A connection made and closed first leaves it in TIME_WAIT: the
// kernel won't hand it out as a free one, and a program that asks for it by
// number, as ours do, gets it. What is left, a stranger asking for just that
// number, ends in errPortTaken, and Start tries again.
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
	// Who closes first waits: it must be the side that has our port.
	if err := server.Close(); err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, nil
}
