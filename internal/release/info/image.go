package info

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// The digest of the image that a release was added to: a label of upstream, and an annotation of OCI.
const (
	baseLabel      = "io.openshift.release.base-image-digest"
	baseAnnotation = "org.opencontainers.image.base.digest"
)

// An Attachment is a manifest that refers to the image of the release, such as an SBOM.
type Attachment struct {
	Type   string `json:"type,omitempty"` // type of the artifact
	Digest string `json:"digest"`
}

// A Signature is a signature beside the image of the release. It is not verified.
type Signature struct {
	Format    sigstore.Format      `json:"format"`
	Key       string               `json:"key,omitempty"`     // only bundles name it
	Created   string               `json:"created,omitempty"` // as the signer claims
	Consumers []signature.Consumer `json:"consumers"`         // that read the format
	Problem   string               `json:"problem,omitempty"` // why it can't be read
}

// consumers are the programs that read the formats.
var consumers = map[sigstore.Format][]signature.Consumer{
	sigstore.Attachment: {signature.Operator, signature.CRIO, signature.Cosign2},
	sigstore.Bundle:     {signature.Operator, signature.Cosign3},
}

// AddImage adds what the image of a release says about it, and what is attached to the image. It does nothing for a
// release that is not an image.
func (i *Info) AddImage(ctx context.Context, location oci.Location, options source.Options) (err error) {
	if location == (oci.Location{}) {
		return nil
	}
	platform, err := source.ParsePlatform(options.Platform)
	if err != nil {
		return err
	}
	store, err := oci.Open(ctx, location, oci.Options{Insecure: options.Insecure})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	root, err := store.Resolve(ctx, location.Identifier)
	if err != nil {
		return err
	}
	if err := i.addConfig(ctx, store, root, platform); err != nil {
		return err
	}
	if err := i.addAttachments(ctx, store, root.Digest); err != nil && ctx.Err() == nil {
		i.Unreadable = append(i.Unreadable, "what is attached to the image: "+printable.Line(err.Error()))
	}
	return context.Cause(ctx)
}

func (i *Info) addAttachments(ctx context.Context, store oci.Store, digest v1.Hash) error {
	referrers, err := store.Referrers(ctx, digest)
	if err != nil {
		return err
	}
	for _, referrer := range referrers {
		i.Attached = append(i.Attached, Attachment{referrer.ArtifactType, referrer.Digest.String()})
	}
	signatures, err := sigstore.Find(ctx, store, digest.String())
	for _, found := range signatures {
		if found.Format == sigstore.Attestation {
			continue
		}
		added := Signature{Format: found.Format, Key: found.Hint, Consumers: consumers[found.Format]}
		if found.Err != nil {
			added.Problem = found.Err.Error()
		}
		if !found.Claim.Time.IsZero() {
			added.Created = found.Claim.Time.UTC().Format(time.RFC3339)
		}
		i.Signatures = append(i.Signatures, added)
	}
	return err
}

// addConfig adds what the index of the image and the config for a platform have.
func (i *Info) addConfig(ctx context.Context, store oci.Store, root v1.Descriptor, platform v1.Platform) error {
	raw, err := store.Manifest(ctx, root)
	if err != nil {
		return err
	}
	image, err := oci.FindImage(ctx, store, root, platform)
	if err != nil {
		return err
	}
	text, err := oci.ReadBlob(ctx, store, image.Config)
	if err != nil {
		return fmt.Errorf("config %s: %w", image.Config.Digest, err)
	}
	var index v1.IndexManifest
	var config v1.ConfigFile
	if err := errors.Join(json.Unmarshal(raw, &index), json.Unmarshal(text, &config)); err != nil {
		return fmt.Errorf("config %s: %w", image.Config.Digest, err)
	}
	if !config.Created.IsZero() {
		i.Created = config.Created.UTC().Format(time.RFC3339)
	}
	for _, described := range append(index.Manifests, v1.Descriptor{Platform: config.Platform()}) {
		if p := described.Platform; p != nil && p.OS != "" && p.OS != "unknown" {
			i.Platforms = sortedOnce(append(i.Platforms, p.String()))
		}
	}
	i.BaseDigest = cmp.Or(config.Config.Labels[baseLabel], image.Annotations[baseAnnotation])
	return nil
}
