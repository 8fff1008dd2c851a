package oci

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// A registryStore is one repository of a registry.
type registryStore struct {
	client  *http.Client
	options []remote.Option
	puller  *remote.Puller
	repo    name.Repository

	mu    sync.Mutex
	known map[v1.Hash][]byte // manifests that were resolved
}

func openRegistry(repo name.Repository, insecure bool) (*registryStore, error) {
	client, err := HTTPClient(insecure)
	if err != nil {
		return nil, err
	}
	options := []remote.Option{
		remote.WithTransport(limitedTransport{client.Transport}),
		remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithUserAgent("runlevel"),
		// The library sleeps through an interrupt, so it sleeps briefly.
		remote.WithRetryBackoff(remote.Backoff{Duration: 200 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 3}),
	}
	puller, err := remote.NewPuller(options...)
	if err != nil {
		return nil, fmt.Errorf("prepare to ask %s: %w", repo.RegistryStr(), err)
	}
	return &registryStore{
		client: client, options: options, puller: puller, repo: repo, known: map[v1.Hash][]byte{},
	}, nil
}

// Resolve implements Store.
func (r *registryStore) Resolve(ctx context.Context, identifier string) (v1.Descriptor, error) {
	var ref name.Reference = r.repo.Tag(identifier)
	if strings.Contains(identifier, ":") {
		ref = r.repo.Digest(identifier)
	}
	got, err := r.puller.Get(ctx, ref)
	if err != nil {
		return v1.Descriptor{}, explain(r.repo.RegistryStr(), "the registry has no such image", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[got.Digest] = got.Manifest
	return got.Descriptor, nil
}

// Manifest implements Store.
func (r *registryStore) Manifest(ctx context.Context, described v1.Descriptor) ([]byte, error) {
	r.mu.Lock()
	raw, isKnown := r.known[described.Digest]
	r.mu.Unlock()
	if isKnown {
		return raw, CheckManifest(described, raw)
	}
	got, err := r.puller.Get(ctx, r.repo.Digest(described.Digest.String()))
	if err != nil {
		err := explain(r.repo.RegistryStr(), noPart, err)
		return nil, fmt.Errorf("manifest %s: %w", described.Digest, err)
	}
	return got.Manifest, CheckManifest(described, got.Manifest)
}

const noPart = "the registry doesn't have it"

// Blob implements Store.
func (r *registryStore) Blob(ctx context.Context, described v1.Descriptor, offset int64) (io.ReadCloser, error) {
	layer, err := r.puller.Layer(ctx, r.repo.Digest(described.Digest.String()))
	if err != nil {
		return nil, explain(r.repo.RegistryStr(), noPart, err)
	}
	content, err := layer.Compressed()
	if err != nil {
		return nil, explain(r.repo.RegistryStr(), noPart, err)
	}
	if _, err := io.CopyN(io.Discard, content, offset); err != nil {
		return nil, errors.Join(err, content.Close())
	}
	return content, nil
}

// Referrers implements Store. Where the registry has no referrers API, they are in an index with the tag sha256-HEX.
func (r *registryStore) Referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, error) {
	options := append(slices.Clone(r.options), remote.WithContext(ctx))
	index, err := remote.Referrers(r.repo.Digest(digest.String()), options...)
	if err != nil {
		return nil, explain(r.repo.RegistryStr(), noPart, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	return manifest.Manifests, nil
}

// Close implements Store.
func (r *registryStore) Close() error {
	r.client.CloseIdleConnections()
	return nil
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
