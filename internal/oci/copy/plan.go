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

// artifactManifest is the type of manifests that a draft of OCI 1.1 had for signatures and SBOMs.
const artifactManifest types.MediaType = "application/vnd.oci.artifact.manifest.v1+json"

// cosignTags are the ends of cosign's tags for signatures, attestations and SBOMs. They begin with the digest.
var cosignTags = []string{".sig", ".att", ".sbom"}

// A Manifest is a manifest to copy.
type Manifest struct {
	v1.Descriptor
	Tag     string
	Subject *v1.Descriptor // the manifest that it is about, such as the signed one; nil for none
	IsChild bool           // an index names it
	// IsAttachment: it has signatures under a tag of cosign, where the target may have others.
	IsAttachment bool

	raw    []byte
	layers []v1.Descriptor
}

// A Plan has the parts of an image, with those of the manifests about it.
type Plan struct {
	Manifests []Manifest // those that others name first, and those about a manifest before it
	Blobs     []v1.Descriptor
	Notes     []string // what is not copied, since the source only names it

	from       oci.Store
	options    Options
	known      map[v1.Hash]bool // manifests
	knownBlobs map[v1.Hash]bool
	size       int64 // bytes of the manifests
}

// Find finds the parts of an image, or of an index with everything below it.
func Find(ctx context.Context, from oci.Store, described v1.Descriptor, options Options) (*Plan, error) {
	oci.BePatient(from)
	p := &Plan{from: from, options: options, known: map[v1.Hash]bool{}, knownBlobs: map[v1.Hash]bool{}}
	return p, p.find(ctx, Manifest{Descriptor: described, Tag: options.Tag}, 0)
}

// AddTag adds a tag for the image.
func (p *Plan) AddTag(tag string) {
	image := p.Manifests[len(p.Manifests)-1]
	if image.Tag == "" {
		p.Manifests = p.Manifests[:len(p.Manifests)-1]
	}
	image.Tag = tag
	p.Manifests = append(p.Manifests, image)
}

// find plans a manifest, everything below it, and its referrers.
func (p *Plan) find(ctx context.Context, m Manifest, depth int) error {
	digest := m.Digest
	if ctx.Err() != nil || p.known[digest] && m.Tag == "" {
		return ctx.Err()
	}
	if depth > maxNesting {
		return fmt.Errorf("manifest %s: manifests are nested more than %d deep", digest, maxNesting)
	}
	raw, err := p.from.Manifest(ctx, m.Descriptor)
	if err != nil {
		return err
	}
	m.raw, m.Size = raw, int64(len(raw))
	if p.size += m.Size; p.size > maxPlan || len(p.Manifests) >= maxManifests {
		return oci.SizeError(fmt.Sprintf("it has more than %d manifests, or more than %s of them, which is the limit",
			maxManifests, oci.InBytes(maxPlan)))
	}
	children, err := p.addParts(&m)
	if err != nil {
		return fmt.Errorf("manifest %s %w", digest, err)
	}
	m.IsAttachment = m.IsAttachment && len(m.layers) > 0
	p.known[digest] = true
	for _, child := range children {
		if err := p.find(ctx, Manifest{Descriptor: child, IsChild: true}, depth+1); err != nil {
			return err
		}
	}
	if p.options.Referrers {
		if err := p.findReferrers(ctx, digest, depth); err != nil {
			return err
		}
	}
	p.Manifests = append(p.Manifests, m) // after its signatures: who finds the image may want them
	return nil
}

// addParts plans the blobs of a manifest, and returns the manifests of an index.
func (p *Plan) addParts(m *Manifest) ([]v1.Descriptor, error) {
	var parts struct {
		SchemaVersion int64           `json:"schemaVersion"`
		MediaType     types.MediaType `json:"mediaType"`
		Config        *v1.Descriptor  `json:"config"`
		Layers        []v1.Descriptor `json:"layers"`
		Blobs         []v1.Descriptor `json:"blobs"` // of an artifact
		Manifests     []v1.Descriptor `json:"manifests"`
		Subject       *v1.Descriptor  `json:"subject"`
	}
	if err := json.Unmarshal(m.raw, &parts); err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	m.Subject, m.layers = parts.Subject, parts.Layers
	kind := m.MediaType
	if parts.MediaType != "" {
		kind = parts.MediaType
	}
	switch {
	case parts.SchemaVersion == 1 || kind.IsSchema1():
		return nil, errors.New("is of Docker's schema 1, which is not supported: build the image with a current tool")
	case kind.IsIndex():
		return parts.Manifests, nil
	case kind == artifactManifest:
		parts.Layers = parts.Blobs
	case !kind.IsImage():
		return nil, fmt.Errorf("is of type %q, which is neither an image nor an index of some", kind)
	case parts.Config == nil:
		return nil, errors.New("names no config")
	default:
		parts.Layers = append([]v1.Descriptor{*parts.Config}, parts.Layers...)
	}
	for _, blob := range parts.Layers {
		if blob.Size < 0 || blob.Digest.Hex == "" {
			return nil, errors.New("names a part without a digest or with a negative size")
		}
		if !p.knownBlobs[blob.Digest] {
			p.knownBlobs[blob.Digest] = true
			p.Blobs = append(p.Blobs, blob)
		}
	}
	return nil, nil
}

// findReferrers plans the manifests about a manifest: its referrers, and those with cosign's tags for its digest.
func (p *Plan) findReferrers(ctx context.Context, digest v1.Hash, depth int) error {
	referrers, err := p.from.Referrers(ctx, digest)
	if err != nil {
		return fmt.Errorf("referrers of %s: %w", digest, err)
	}
	for _, described := range referrers {
		err := p.find(ctx, Manifest{Descriptor: described}, depth+1)
		if errors.Is(err, oci.ErrNotFound) {
			p.Notes = append(p.Notes,
				fmt.Sprintf("referrer %s of %s is listed, but not there", described.Digest, digest))
		} else if err != nil {
			return err
		}
	}
	for _, end := range cosignTags {
		tag := digest.Algorithm + "-" + digest.Hex + end
		described, err := p.from.Resolve(ctx, tag)
		if errors.Is(err, oci.ErrNotFound) {
			continue
		}
		if err == nil {
			err = p.find(ctx, Manifest{Descriptor: described, Tag: tag, IsAttachment: true}, depth+1)
		}
		if err != nil {
			return fmt.Errorf("tag %s: %w", tag, err)
		}
	}
	return nil
}
