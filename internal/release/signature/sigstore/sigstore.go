// Package sigstore reads, verifies and writes the signatures that lie beside an image in its repository, in the two
// formats of cosign: attachments under the tag sha256-DIGEST.sig, and bundles that refer to the image. All are made
// with keys from files. Certificates, transparency logs and timestamps of authorities are not supported: they need
// services that a cluster without network access can't ask.
//
// Start with Find, and Signature.Verify; PrivateKey.Attach and PrivateKey.AddBundle sign.
package sigstore

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/signature/simplesigning"
)

// A Format is the format of a signature.
type Format string

// The formats.
const (
	Attachment Format = "cosign" // a layer of the image with the tag sha256-DIGEST.sig
	Bundle     Format = "bundle" // a manifest with the image as its subject

	// Attestation is the format of other bundles, such as of provenance. They are no signatures.
	Attestation Format = "attestation"
)

const (
	simpleSigningType types.MediaType = "application/vnd.dev.cosign.simplesigning.v1+json"
	bundleType        types.MediaType = "application/vnd.dev.sigstore.bundle.v0.3+json"

	signatureAnnotation = "dev.cosignproject.cosign/signature"
	predicateAnnotation = "dev.sigstore.bundle.predicateType"
)

// The limits for hostile registries: signatures of one format, and bytes of one signature.
const (
	maxSignatures = 50
	maxText       = 64 << 10
	maxBundle     = 256 << 10
)

// A Signature is a signature that was found. Its content is not verified before Verify.
type Signature struct {
	Format Format
	Name   string              // where it is in the repository
	Hint   string              // the key that a bundle names
	Claim  simplesigning.Claim // unverified, and perhaps about another image
	Err    error               // why the signature can't be read

	IsUnread bool // the registry did not send it, so that nodes read no attachment at all

	signed    []byte // nil if only its digest is signed
	signature []byte
}

// Find returns the signatures of an image. It returns those that it could read with an error if the registry fails, or
// if there are too many.
func Find(ctx context.Context, images oci.Store, image string) ([]Signature, error) {
	digest, err := v1.NewHash(image)
	if err != nil {
		return nil, err
	}
	attached, err := findAttachments(ctx, images, digest)
	if err != nil {
		err = fmt.Errorf("%s: %w", attachmentTag(digest), err)
	}
	bundles, failed := findBundles(ctx, images, digest)
	if failed != nil {
		err = errors.Join(err, fmt.Errorf("bundles: %w", failed))
	}
	return append(attached, bundles...), err
}

func attachmentTag(digest v1.Hash) string { return digest.Algorithm + "-" + digest.Hex + ".sig" }

func findAttachments(ctx context.Context, images oci.Store, digest v1.Hash) ([]Signature, error) {
	manifest, err := attachmentManifest(ctx, images, digest)
	if err != nil {
		return nil, err
	}
	var found []Signature
	for i, layer := range manifest.Layers {
		if layer.MediaType != simpleSigningType {
			continue
		}
		signature := Signature{Format: Attachment, Name: fmt.Sprintf("cosign signature %d", i+1)}
		signature.signed, err = readBlob(ctx, images, layer, maxText)
		signature.IsUnread = err != nil
		if err == nil {
			signature.signature, err = base64.StdEncoding.DecodeString(layer.Annotations[signatureAnnotation])
		}
		if err == nil {
			signature.Claim, err = simplesigning.Parse(signature.signed, simplesigning.Cosign)
		}
		signature.Err = err
		found = append(found, signature)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return found, nil
}

// attachmentManifest returns the manifest of the signatures of an image; an empty one if there is none.
func attachmentManifest(ctx context.Context, images oci.Store, digest v1.Hash) (manifest v1.Manifest, err error) {
	described, err := images.Resolve(ctx, attachmentTag(digest))
	if errors.Is(err, oci.ErrNotFound) {
		return manifest, nil
	}
	if err == nil && described.MediaType.IsIndex() {
		err = errors.New("it is an index instead of an image with signatures")
	}
	if err == nil {
		err = readManifest(ctx, images, described, &manifest)
	}
	if len(manifest.Layers) > maxSignatures {
		return manifest, fmt.Errorf("it has more than %d signatures, which is the limit", maxSignatures)
	}
	return manifest, err
}

func readManifest(ctx context.Context, images oci.Store, described v1.Descriptor, manifest *v1.Manifest) error {
	raw, err := images.Manifest(ctx, described)
	if err == nil {
		err = json.Unmarshal(raw, manifest)
	}
	return err
}

func readBlob(ctx context.Context, images oci.Store, described v1.Descriptor, limit int64) ([]byte, error) {
	if described.Size > limit {
		return nil, fmt.Errorf("it has more than %d KiB", limit>>10)
	}
	return oci.ReadBlob(ctx, images, described)
}

func findBundles(ctx context.Context, images oci.Store, digest v1.Hash) ([]Signature, error) {
	referrers, err := images.Referrers(ctx, digest)
	if err != nil {
		return nil, err
	}
	var found []Signature
	read := 0
	for _, described := range referrers {
		// some registries list the type of the config instead
		if !slices.Contains([]string{"", string(bundleType), string(oci.EmptyType)}, described.ArtifactType) {
			continue
		}
		signature := Signature{Format: Bundle, Name: "bundle " + described.Digest.String(), Err: errAttestation}
		if predicate := described.Annotations[predicateAnnotation]; predicate == "" || predicate == predicateType {
			if read++; read > maxSignatures {
				return found, fmt.Errorf("there are more than %d, which is the limit", maxSignatures)
			}
			signature.Err = signature.readBundle(ctx, images, described)
		}
		if errors.Is(signature.Err, errAttestation) {
			signature.Format = Attestation
		}
		if !errors.Is(signature.Err, errNoBundle) {
			found = append(found, signature)
		}
		if ctx.Err() != nil {
			return found, ctx.Err()
		}
	}
	return found, nil
}

// Verify verifies that one of the keys has signed an image. Name is the keys', for messages. It reports whether cosign,
// podman and CRI-O verify the signature without further settings: it is made with SHA-256 or plain Ed25519.
func (s *Signature) Verify(digest, name string, keys []PublicKey) (isCommon bool, err error) {
	if s.Err != nil {
		return false, s.Err
	}
	isKnown := false
	for _, key := range keys {
		isKnown = isKnown || key.Hint == s.Hint
		isSigned, isCommon := s.isSignedBy(key)
		switch {
		case isSigned && s.Claim.Digest != digest:
			return false, fmt.Errorf("it is for another image, %.71s", s.Claim.Digest)
		case isSigned:
			return isCommon, nil
		}
	}
	switch {
	case isKnown:
		return false, fmt.Errorf("it is forged or damaged: the signature by key %s does not fit its content",
			s.Hint)
	case s.Hint != "":
		return false, fmt.Errorf("key %.64s, which created it, is not in %s", s.Hint, name)
	default:
		return false, fmt.Errorf("it is not signed by a key of %s, or damaged", name)
	}
}
