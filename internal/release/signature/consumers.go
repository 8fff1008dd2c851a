package signature

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"golang.org/x/crypto/openpgp" //lint:ignore SA1019 the keyrings of OpenShift's library are of its types

	"github.com/openshift/library-go/pkg/verify"
	"github.com/openshift/library-go/pkg/verify/store"

	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
)

// A Consumer is a program that may refuse images without signatures.
type Consumer string

// The consumers.
const (
	Operator               Consumer = "operator"                 // of runlevel, by the whole policy
	ClusterVersionOperator Consumer = "cluster-version-operator" // of OpenShift
	CRIO                   Consumer = "cri-o"                    // and podman and bootc, by policy.json
	Containerd             Consumer = "containerd"
	Cosign2                Consumer = "cosign-2"
	Cosign3                Consumer = "cosign-3"
)

// Consumers are all consumers, in the order of a report.
var Consumers = []Consumer{Operator, ClusterVersionOperator, CRIO, Containerd, Cosign2, Cosign3}

// A Verdict is whether a consumer accepts an image if it demands a signature by a key.
type Verdict struct {
	Consumer Consumer `json:"consumer"`
	Key      string   `json:"key,omitempty"` // empty for all keys of the policy, or if no key matters
	Accepts  bool     `json:"accepts"`
	Reason   string   `json:"reason"`
}

// An Image is an image whose signatures are judged.
type Image struct {
	Reference name.Reference // by which it is pulled; nil for one on disk
	Digest    string
	Platforms []string // digests of the images of an index
}

// Judge returns which consumers accept an image. It reads all signatures.
func (p *Policy) Judge(ctx context.Context, image Image, from Stores) ([]Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, maxVerifyTime)
	defer cancel()
	found := &signatureResults{}
	p.readImages(ctx, image.Digest, from.Images, found)
	for _, item := range p.storesToQuery(image.Digest, from, found) {
		readAll := func(context.Context, []byte, error) (bool, error) { return false, nil }
		if err := item.Signatures(ctx, "", image.Digest, readAll); err != nil {
			return nil, err
		}
	}
	verdicts := []Verdict{{Consumer: Operator, Accepts: true, Reason: "all keys have signed it"}}
	if missing, reasons := found.judge(p, image.Digest); len(missing) > 0 {
		err := found.explain(p, image.Digest, missing, reasons)
		verdicts[0].Accepts, verdicts[0].Reason = false, strings.TrimPrefix(err.Error(), failedPrefix)
	}
	for _, keyName := range slices.Sorted(maps.Keys(p.keyrings)) {
		verdicts = append(verdicts, found.judgeKeyring(ctx, keyName, p.keyrings[keyName], image)...)
	}
	platforms := make([]*signatureResults, len(image.Platforms)) // a node verifies the image of its platform
	for i, digest := range image.Platforms {
		platforms[i] = &signatureResults{}
		p.readImages(ctx, digest, from.Images, platforms[i])
	}
	for _, keyName := range slices.Sorted(maps.Keys(p.keys)) {
		verdicts = append(verdicts, judgeKeys(found, platforms, keyName, p.keys[keyName], image)...)
	}
	verdicts = append(verdicts, Verdict{Consumer: Containerd, Accepts: true,
		Reason: "it does not verify signatures; its image verifier plugins may, for example with cosign"})
	slices.SortStableFunc(verdicts, func(a, b Verdict) int {
		return slices.Index(Consumers, a.Consumer) - slices.Index(Consumers, b.Consumer)
	})
	return verdicts, ctx.Err()
}

// judgeKeyring returns the verdicts of consumers of OpenPGP messages.
func (s *signatureResults) judgeKeyring(ctx context.Context, keyName string, keyring openpgp.EntityList,
	image Image) []Verdict {
	upstream := Verdict{Consumer: ClusterVersionOperator, Key: keyName}
	crio := Verdict{Consumer: CRIO, Key: keyName}
	var upstreamReasons, crioReasons []string
	for _, item := range s.sorted() {
		if item.message == nil {
			continue
		}
		claim, err := checkMessage(item.message, keyName, keyring)
		if err == nil && claim.Digest != image.Digest {
			err = fmt.Errorf("it is for another image, %.71s", claim.Digest)
		}
		upstreamReasons = append(upstreamReasons, item.reasonOf(err))
		verifier := verify.NewReleaseVerifier(map[string]openpgp.EntityList{keyName: keyring}, oneMessage(item.message))
		if verifier.Verify(ctx, image.Digest) == nil {
			upstream.Accepts, upstream.Reason = true, item.reasonOf(nil)
		}
		if err == nil {
			err = checkReference(image.Reference, claim.Reference)
		}
		crioReasons = append(crioReasons, item.reasonOf(err))
		if err == nil {
			crio.Accepts, crio.Reason = true, item.reasonOf(nil)+" in a signature store (lookaside)"
		}
	}
	return []Verdict{upstream.because(upstreamReasons), crio.because(crioReasons)}
}

