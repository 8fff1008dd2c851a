package oci

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// maxNesting is the maximum depth of indexes in indexes.
const maxNesting = 4

// FindImage returns the manifest of the image for a platform: the described one, or one below the described index.
func FindImage(ctx context.Context, store Reader, described v1.Descriptor, platform v1.Platform) (*v1.Manifest, error) {
	for range maxNesting {
		raw, err := store.Manifest(ctx, described)
		if err != nil {
			return nil, err
		}
		var either struct {
			v1.Manifest
			Manifests []v1.Descriptor `json:"manifests"`
		}
		if err := json.Unmarshal(raw, &either); err != nil {
			return nil, fmt.Errorf("manifest %s: %w", described.Digest, err)
		}
		kind := described.MediaType
		if either.MediaType != "" {
			kind = either.MediaType
		}
		switch {
		case kind.IsImage():
			return &either.Manifest, nil
		case !kind.IsIndex():
			return nil, fmt.Errorf("manifest %s is of type %q, which is neither an image nor an index of some",
				described.Digest, kind)
		}
		if described, err = ChoosePlatform(either.Manifests, platform); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("indexes are nested more than %d deep", maxNesting)
}

// ReadBlob returns the content of a small blob, such as a config or a signature, which has the digest of its
// descriptor.
func ReadBlob(ctx context.Context, store Reader, described v1.Descriptor) ([]byte, error) {
	if described.Size > MaxManifest {
		return nil, SizeError("it has more than " + InBytes(MaxManifest) + ", which is the limit")
	}
	blob, err := store.Blob(ctx, described, 0)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	checked, err := NewDigestReader(Interruptible(ctx, blob), described)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(checked)
}
