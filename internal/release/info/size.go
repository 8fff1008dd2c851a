package info

import (
	"context"
	"fmt"

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
	from := &source.Repositories{Options: options}
	layers, failures := make([]layerSizes, len(i.Images)), make([]error, len(i.Images))
	var all errgroup.Group
	all.SetLimit(maxRequests)
	for n, image := range i.Images {
		all.Go(func() error {
			layers[n], failures[n] = readLayers(ctx, from, image.Image, platform)
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

// readLayers reads the sizes of the layers of an image.
func readLayers(ctx context.Context, from *source.Repositories, image string, platform v1.Platform) (
	layerSizes, error) {
	store, found, err := from.Find(ctx, image)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", image, err)
	}
	defer store.Close()
	manifest, err := oci.FindImage(ctx, store, found, platform)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", image, err)
	}
	layers := layerSizes{}
	for _, layer := range manifest.Layers {
		if layer.Size < 0 || layer.Size > maxLayer {
			return nil, fmt.Errorf("%s: its manifest has a layer of an impossible size", image)
		}
		layers[layer.Digest] = layer.Size
	}
	return layers, nil
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