// oneMessage is a store of one signature.
type oneMessage []byte

// Signatures implements store.Store.
func (o oneMessage) Signatures(ctx context.Context, _, _ string, fn store.Callback) error {
	_, err := fn(ctx, o, nil)
	return err
}

// String implements store.Store.
func (oneMessage) String() string { return "a message" }

// judgeKeys returns the verdicts of consumers of signatures beside the image.
func judgeKeys(found *signatureResults, platforms []*signatureResults, keyName string, keys []sigstore.PublicKey,
	image Image) []Verdict {
	crio := found.judgeFormat(CRIO, sigstore.Attachment, keyName, keys, image)
	for i, digest := range image.Platforms {
		next := platforms[i].judgeFormat(CRIO, sigstore.Attachment, keyName, keys, Image{image.Reference, digest, nil})
		if i == 0 || crio.Accepts {
			crio = next
		}
	}
	cosign2 := found.judgeFormat(Cosign2, sigstore.Attachment, keyName, keys, Image{Digest: image.Digest})
	cosign3 := cosign2 // without bundles
	cosign3.Consumer = Cosign3
	if slices.ContainsFunc(found.all, func(item signatureResult) bool {
		return item.found != nil && item.found.Format == sigstore.Bundle
	}) {
		cosign3 = found.judgeFormat(Cosign3, sigstore.Bundle, keyName, keys, Image{Digest: image.Digest})
	}
	return []Verdict{crio, cosign2, cosign3}
}

// judgeFormat returns the verdict of a consumer that reads one format.
func (s *signatureResults) judgeFormat(consumer Consumer, format sigstore.Format, keyName string,
	keys []sigstore.PublicKey, image Image) Verdict {
	verdict := Verdict{Consumer: consumer, Key: keyName}
	var reasons []string
	for _, item := range s.sorted() {
		if item.found == nil || item.found.Format != format {
			continue
		}
		verified, err := item.found.Verify(image.Digest, keyName, keys)
		if err == nil && !verified.IsCommon {
			err = fmt.Errorf("it is not made with SHA-256 or plain Ed25519, which it expects by default")
		}
		if err == nil && format == sigstore.Attachment {
			err = checkReference(image.Reference, verified.Claim.Reference)
		}
		if err == nil {
			verdict.Accepts, verdict.Reason = true, item.reasonOf(nil)
			return verdict
		}
		reasons = append(reasons, item.reasonOf(err))
	}
	return verdict.because(reasons)
}

// because adds the reasons why a consumer does not accept the image.
func (v Verdict) because(reasons []string) Verdict {
	switch {
	case v.Accepts:
	case len(reasons) == 0:
		v.Reason = "no signature in the format that it reads was found"
	default:
		v.Reason = strings.Join(reasons[:min(len(reasons), maxReasons)], "; ")
	}
	return v
}

// reasonOf returns the signature with its error; without an error, only the signature.
func (s signatureResult) reasonOf(err error) string {
	if err == nil {
		return s.name
	}
	return s.name + ": " + err.Error()
}

// checkReference returns an error if a node whose policy has the default signedIdentity, matchRepoDigestOrExact,
// refuses a signature with a reference for an image.
func checkReference(image name.Reference, signed string) error {
	parsed, err := name.ParseReference(signed, name.StrictValidation)
	_, isDigest := image.(name.Digest)
	switch {
	case image == nil:
		return nil
	case err == nil && isDigest && parsed.Context().Name() == image.Context().Name(), err == nil &&
		parsed.Name() == image.Name():
		return nil
	case err != nil && strings.TrimSuffix(signed, "/") == image.Context().Name():
		return fmt.Errorf("it names a repository without a tag or digest, which needs signedIdentity matchRepository")
	default:
		return fmt.Errorf("it is for %.200s: the policy needs another signedIdentity", signed)
	}
}
