package oci

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A registryStore is one repository of a registry.
type registryStore struct {
	*client
	resolved atomic.Pointer[resolvedManifest]
	fallback sync.Mutex // for changes of referrers' tags
	mounters sync.Map   // clients with the right to read another repository; nil for one that is not mounted from
}

// A resolvedManifest is the manifest that was resolved last: most callers read it next.
type resolvedManifest struct {
	described v1.Descriptor
	raw       []byte
}

const noPart = "the registry doesn't have it"

// acceptedManifests are the media types that a registry may answer with.
var acceptedManifests = strings.Join([]string{
	string(types.OCIImageIndex), string(types.OCIManifestSchema1), string(types.DockerManifestList),
	string(types.DockerManifestSchema2), string(types.DockerManifestSchema1Signed),
	string(types.DockerManifestSchema1), "*/*",
}, ", ")

// Resolve implements Store.
func (r *registryStore) Resolve(ctx context.Context, identifier string) (v1.Descriptor, error) {
	got, err := r.fetch(ctx, identifier)
	if err != nil {
		if errors.Is(err, ErrNotFound) {
			err = &RewordedError{Text: "the registry has no such image", Err: err}
		}
		return v1.Descriptor{}, err
	}
	r.resolved.Store(got)
	return got.described, nil
}

// Manifest implements Store.
func (r *registryStore) Manifest(ctx context.Context, described v1.Descriptor) ([]byte, error) {
	got := r.resolved.Load()
	if got == nil || got.described.Digest != described.Digest {
		var err error
		if got, err = r.fetch(ctx, described.Digest.String()); err != nil {
			return nil, fmt.Errorf("manifest %s: %w", described.Digest, err)
		}
	}
	return got.raw, CheckManifest(described, got.raw)
}

// fetch reads a manifest by its tag or digest.
func (r *registryStore) fetch(ctx context.Context, identifier string) (*resolvedManifest, error) {
	algorithm, hex, isDigest := strings.Cut(identifier, ":")
	if !isDigest {
		algorithm = "sha256"
	}
	sum, err := v1.Hasher(algorithm)
	if err != nil {
		return nil, err
	}
	raw, response, err := r.read(ctx, r.address("manifests/%s", identifier), acceptedManifests, http.StatusOK)
	if err != nil {
		return nil, err
	}
	sum.Write(raw)
	got := v1.Hash{Algorithm: algorithm, Hex: fmt.Sprintf("%x", sum.Sum(nil))}
	if isDigest && got.Hex != hex {
		return nil, fmt.Errorf("%s sent something else, of digest %s", r.repo.RegistryStr(), got)
	}
	kind := mediaType(raw, types.MediaType(response.Header.Get("Content-Type")))
	return &resolvedManifest{v1.Descriptor{MediaType: kind, Digest: got, Size: int64(len(raw))}, raw}, nil
}

// mediaType returns the media type that a manifest names itself, or else the one of its description.
func mediaType(raw []byte, described types.MediaType) types.MediaType {
	var named struct {
		MediaType types.MediaType `json:"mediaType"`
	}
	_ = json.Unmarshal(raw, &named) // whoever uses the manifest reports it
	return cmp.Or(named.MediaType, described)
}

// Referrers implements Store. Where the registry has no referrers API, they are in an index with the tag sha256-HEX.
func (r *registryStore) Referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, error) {
	listed, hasAPI, err := r.listReferrers(ctx, digest)
	if err != nil || hasAPI {
		return listed, err
	}
	return r.fallbackReferrers(ctx, digest)
}

// referrersCodes are the answers of registries with a referrers API, and of those without one.
var referrersCodes = []int{
	http.StatusOK, http.StatusNotFound, http.StatusBadRequest, http.StatusNotAcceptable, http.StatusMethodNotAllowed,
	http.StatusGone, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented,
}

// listReferrers asks the referrers API, and reports whether the registry has one.
func (r *registryStore) listReferrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, bool, error) {
	var all []v1.Descriptor
	address := r.address("referrers/%s", digest)
	for pages := 0; address != "" && pages < maxReferrers; pages++ {
		raw, response, err := r.read(ctx, address, string(types.OCIImageIndex), referrersCodes...)
		if err != nil {
			return nil, false, err
		}
		kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
		if response.StatusCode != http.StatusOK || types.MediaType(kind) != types.OCIImageIndex {
			return nil, false, nil
		}
		var page v1.IndexManifest
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, false, fmt.Errorf("list of referrers: %w", err)
		}
		if all = append(all, page.Manifests...); len(all) > maxReferrers {
			return nil, false, SizeError(fmt.Sprintf("%s has more than %d referrers, which is the limit", digest,
				maxReferrers))
		}
		address = nextPage(response)
	}
	return all, true, nil
}

// maxReferrers bounds the referrers of one manifest.
const maxReferrers = 1000

// nextPage returns the address in the Link header of a response, or "".
func nextPage(response *http.Response) string {
	link, isNext := strings.CutSuffix(strings.ReplaceAll(response.Header.Get("Link"), " ", ""), `>;rel="next"`)
	next, err := response.Request.URL.Parse(strings.TrimPrefix(link, "<"))
	if !isNext || err != nil {
		return ""
	}
	return next.String()
}

// fallbackTag returns the tag of the index with the referrers of a manifest.
func fallbackTag(digest v1.Hash) string { return digest.Algorithm + "-" + digest.Hex }

func (r *registryStore) fallbackReferrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, error) {
	got, err := r.fetch(ctx, fallbackTag(digest))
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(got.raw, &index); err != nil {
		return nil, fmt.Errorf("list of referrers: %w", err)
	}
	return index.Manifests, nil
}

// Close implements Store.
func (r *registryStore) Close() error {
	r.base.CloseIdleConnections()
	return nil
}

// HTTPClient returns a client that uses the proxy of the environment, and trusts the authorities of SSL_CERT_FILE
// beside those of the system. Unless insecure is set, it refuses plain http.
func HTTPClient(insecure bool) (*http.Client, error) {
	return httpClient(insecure, answerTime, (&net.Dialer{Timeout: dialTimeout}).DialContext)
}

// A dialFunc opens connections.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

const (
	dialTimeout = 30 * time.Second
	answerTime  = time.Minute
	storeTime   = 5 * time.Minute // registries may copy a large blob to its place before they answer
)

// httpClient returns a client with a transport of its own, so that its connections can be closed.
func httpClient(insecure bool, maxWait time.Duration, dial dialFunc) (*http.Client, error) {
	transport := &http.Transport{
		DialContext:           dial,
		Proxy:                 http.ProxyFromEnvironment,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: maxWait,
		IdleConnTimeout:       90 * time.Second,
	}
	client := &http.Client{Transport: attemptMarker{transport, insecure}}
	// Go reads SSL_CERT_FILE on Linux only, where it replaces the system's authorities.
	// Here it is added to them on all systems, as explain advises.
	file := os.Getenv("SSL_CERT_FILE")
	switch {
	case insecure:
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		return client, nil
	case file == "":
		return client, nil
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
	return client, nil
}

type plainHTTPError struct{ host string }

func (p plainHTTPError) Error() string {
	return p.host + " answers only plain http, which needs --insecure"
}
