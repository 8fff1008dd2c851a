package info

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Size is the compressed size of all images together, for one platform. A layer of several images counts once.
type Size struct {
	Platform string `json:"platform"`
	Layers   int    `json:"layers"`
	Bytes    int64  `json:"bytes"`
}

// An ImageSize is the compressed size of an image.
type ImageSize struct {
	Layers   int   `json:"layers"`
	Bytes    int64 `json:"bytes"`
	OwnBytes int64 `json:"ownBytes"` // bytes of layers that no other image of the release has
}

const (
	maxRequests = 8       // images that are read at the same time
	maxLayer    = 1 << 40 // bytes of a layer; a larger number can't be true, and sums would overflow
)

// layerSizes are the sizes of the layers of an image.
type layerSizes map[v1.Hash]int64

// AddSizes reads the sizes of all images from their registries, or from mirrors. An image that can't be read has none.
func (i *Info) AddSizes(ctx context.Context, options source.Options) error {
	platform, err := source.ParsePlatform(options.Platform)
	if err != nil {
		return err
	}
	reader := &sizeReader{options: options, platform: platform, stores: map[name.Repository]oci.Store{}}
	defer reader.close()
	layers, failures := make([]layerSizes, len(i.Images)), make([]error, len(i.Images))
	var all errgroup.Group
	all.SetLimit(maxRequests)
	for n, image := range i.Images {
		all.Go(func() error {
			layers[n], failures[n] = reader.readFirst(ctx, image.Image)
			return context.Cause(ctx)
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	for n, err := range failures {
		if err != nil {
			i.Unreadable = append(i.Unreadable,
				printable.Line(fmt.Sprintf("size of image %s: %v", i.Images[n].Name, err)))
		}
	}
	i.sumUp(layers, platform)
	return nil
}

// A sizeReader reads manifests. It keeps repositories open, because the images of a release are often in few.
type sizeReader struct {
	options  source.Options
	platform v1.Platform
	mu       sync.Mutex
	stores   map[name.Repository]oci.Store
}

func (r *sizeReader) close() {
	for _, store := range r.stores {
		_ = store.Close() // nothing was written
	}
}

// readFirst reads an image from the first of its locations that has it.
func (r *sizeReader) readFirst(ctx context.Context, image string) (layerSizes, error) {
	var failures error
	for _, ref := range r.options.Mirrors.Locations(image) {
		layers, err := r.read(ctx, ref)
		if err == nil || ctx.Err() != nil {
			return layers, err
		}
		failures = errors.Join(failures, fmt.Errorf("%s: %w", ref, err))
	}
	return nil, failures
}

func (r *sizeReader) read(ctx context.Context, ref string) (layerSizes, error) {
	location, err := oci.ParseRegistry(ref, r.options.Insecure)
	if err != nil {
		return nil, err
	}
	store, err := r.open(ctx, location)
	if err != nil {
		return nil, err
	}
	found, err := store.Resolve(ctx, location.Identifier)
	if err != nil {
		return nil, err
	}
	image, err := oci.FindImage(ctx, store, found, r.platform)
	if err != nil {
		return nil, err
	}
	layers := layerSizes{}
	for _, layer := range image.Layers {
		if layer.Size < 0 || layer.Size > maxLayer {
			return nil, errors.New("its manifest has a layer of an impossible size")
		}
		layers[layer.Digest] = layer.Size
	}
	return layers, nil
}

func (r *sizeReader) open(ctx context.Context, location oci.Location) (oci.Store, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if store := r.stores[location.Repository]; store != nil {
		return store, nil
	}
	store, err := oci.Open(ctx, location, oci.Options{Insecure: r.options.Insecure})
	if err == nil {
		r.stores[location.Repository] = store
	}
	return store, err
}

// sumUp adds the sizes of images by their layers.
func (i *Info) sumUp(layers []layerSizes, platform v1.Platform) {
	i.Size = &Size{Platform: platform.String()}
	users := map[v1.Hash]int{}
	for _, image := range layers {
		for digest, size := range image {
			if users[digest]++; users[digest] == 1 {
				i.Size.Layers++
				i.Size.Bytes += size
			}
		}
	}
	for n, image := range layers {
		if image == nil {
			continue
		}
		total := &ImageSize{Layers: len(image)}
		for digest, size := range image {
			total.Bytes += size
			if users[digest] == 1 {
				total.OwnBytes += size
			}
		}
		i.Images[n].Size = total
	}
}
