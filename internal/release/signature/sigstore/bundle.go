package sigstore

import (
	"cmp"
	"context"
	"crypto"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/signature/simplesigning"
)

// The types of the signed payload in a bundle, of the statement in the payload, and of its predicate.
const (
	payloadType   = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://sigstore.dev/cosign/sign/v1"
)

// bundleTypes are the spellings of the type of a bundle.
var bundleTypes = []types.MediaType{bundleType, "application/vnd.dev.sigstore.bundle+json;version=0.3"}

// A bundle has a signature, and names the key to verify it with.
type bundle struct {
	MediaType types.MediaType      `json:"mediaType"`
	Material  verificationMaterial `json:"verificationMaterial"`
	Envelope  *envelope            `json:"dsseEnvelope,omitempty"`
	Message   *messageSignature    `json:"messageSignature,omitempty"`
}

type verificationMaterial struct {
	PublicKey *publicKeyHint `json:"publicKey,omitempty"`
}

type publicKeyHint struct {
	Hint string `json:"hint"`
}

// An envelope has a signed statement (DSSE).
type envelope struct {
	Payload     []byte              `json:"payload"`
	PayloadType string              `json:"payloadType"`
	Signatures  []envelopeSignature `json:"signatures"`
}

type envelopeSignature struct {
	Signature []byte `json:"sig"`
}

// A messageSignature is a signature of the image's manifest itself.
type messageSignature struct {
	Digest struct {
		Algorithm string `json:"algorithm"`
		Digest    []byte `json:"digest"`
	} `json:"messageDigest"`
	Signature []byte `json:"signature"`
}

// A statement is an in-toto statement about images.
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     predicate `json:"predicate"`
}

type subject struct {
	Digest map[string]string `json:"digest"`
}

// A predicate has the fields of simple signing that runlevel adds. Cosign leaves the predicate empty.
type predicate struct {
	Reference string `json:"docker-reference,omitempty"`
	Creator   string `json:"creator,omitempty"`
	Timestamp int64  `json:"timestamp,omitempty"`
}

// The errors of a manifest without a bundle, and of bundles such as of provenance.
var (
	errNoBundle    = errors.New("it is not a bundle")
	errAttestation = errors.New("it is an attestation, not a signature")
)

// readBundle reads the bundle of a manifest.
func (s *Signature) readBundle(ctx context.Context, images oci.Store, described v1.Descriptor) error {
	var manifest v1.Manifest
	if err := readManifest(ctx, images, described, &manifest); err != nil {
		return err
	}
	kind := types.MediaType(cmp.Or(manifest.ArtifactType, string(manifest.Config.MediaType)))
	if kind != bundleType || len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != bundleType {
		return errNoBundle
	}
	text, err := readBlob(ctx, images, manifest.Layers[0], maxBundle)
	if err != nil {
		return err
	}
	if err := s.parseBundle(text); err != nil {
		return err
	}
	if s.signed == nil { // whoever has signed the manifest as a file may not have meant the image
		return errors.New(`it signs a file, not an image: sign with "cosign sign"`)
	}
	return nil
}

// parseBundle reads the text of a bundle.
func (s *Signature) parseBundle(text []byte) error {
	var parsed bundle
	switch err := json.Unmarshal(text, &parsed); {
	case err != nil:
		return errors.New("it is not a JSON bundle")
	case !slices.Contains(bundleTypes, parsed.MediaType):
		return fmt.Errorf("it is of type %.100q: only version 0.3 of bundles is supported", parsed.MediaType)
	case (parsed.Envelope == nil) == (parsed.Message == nil):
		return errors.New("it must have either a dsseEnvelope or a messageSignature")
	case parsed.Envelope != nil && len(parsed.Envelope.Signatures) != 1:
		return fmt.Errorf("its envelope has %d signatures instead of one", len(parsed.Envelope.Signatures))
	}
	var stated statement
	if parsed.Envelope != nil {
		if err := json.Unmarshal(parsed.Envelope.Payload, &stated); err != nil || stated.Type != statementType ||
			parsed.Envelope.PayloadType != payloadType {
			return errors.New("its content is not an in-toto statement, version 1")
		}
		if stated.PredicateType != predicateType {
			return errAttestation
		}
	}
	if parsed.Material.PublicKey == nil {
		return errors.New("it is made with a certificate instead of a key, which is not supported: " +
			`sign with "cosign sign --key"`)
	}
	s.Hint = parsed.Material.PublicKey.Hint
	if message := parsed.Message; message != nil {
		if message.Digest.Algorithm != "SHA2_256" {
			return fmt.Errorf("it has a digest of type %.20q instead of SHA2_256", message.Digest.Algorithm)
		}
		s.Claim.Digest, s.signature = "sha256:"+hex.EncodeToString(message.Digest.Digest), message.Signature
		return nil
	}
	if len(stated.Subject) != 1 {
		return fmt.Errorf("its statement is about %d images instead of one", len(stated.Subject))
	}
	s.signed = preAuthenticationEncoding(parsed.Envelope.Payload)
	s.signature = parsed.Envelope.Signatures[0].Signature
	s.Claim = simplesigning.Claim{
		Digest:    "sha256:" + stated.Subject[0].Digest["sha256"],
		Reference: stated.Predicate.Reference,
		Time:      simplesigning.TimeOf(stated.Predicate.Timestamp),
	}
	return nil
}

// Bundle signs an in-toto statement, and returns the bundle of the signature.
func (k *PrivateKey) Bundle(statement []byte) ([]byte, error) {
	signature, err := k.Sign(preAuthenticationEncoding(statement))
	if err != nil {
		return nil, err
	}
	return json.Marshal(bundle{
		MediaType: bundleType,
		Material:  verificationMaterial{&publicKeyHint{k.public.Hint}},
		Envelope:  &envelope{statement, payloadType, []envelopeSignature{{signature}}},
	})
}

// preAuthenticationEncoding returns the bytes of an envelope that are signed.
func preAuthenticationEncoding(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

// isSignedBy reports whether a key has made the signature, and in the way that all consumers verify.
func (s *Signature) isSignedBy(key PublicKey) (isSigned, isCommon bool) {
	if s.signed != nil {
		return key.verify(s.signed, s.signature)
	}
	sum, err := hex.DecodeString(s.Claim.Digest[len("sha256:"):])
	return err == nil && key.verifySum(crypto.SHA256, sum, s.signature), false
}
