// Package oci reads and writes images as their parts, manifests and blobs with digests, wherever they are: in a
// registry, in the folder of an OCI image layout, or in an archive of one.
//
// The content of a store isn't trusted: manifests are bounded and compared with their digests, and readers of blobs
// compare them by a DigestReader. The package knows nothing about releases: package source reads the files of one.
//
// Start with Open.
package oci

import (
	"context"
	"errors"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// ErrNotFound is wrapped by the error for an image, manifest or blob that a store doesn't have.
var ErrNotFound = errors.New("not found")

// A Reader reads the parts of images.
type Reader interface {
	// Manifest returns a manifest or an index. It has the digest of its descriptor.
	Manifest(ctx context.Context, described v1.Descriptor) ([]byte, error)
	// Blob returns the content of a blob from an offset on. The caller compares it with its digest.
	Blob(ctx context.Context, described v1.Descriptor, offset int64) (io.ReadCloser, error)
}

// A Store has the manifests and blobs of images: a repository of a registry, or a layout or archive on disk.
type Store interface {
	Reader
	io.Closer
	// Resolve returns the descriptor of a tag or digest. In a layout or archive, "" is the only image.
	Resolve(ctx context.Context, identifier string) (v1.Descriptor, error)
	// Referrers returns the manifests that have a digest as their subject, such as signatures.
	Referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, error)
}

// A Target is a Store that can be written.
type Target interface {
	Store
	// HasBlob reports whether the target has a blob.
	HasBlob(ctx context.Context, described v1.Descriptor) (bool, error)
	// PutBlob writes a blob, and compares it with its digest. It calls open again with another offset to continue after
	// a failure.
	PutBlob(ctx context.Context, described v1.Descriptor, open func(offset int64) (io.ReadCloser, error)) error
	// PutManifest writes a manifest with a tag, its digest for one without a tag, or "" for a part of an index, which
	// layouts don't list. Its parts must be there before. A manifest with a subject becomes a referrer of it.
	PutManifest(ctx context.Context, described v1.Descriptor, raw []byte, tag string) error
	// Commit makes all that was written visible in a layout or archive.
	Commit(ctx context.Context) error
}
