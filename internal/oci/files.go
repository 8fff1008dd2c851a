package oci

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// EmptyType is the type of the configuration of a manifest without an image.
const EmptyType types.MediaType = "application/vnd.oci.empty.v1+json"

// titleAnnotation has the name of the file in a layer, as ORAS writes it.
const titleAnnotation = "org.opencontainers.image.title"

// PutFiles writes files as layers of a manifest. "oras pull" writes them to a folder again.
func PutFiles(ctx context.Context, target Target, kind string, files map[string][]byte, tag string) error {
	manifest := v1.Manifest{ArtifactType: kind, Config: v1.Descriptor{MediaType: EmptyType}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		layer, err := PutContent(ctx, target, "application/octet-stream", files[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		layer.Annotations = map[string]string{titleAnnotation: name}
		manifest.Layers = append(manifest.Layers, layer)
	}
	return PutImage(ctx, target, manifest, struct{}{}, tag)
}

// ErrNoFile is the error for a file without a layer.
var ErrNoFile = errors.New("no such file")

// maxFilesManifest limits a manifest of files: its descriptors take many times their size in memory.
const maxFilesManifest = mib

// ReadFile returns a file that PutFiles has written. The error is ErrNoFile if the manifest has none of that name.
func ReadFile(ctx context.Context, location Location, name string, options Options) (text []byte, err error) {
	store, err := Open(ctx, location, options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	described, err := store.Resolve(ctx, location.Identifier)
	if err != nil {
		return nil, err
	}
	if described.Size > maxFilesManifest {
		return nil, SizeError("its manifest has more than " + InBytes(maxFilesManifest) + ", which is the limit")
	}
	manifest, err := FindImage(ctx, store, described, v1.Platform{})
	if err != nil {
		return nil, err
	}
	for _, layer := range manifest.Layers {
		if layer.Annotations[titleAnnotation] == name {
			return ReadBlob(ctx, store, layer)
		}
	}
	return nil, ErrNoFile
}
