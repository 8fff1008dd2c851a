package cli

import (
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/source"
)

// An earlier is what was read before. What is the same still need not be read again, and
// an image need not be pulled again. A nil one keeps nothing.
type earlier struct {
	images   map[string]*source.Release
	payloads map[string]*payload.Payload
}

func newEarlier() *earlier {
	return &earlier{images: map[string]*source.Release{}, payloads: map[string]*payload.Payload{}}
}

// payload is what was read of something; nil if nothing was.
func (e *earlier) payload(ref string) *payload.Payload {
	if e == nil {
		return nil
	}
	return e.payloads[ref]
}

// keep keeps what was read of something.
func (e *earlier) keep(ref string, read *payload.Payload) {
	if e != nil {
		e.payloads[ref] = read
	}
}

// image is an image that was pulled; nil if it was not.
func (e *earlier) image(ref string) *source.Release {
	if e == nil {
		return nil
	}
	return e.images[ref]
}

// keepImage keeps an image that was pulled. Whoever opened it must not close it then;
// there is no more of it than memory.
func (e *earlier) keepImage(ref string, release *source.Release) *source.Release {
	if e == nil || release.Kind != source.Image {
		return release
	}
	e.images[ref] = &source.Release{FS: release.FS, Kind: release.Kind, Image: release.Image, Digest: release.Digest}
	return e.images[ref]
}
