// Package webserver serves the metrics and the page of a program over TLS, to clients that the API server
// authenticates and authorizes. It has no metrics and no pages of its own.
//
// A Reviewer sends the tokens of clients to the API server, and asks it for their rights. The certificate may be
// missing, be added later, and change at any time.
//
// Start with Serve.
package webserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// A Serving is an address, and the certificate of the server.
type Serving struct {
	Address           string // empty for none
	CertFile, KeyFile string // reloaded when they change; while they are missing, a self-signed certificate is used
	Program           string // name in the self-signed certificate
}

// The limits bound the memory of a server.
const (
	maxConnections = 500
	maxStreams     = 100 // requests of a connection over HTTP/2 that are in progress
)

// ServeMetrics adds a server of /metrics to a manager. Clients need a token that the API server authenticates, and the
// right to get /metrics. The connection is used for the reviews, and has to allow them in replicas that are not the
// leader, too.
func ServeMetrics(ctx context.Context, m ctrl.Manager, connection *rest.Config, metrics prometheus.Gatherer,
	o Serving) error {
	if o.Address == "" {
		return nil
	}
	reviewer, err := NewReviewer(connection, DefaultInterval)
	if err != nil {
		return err
	}
	// An invalid metric, such as a duplicate condition of a component, does not hide other metrics.
	handler := promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	paths := http.NewServeMux()
	paths.Handle("GET /metrics", reviewer.protect(handler))
	return Serve(ctx, m, "metrics", paths, o)
}

// Serve adds a server to a manager. The server also runs in replicas that are not the leader. The end of ctx cancels
// the requests.
func Serve(ctx context.Context, m ctrl.Manager, name string, handler http.Handler, o Serving) error {
	certificates := &certificates{
		name:  name,
		files: o,
		own:   sync.OnceValues(func() (*tls.Certificate, error) { return selfSigned(name, o.Program) }),
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return err
	}
	listener = tls.NewListener(netutil.LimitListener(listener, maxConnections), &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: certificates.get, NextProtos: []string{"h2", "http/1.1"},
	})
	return m.Add(&manager.Server{
		Name: name, Listener: listener, ShutdownTimeout: ptr.To(5 * time.Second),
		Server: &http.Server{
			Handler:           handler,
			BaseContext:       func(net.Listener) context.Context { return ctx },
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    1 << 16,
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
			ErrorLog:          log.New(io.Discard, "", 0), // each port scan would write a line
		},
	})
}

// certificates are the certificates of a server.
type certificates struct {
	name  string // of the server, for the log
	files Serving
	own   func() (*tls.Certificate, error) // used if there are no files

	mu      sync.Mutex
	looked  time.Time
	problem string           // why the files were not read; it is in the log
	last    *tls.Certificate // certificate in the files; nil until they were read successfully
}

// selfSigned creates a self-signed certificate, so that connections are at least encrypted.
func selfSigned(name, program string) (*tls.Certificate, error) {
	public, private, err := cert.GenerateSelfSignedCertKey(program, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	own, err := tls.X509KeyPair(public, private)
	ctrl.Log.WithName(name).Info("serving with a self-signed certificate, since no other one is mounted")
	return &own, err
}

// get returns the current certificate of the files. If they are invalid, it returns the last valid one.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files.CertFile != "" && time.Since(c.looked) > time.Second {
		c.looked = time.Now()
		read, err := tls.LoadX509KeyPair(c.files.CertFile, c.files.KeyFile)
		problem := ""
		switch {
		case err == nil:
			c.last = &read
		case !errors.Is(err, fs.ErrNotExist):
			problem = err.Error()
		}
		if problem != "" && problem != c.problem {
			ctrl.Log.WithName(c.name).Info("certificate not read", "reason", problem)
		}
		c.problem = problem
	}
	if c.last != nil {
		return c.last, nil
	}
	return c.own()
}
