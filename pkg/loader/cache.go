package loader

import "github.com/runlevel/runlevel/pkg/source"

// An ImageCache keeps the images that were pulled, by their source, so that each is pulled once. A nil ImageCache
// keeps nothing.
type ImageCache struct {
	images map[string]*source.Release
}

// NewImageCache returns an empty cache.
func NewImageCache() *ImageCache { return &ImageCache{images: map[string]*source.Release{}} }

func (c *ImageCache) image(ref string) *source.Release {
	if c == nil {
		return nil
	}
	return c.images[ref]
}

// addImage keeps an image that was pulled, and returns a release that stays open: all of it is in memory.
func (c *ImageCache) addImage(ref string, release *source.Release) *source.Release {
	if c == nil || release.Kind != source.Image {
		return release
	}
	c.images[ref] = &source.Release{FS: release.FS, Kind: release.Kind, Image: release.Image, Digest: release.Digest}
	return c.images[ref]
}
