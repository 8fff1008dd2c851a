package sandbox

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
)

// A loopbackServer answers requests of the API server on a port of its own.
type loopbackServer struct {
	listener net.Listener
	server   *http.Server
}

// newLoopbackServer listens. Connections wait until serve is called.
func newLoopbackServer() (*loopbackServer, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &loopbackServer{listener: listener, server: &http.Server{ErrorLog: log.New(io.Discard, "", 0)}}, nil
}

func (s *loopbackServer) port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// serve answers requests of clients with a certificate of the sandbox's authority.
func (s *loopbackServer) serve(h *stateFolder, ca []byte, handler http.Handler) error {
	certificate, err := tls.LoadX509KeyPair(h.path("pki", "kubelet.crt"), h.path("pki", "kubelet.key"))
	if err != nil {
		return err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca)
	s.server.TLSConfig = &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	}
	s.server.Handler = handler
	go func() { _ = s.server.ServeTLS(s.listener, "", "") }()
	return nil
}

// close also ends open requests.
func (s *loopbackServer) close() {
	_ = s.server.Close()
	_ = s.listener.Close()
}
