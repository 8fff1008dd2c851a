package copy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/oci"
)

const (
	maxNesting   = 6        // manifests in indexes, and referrers of referrers
	maxManifests = 10_000   // of one image
	maxPlan      = 64 << 20 // bytes of all manifests: they are kept until they are written
)

// cosignTags are the ends of cosign's tags for signatures, attestations and SBOMs. They begin with the digest.
var cosignTags = []string{".sig", ".att", ".sbom"}

// A manifest is a manifest to write.
type manifest struct {
	described v1.Descriptor
	raw       []byte
	tag       string
	isChild   bool // an index names it
}

// A plan has the parts to copy.
type plan struct {
	manifests  []manifest // those that others name first
	blobs      []v1.Descriptor
	known      map[v1.Hash]bool // manifests
	knownBlobs map[v1.Hash]bool
	size       int64 // bytes of the manifests
}

func newPlan() *plan { return &plan{known: map[v1.Hash]bool{}, knownBlobs: map[v1.Hash]bool{}} }

// find plans a manifest, everything below it, and its referrers.
func (j *job) find(ctx context.Context, m manifest, depth int) error {
	digest := m.described.Digest
	if j.plan.known[digest] && m.tag == "" {
		return nil
	}
	if depth > maxNesting {
		return fmt.Errorf("manifest %s: manifests are nested more than %d deep", digest, maxNesting)
	}
	raw, err := j.from.Manifest(ctx, m.described)
	if err != nil {
		return err
	}
	m.raw, m.described.Size = raw, int64(len(raw))
	if j.plan.size += m.described.Size; j.plan.size > maxPlan || len(j.plan.manifests) >= maxManifests {
		return oci.SizeError(fmt.Sprintf("it has more than %d manifests, or more than %s of them, which is the limit",
			maxManifests, oci.InBytes(maxPlan)))
	}
	children, err := j.plan.addParts(m)
	if err != nil {
		return fmt.Errorf("manifest %s %w", digest, err)
	}
	j.plan.known[digest] = true
	for _, child := range children {
		if err := j.find(ctx, manifest{described: child, isChild: true}, depth+1); err != nil {
			return err
		}
	}
	j.plan.manifests = append(j.plan.manifests, m)
	if j.options.Referrers {
		return j.findReferrers(ctx, digest, depth)
	}
	return nil
}

// addParts plans the blobs of a manifest, and returns the manifests of an index.
func (p *plan) addParts(m manifest) ([]v1.Descriptor, error) {
	var parts struct {
		SchemaVersion int64           `json:"schemaVersion"`
		MediaType     types.MediaType `json:"mediaType"`
		Config        v1.Descriptor   `json:"config"`
		Layers        []v1.Descriptor `json:"layers"`
		Manifests     []v1.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(m.raw, &parts); err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	kind := m.described.MediaType
	if parts.MediaType != "" {
		kind = parts.MediaType
	}
	switch {
	case parts.SchemaVersion == 1 || kind.IsSchema1():
		return nil, errors.New("is of Docker's schema 1, which is not supported: build the image with a current tool")
	case kind.IsIndex():
		return parts.Manifests, nil
	case !kind.IsImage():
		return nil, fmt.Errorf("is of type %q, which is neither an image nor an index of some", kind)
	}
	for _, blob := range append([]v1.Descriptor{parts.Config}, parts.Layers...) {
		if blob.Size < 0 || blob.Digest.Hex == "" {
			return nil, errors.New("names a part without a digest or with a negative size")
		}
		if !p.knownBlobs[blob.Digest] {
			p.knownBlobs[blob.Digest] = true
			p.blobs = append(p.blobs, blob)
		}
	}
	return nil, nil
}

// findReferrers plans the manifests about a manifest: its referrers, and those with cosign's tags for its digest.
func (j *job) findReferrers(ctx context.Context, digest v1.Hash, depth int) error {
	referrers, err := j.from.Referrers(ctx, digest)
	if err != nil {
		return fmt.Errorf("referrers of %s: %w", digest, err)
	}
	for _, described := range referrers {
		if err := j.find(ctx, manifest{described: described}, depth+1); err != nil {
			return err
		}
	}
	for _, end := range cosignTags {
		tag := digest.Algorithm + "-" + digest.Hex + end
		described, err := j.from.Resolve(ctx, tag)
		if errors.Is(err, oci.ErrNotFound) {
			continue
		}
		if err == nil {
			err = j.find(ctx, manifest{described: described, tag: tag}, depth+1)
		}
		if err != nil {
			return fmt.Errorf("tag %s: %w", tag, err)
		}
	}
	return nil
}
