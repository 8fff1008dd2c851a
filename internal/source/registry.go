package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// A registryStore is one repository of a registry.
type registryStore struct {
	puller *remote.Puller
	repo   name.Repository
	root   *remote.Descriptor // the descriptor of the reference
}

func openImage(ctx context.Context, ref name.Reference, extractor *extractor, insecure bool) (*Release, error) {
	client, err := HTTPClient(insecure)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	puller, err := remote.NewPuller(
		remote.WithTransport(limitedTransport{client.Transport}),
		remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithUserAgent("runlevel"),
		// The library sleeps through an interrupt, so it sleeps briefly.
		remote.WithRetryBackoff(remote.Backoff{Duration: 200 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 3}),
	)
	if err != nil {
		return nil, fmt.Errorf("prepare to ask %s: %w", ref.Context().RegistryStr(), err)
	}
	registry := registryStore{puller: puller, repo: ref.Context()}
	if registry.root, err = puller.Get(ctx, ref); err != nil {
		return nil, explain(registry.repo.RegistryStr(), "the registry has no such image", err)
	}
	extractor.store = registry
	manifest, err := extractor.findManifest(ctx, registry.root.Descriptor)
	if err != nil {
		return nil, err
	}
	files, err := extractor.extractPayload(ctx, manifest)
	if err != nil {
		return nil, err
	}
	digest := registry.root.Digest.String()
	return &Release{FS: files, Kind: Image, Image: registry.repo.Digest(digest).Name(), Digest: digest}, nil
}

func (r registryStore) manifest(ctx context.Context, described v1.Descriptor) ([]byte, error) {
	if described.Digest == r.root.Digest {
		return r.root.Manifest, nil
	}
	got, err := r.puller.Get(ctx, r.repo.Digest(described.Digest.String()))
	if err != nil {
		err := explain(r.repo.RegistryStr(), "the registry doesn't have it", err)
		return nil, fmt.Errorf("manifest %s: %w", described.Digest, err)
	}
	return got.Manifest, nil
}

func (r registryStore) blob(ctx context.Context, described v1.Descriptor) (io.ReadCloser, error) {
	layer, err := r.puller.Layer(ctx, r.repo.Digest(described.Digest.String()))
	if err != nil {
		return nil, explain(r.repo.RegistryStr(), "the registry doesn't have it", err)
	}
	content, err := layer.Compressed()
	if err != nil {
		return nil, explain(r.repo.RegistryStr(), "the registry doesn't have it", err)
	}
	return content, nil
}

// HTTPClient returns a client that uses the proxy of the environment, and trusts the authorities of SSL_CERT_FILE
// beside those of the system. Unless insecure is set, it refuses plain http.
func HTTPClient(insecure bool) (*http.Client, error) {
	base, err := connections(insecure)
	if err != nil {
		return nil, err
	}
	if insecure {
		return &http.Client{Transport: attemptMarker{base}}, nil
	}
	return &http.Client{Transport: tlsOnlyTransport{attemptMarker{base}}}, nil
}

// connections returns a transport of its own, not the library's shared one, so that its
// connections can be closed.
func connections(insecure bool) (*http.Transport, error) {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		ForceAttemptHTTP2:     true,
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
	}
	if insecure {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		return transport, nil
	}
	// Go reads SSL_CERT_FILE on Linux only, where it replaces the system's authorities.
	// Here it is added to them on all systems, as explain advises.
	file := os.Getenv("SSL_CERT_FILE")
	if file == "" {
		return transport, nil
	}
	certificates, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read SSL_CERT_FILE: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's certificates: %w", err)
	}
	pool.AppendCertsFromPEM(certificates)
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	return transport, nil
}

// A tlsOnlyTransport refuses plain http, to which the library falls back for registries on this
// machine or in a private network.
type tlsOnlyTransport struct{ next attemptMarker }

// CloseIdleConnections is called by the client's method of that name.
func (o tlsOnlyTransport) CloseIdleConnections() { o.next.CloseIdleConnections() }

func (o tlsOnlyTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme == "https" {
		return o.next.RoundTrip(request)
	}
	if request.Body != nil {
		request.Body.Close()
	}
	return nil, plainHTTPError{host: request.URL.Host}
}

type plainHTTPError struct{ host string }

func (p plainHTTPError) Error() string {
	return p.host + " answers only plain http, which needs --insecure"
}
