package sandbox

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/sandbox/relay"
)

// A callbackServer answers the requests of the API server to this process: for logs of containers, and for connections
// to webhooks, pods and the like.
type callbackServer struct {
	listener net.Listener
	server   *http.Server
}

// newCallbackServer listens on a free port. Connections wait until serve is called.
func newCallbackServer() (*callbackServer, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &callbackServer{listener: listener, server: &http.Server{ErrorLog: log.New(io.Discard, "", 0)}}, nil
}

func (s *callbackServer) port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// serve answers requests of clients with a certificate of the sandbox's authority. nodes is the network of real nodes.
func (s *callbackServer) serve(h *stateFolder, config *rest.Config, nodes netip.Prefix) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	logs, err := newKubelet(config)
	if err != nil {
		return err
	}
	connections := &egress{client, nodes}
	certificate, err := tls.LoadX509KeyPair(h.path("pki", "kubelet.crt"), h.path("pki", "kubelet.key"))
	if err != nil {
		return err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(config.CAData)
	s.server.TLSConfig = &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	}
	s.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			relay.Connect(w, r, connections.dial)
		} else {
			logs.ServeHTTP(w, r)
		}
	})
	go func() { _ = s.server.ServeTLS(s.listener, "", "") }()
	return nil
}

// close also ends open requests.
func (s *callbackServer) close() {
	if s != nil {
		_ = s.server.Close()
		_ = s.listener.Close()
	}
}
