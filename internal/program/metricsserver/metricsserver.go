// Package metricsserver serves the metrics of a controller manager over TLS, to clients that the API server
// authenticates and authorizes. It has no metrics of its own: the controllers add them.
//
// The certificate may be missing, be added later, and change at any time.
//
// Start with Serve.
package metricsserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
)

// A Serving is the address of metrics, and the certificate of the server.
type Serving struct {
	Address           string // address of /metrics; empty for none
	CertFile, KeyFile string // reloaded when they change; while they are missing, a self-signed certificate is used
}

// Serve adds a metrics server to a manager. Clients need a token that the API server authenticates, and the right to
// get /metrics. The connection is used for the reviews, and has to allow them in replicas that are not the leader, too.
// Program is the name in the self-signed certificate.
func Serve(m ctrl.Manager, connection *rest.Config, program string, metrics prometheus.Gatherer, o Serving) error {
	if o.Address == "" {
		return nil
	}
	web, err := rest.HTTPClientFor(connection)
	if err != nil {
		return err
	}
	protect, err := filters.WithAuthenticationAndAuthorization(connection, web)
	if err != nil {
		return err
	}
	// An invalid metric, such as a duplicate condition of a component, does not hide other metrics.
	handler, err := protect(ctrl.Log.WithName("metrics"),
		promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	if err != nil {
		return err
	}
	certificates := &certificates{
		files: o,
		own:   sync.OnceValues(func() (*tls.Certificate, error) { return selfSigned(program) }),
	}
	listener, err := tls.Listen("tcp", o.Address,
		&tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificates.get})
	if err != nil {
		return err
	}
	paths := http.NewServeMux()
	paths.Handle("GET /metrics", handler)
	return m.Add(&manager.Server{
		Name: "metrics", Listener: listener, ShutdownTimeout: ptr.To(5 * time.Second),
		Server: &http.Server{
			Handler:           paths,
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    1 << 16,
		},
	})
}

// certificates are the certificates of the metrics server.
type certificates struct {
	files Serving
	own   func() (*tls.Certificate, error) // used if there are no files

	mu     sync.Mutex
	looked time.Time
	last   *tls.Certificate // certificate in the files; nil until they were read successfully
}

// selfSigned creates a self-signed certificate, so that metrics are at least encrypted.
func selfSigned(program string) (*tls.Certificate, error) {
	public, private, err := cert.GenerateSelfSignedCertKey(program, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	own, err := tls.X509KeyPair(public, private)
	return &own, err
}

// get returns the current certificate of the files. If they are invalid, it returns the last valid one.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files.CertFile != "" && time.Since(c.looked) > time.Second {
		c.looked = time.Now()
		read, err := tls.LoadX509KeyPair(c.files.CertFile, c.files.KeyFile)
		switch {
		case err == nil:
			c.last = &read
		case !errors.Is(err, fs.ErrNotExist):
			ctrl.Log.WithName("metrics").Info("certificate not read", "reason", err.Error())
		}
	}
	if c.last != nil {
		return c.last, nil
	}
	return c.own()
}
