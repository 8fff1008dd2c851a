package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
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

// PutAttachment writes an image with signatures to a tag of cosign, as cosign does: the config lists all layers.
func PutAttachment(ctx context.Context, target Target, layers []v1.Descriptor, config v1.ConfigFile, tag string) error {
	config.RootFS.Type = "layers"
	for _, layer := range layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, layer.Digest)
		config.History = append(config.History, v1.History{})
	}
	manifest := v1.Manifest{Config: v1.Descriptor{MediaType: types.OCIConfigJSON}, Layers: layers}
	return PutImage(ctx, target, manifest, config, tag)
}

// PutImage writes a manifest and its config, whose type the manifest has already.
func PutImage(ctx context.Context, target Target, manifest v1.Manifest, config any, tag string) error {
	content, err := json.Marshal(config)
	if err != nil {
		return err
	}
	manifest.SchemaVersion, manifest.MediaType = 2, types.OCIManifestSchema1
	if manifest.Config, err = PutContent(ctx, target, manifest.Config.MediaType, content); err != nil {
		return err
	}
	raw, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	described, err := describeContent(manifest.MediaType, raw)
	if err != nil {
		return err
	}
	described.ArtifactType = manifest.ArtifactType
	return target.PutManifest(ctx, described, raw, tag)
}

// PutContent writes a small blob.
func PutContent(ctx context.Context, target Target, kind types.MediaType, content []byte) (v1.Descriptor, error) {
	described, err := describeContent(kind, content)
	if err != nil {
		return described, err
	}
	return described, target.PutBlob(ctx, described, func(offset int64) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content[min(offset, described.Size):])), nil
	})
}

func describeContent(kind types.MediaType, content []byte) (v1.Descriptor, error) {
	digest, size, err := v1.SHA256(bytes.NewReader(content))
	return v1.Descriptor{MediaType: kind, Digest: digest, Size: size}, err
}
