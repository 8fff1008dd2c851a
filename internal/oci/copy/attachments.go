package copy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/oci"
)

// HasAttachment reports whether a target has all signatures of a manifest with a tag of cosign. It may have others.
func HasAttachment(ctx context.Context, target oci.Store, m Manifest) (bool, error) {
	_, hasAll, err := compareLayers(ctx, target, m)
	return hasAll, err
}

// compareLayers returns the layers that only the target has under a tag of cosign, since somebody has signed the copy,
// and whether it has those of the manifest. Signatures of the same text differ only in their annotations.
func compareLayers(ctx context.Context, target oci.Store, m Manifest) (theirs []v1.Descriptor, hasAll bool, _ error) {
	existing, err := target.Resolve(ctx, m.Tag)
	var raw []byte
	if err == nil {
		raw, err = target.Manifest(ctx, existing)
	}
	if errors.Is(err, oci.ErrNotFound) || oci.IsWrong(err) {
		return nil, false, nil
	}
	if err != nil || existing.Digest == m.Digest {
		return nil, err == nil, err
	}
	var manifest v1.Manifest
	if json.Unmarshal(raw, &manifest) != nil {
		return nil, false, nil
	}
	return without(manifest.Layers, m.layers), len(without(m.layers, manifest.Layers)) == 0, nil
}

// without returns layers that others lack.
func without(layers, others []v1.Descriptor) []v1.Descriptor {
	return slices.DeleteFunc(slices.Clone(layers), func(layer v1.Descriptor) bool {
		return slices.ContainsFunc(others, func(other v1.Descriptor) bool { return reflect.DeepEqual(layer, other) })
	})
}

// writeAttachment writes a manifest with a tag of cosign, with the layers that the target has there. It reports whether
// the target had everything.
func (j *job) writeAttachment(ctx context.Context, m Manifest) (hasAll bool, _ error) {
	theirs, hasAll, err := compareLayers(ctx, j.target, m)
	switch {
	case err != nil || hasAll:
		return hasAll, err
	case len(theirs) == 0:
		return false, j.target.PutManifest(ctx, m.Descriptor, m.raw, m.Tag)
	}
	var manifest v1.Manifest
	if err := json.Unmarshal(m.raw, &manifest); err != nil {
		return false, err
	}
	manifest.Layers = append(manifest.Layers, theirs...)
	config := v1.ConfigFile{RootFS: v1.RootFS{Type: "layers"}} // as cosign writes it: with all layers
	for _, layer := range manifest.Layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, layer.Digest)
		config.History = append(config.History, v1.History{})
	}
	text, described, err := encode(config, manifest.Config.MediaType)
	if err != nil {
		return false, err
	}
	manifest.Config = described
	err = j.target.PutBlob(ctx, described, func(offset int64) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text[min(offset, described.Size):])), nil
	})
	if err != nil {
		return false, err
	}
	if text, described, err = encode(manifest, m.MediaType); err != nil {
		return false, err
	}
	return false, j.target.PutManifest(ctx, described, text, m.Tag)
}

func encode(content any, kind types.MediaType) ([]byte, v1.Descriptor, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return nil, v1.Descriptor{}, err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(text))
	return text, v1.Descriptor{MediaType: kind, Digest: digest, Size: size}, err
}
