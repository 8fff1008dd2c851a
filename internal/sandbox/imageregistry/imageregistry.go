// Package imageregistry runs a registry of images on this machine, and keeps them in memory: for the demo, and for
// tests that pull a release.
//
// It has no users, and deletes all images when it is closed. The registry of real nodes is in package
// realnode/registries.
//
// Start with Start and StartTLS.
package imageregistry

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A Registry serves images until it is closed.
type Registry struct {
	Host   string // and port
	server *httptest.Server
}

// Start starts a registry that speaks plain http.
func Start() *Registry {
	server := httptest.NewServer(handler())
	return &Registry{Host: strings.TrimPrefix(server.URL, "http://"), server: server}
}

// StartTLS starts a registry with its own certificate.
func StartTLS() *Registry {
	server := httptest.NewUnstartedServer(handler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	return &Registry{Host: strings.TrimPrefix(server.URL, "https://"), server: server}
}

func handler() http.Handler { return registry.New(registry.Logger(log.New(io.Discard, "", 0))) }

// Close ends the registry.
func (r *Registry) Close() { r.server.Close() }

// Certificate returns the certificate of a registry that speaks TLS, as PEM.
func (r *Registry) Certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})
}

// Push pushes an image with these files to REPOSITORY:TAG, and returns its name with the digest.
func (r *Registry) Push(ctx context.Context, tagged string, files fs.FS) (name.Digest, error) {
	tag, err := name.NewTag(r.Host+"/"+tagged, name.Insecure)
	if err != nil {
		return name.Digest{}, err
	}
	image, err := ImageOf(files)
	if err != nil {
		return name.Digest{}, err
	}
	digest, err := image.Digest()
	if err != nil {
		return name.Digest{}, err
	}
	return tag.Digest(digest.String()),
		remote.Write(tag, image, remote.WithContext(ctx), remote.WithTransport(r.server.Client().Transport))
}

// ImageOf returns an image with all files in one layer.
func ImageOf(files fs.FS) (v1.Image, error) {
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	if err := archive.AddFS(files); err != nil {
		return nil, err
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return mutate.AppendLayers(empty.Image, static.NewLayer(layer.Bytes(), types.OCIUncompressedLayer))
}
