package copy

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/runlevel/runlevel/internal/oci"
)

// HasAttachment reports whether a target has all signatures of a manifest with a tag of cosign. It may have others.
func HasAttachment(ctx context.Context, target oci.Store, m Manifest) (bool, error) {
	_, hasAll, err := compareLayers(ctx, target, m)
	return hasAll, err
}

// compareLayers returns the layers that only the target has under a tag of cosign, such as signatures of the copy, and
// whether it has those of the manifest. Signatures of the same text differ only in their annotations.
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
	return false, oci.PutAttachment(ctx, j.target, slices.Concat(m.layers, theirs), v1.ConfigFile{}, m.Tag)
}
