package sigstore

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/signature/simplesigning"
)

// Attach signs a claim about an image, and adds the signature to those under the tag of the image's signatures. It
// takes the place of an earlier one of the same key and reference.
func (k *PrivateKey) Attach(ctx context.Context, images oci.Target, claim simplesigning.Claim) error {
	digest, err := v1.NewHash(claim.Digest)
	if err != nil {
		return err
	}
	text := claim.Text(simplesigning.Cosign)
	signature, err := k.Sign(text)
	if err != nil {
		return err
	}
	layer, err := oci.PutContent(ctx, images, simpleSigningType, text)
	if err != nil {
		return err
	}
	layer.Annotations = map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(signature)}
	for range maxTries {
		exists, err := k.addLayer(ctx, images, digest, layer, claim)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", attachmentTag(digest), err)
		case exists:
			return nil
		}
	}
	return fmt.Errorf("%s: others write to it at the same time: sign again", attachmentTag(digest))
}

// maxTries limits how often a signature is added again because somebody else has written to the tag.
const maxTries = 5

// addLayer adds a signature to the tag of an image's signatures, and reports whether it is there afterwards: a registry
// has no way to change a tag only if nobody else did.
func (k *PrivateKey) addLayer(ctx context.Context, images oci.Target, digest v1.Hash, layer v1.Descriptor,
	claim simplesigning.Claim) (exists bool, err error) {
	manifest, err := attachmentManifest(ctx, images, digest)
	if err != nil {
		return false, err
	}
	layers := append(k.withoutEarlier(ctx, images, manifest.Layers, claim), layer)
	if len(layers) > maxSignatures {
		return false, fmt.Errorf("it has %d signatures already, which is the limit: delete the tag, and sign again",
			maxSignatures)
	}
	config := v1.ConfigFile{Created: v1.Time{Time: claim.Time}}
	if err := oci.PutAttachment(ctx, images, layers, config, attachmentTag(digest)); err != nil {
		return false, err
	}
	manifest, err = attachmentManifest(ctx, images, digest)
	return slices.ContainsFunc(manifest.Layers, func(item v1.Descriptor) bool {
		return item.Annotations[signatureAnnotation] == layer.Annotations[signatureAnnotation]
	}), err
}

// withoutEarlier returns layers without signatures of the key with the reference of a claim. Those that can't be read
// are of others.
func (k *PrivateKey) withoutEarlier(ctx context.Context, images oci.Store, layers []v1.Descriptor,
	claim simplesigning.Claim) (kept []v1.Descriptor) {
	for _, layer := range layers {
		text, _ := readBlob(ctx, images, layer, maxText)
		parsed, err := simplesigning.Parse(text, simplesigning.Cosign)
		signature, _ := base64.StdEncoding.DecodeString(layer.Annotations[signatureAnnotation])
		isOurs, _ := k.public.verify(text, signature)
		if err != nil || !isOurs || parsed.Reference != claim.Reference {
			kept = append(kept, layer)
		}
	}
	return kept
}

// AddBundle signs a claim about an image, and adds a manifest with the signature, whose subject is the image.
func (k *PrivateKey) AddBundle(ctx context.Context, images oci.Target, image v1.Descriptor,
	claim simplesigning.Claim) error {
	earlier, err := findBundles(ctx, images, image.Digest)
	if err != nil {
		return fmt.Errorf("earlier bundles: %w", err)
	}
	earlier = slices.DeleteFunc(earlier, func(s Signature) bool { return s.Format == Attestation })
	if len(earlier) >= maxSignatures {
		return fmt.Errorf("the image has %d bundles already, which is the limit: delete old ones, and sign again",
			maxSignatures)
	}
	payload, err := json.Marshal(statement{
		Type: statementType, Subject: []subject{{map[string]string{image.Digest.Algorithm: image.Digest.Hex}}},
		PredicateType: predicateType,
		Predicate:     predicate{claim.Reference, "runlevel", claim.Timestamp()},
	})
	if err != nil {
		return err
	}
	text, err := k.Bundle(payload)
	if err != nil {
		return err
	}
	layer, err := oci.PutContent(ctx, images, bundleType, text)
	if err != nil {
		return err
	}
	return oci.PutImage(ctx, images, v1.Manifest{
		ArtifactType: string(bundleType),
		Config:       v1.Descriptor{MediaType: oci.EmptyType},
		Layers:       []v1.Descriptor{layer},
		Subject:      &v1.Descriptor{MediaType: image.MediaType, Digest: image.Digest, Size: image.Size},
		Annotations: map[string]string{
			"org.opencontainers.image.created": claim.Time.UTC().Format(time.RFC3339),
			"dev.sigstore.bundle.content":      "dsse-envelope",
			predicateAnnotation:                predicateType,
		},
	}, struct{}{}, "")
}
