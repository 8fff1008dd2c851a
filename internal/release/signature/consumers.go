package signature

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"golang.org/x/crypto/openpgp" //lint:ignore SA1019 the keyrings of OpenShift's library are of its types

	"github.com/openshift/library-go/pkg/verify"
	"github.com/openshift/library-go/pkg/verify/store/memory"

	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
	"github.com/runlevel/runlevel/internal/release/signature/simplesigning"
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

// MaxPlatforms limits the images of an index that are signed or judged.
const MaxPlatforms = 128

// Judge returns which consumers accept an image. It reads all signatures.
func (p *Policy) Judge(ctx context.Context, image Image, from Stores) ([]Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, maxVerifyTime)
	defer cancel()
	found := p.find(ctx, image.Digest, from, true)
	operator := Verdict{Consumer: Operator, Accepts: true, Reason: "all keys have signed it"}
	if err := found.verdict(); err != nil {
		operator.Accepts, operator.Reason = false, strings.TrimPrefix(err.Error(), failedPrefix)
	}
	verdicts := []Verdict{operator, {Consumer: Containerd, Accepts: true,
		Reason: "it does not verify signatures; its image verifier plugins may, for example with cosign"}}
	nodes := []*signatureResults{found}
	if len(image.Platforms) > 0 { // a node verifies the image of its platform
		nodes = nil
	}
	if len(image.Platforms) <= MaxPlatforms {
		for _, digest := range image.Platforms {
			nodes = append(nodes, p.find(ctx, digest, from, true))
		}
	}
	for _, name := range p.names() {
		crio := Verdict{Consumer: CRIO, Key: name, Accepts: len(nodes) > 0,
			Reason: fmt.Sprintf("the index has more than %d images, which is the limit", MaxPlatforms)}
		for _, node := range nodes {
			if crio.Accepts {
				crio = node.judgeNode(name, image.Reference)
			}
		}
		verdicts = append(verdicts, crio)
		if _, isKeyring := p.keyrings[name]; isKeyring {
			verdicts = append(verdicts, found.judge(ClusterVersionOperator, name, found.checkUpstream(ctx)))
			continue
		}
		cosign2 := found.judge(Cosign2, name, found.checkFormat(sigstore.Attachment))
		cosign3 := cosign2
		if slices.ContainsFunc(found.all, func(item signatureResult) bool { // it only reads others without these
			return item.found != nil && item.found.Format != sigstore.Attachment
		}) {
			cosign3 = found.judge(Cosign3, name, found.checkFormat(sigstore.Bundle))
		}
		cosign3.Consumer = Cosign3
		verdicts = append(verdicts, cosign2, cosign3)
	}
	slices.SortStableFunc(verdicts, func(a, b Verdict) int {
		return slices.Index(Consumers, a.Consumer) - slices.Index(Consumers, b.Consumer)
	})
	return verdicts, ctx.Err()
}

// A checker returns why a consumer refuses a signature, and whether it reads it at all.
type checker func(keyName string, item signatureResult) (isRead bool, err error)

// judge returns the verdict of a consumer that accepts an image with one good signature.
func (s *signatureResults) judge(consumer Consumer, keyName string, check checker) Verdict {
	verdict := Verdict{Consumer: consumer, Key: keyName}
	var reasons []string
	for _, item := range s.sorted() {
		switch isRead, err := check(keyName, item); {
		case !isRead:
		case err == nil:
			verdict.Accepts, verdict.Reason = true, item.name
			return verdict
		default:
			reasons = append(reasons, item.name+": "+err.Error())
		}
	}
	verdict.Reason = cmp.Or(strings.Join(reasons[:min(len(reasons), maxReasons)], "; "),
		"no signature in the format that it reads was found")
	return verdict
}

// checkUpstream returns a check of messages as OpenShift's library has it.
func (s *signatureResults) checkUpstream(ctx context.Context) checker {
	return func(keyName string, item signatureResult) (bool, error) {
		if item.message == nil {
			return false, nil
		}
		keyring := s.policy.keyrings[keyName]
		upstream := verify.NewReleaseVerifier(map[string]openpgp.EntityList{keyName: keyring},
			&memory.Store{Data: map[string][][]byte{s.digest: {item.message}}})
		err := upstream.Verify(ctx, s.digest)
		if err != nil {
			_, ours := checkMessage(item.message, s.digest, keyName, keyring) // explains it
			err = cmp.Or(ours, err)
		}
		return true, err
	}
}

// judgeNode returns the verdict of a node that pulls an image by a name; nil for an image on disk.
func (s *signatureResults) judgeNode(keyName string, image name.Reference) Verdict {
	keyring, isKeyring := s.policy.keyrings[keyName]
	attachment := s.checkFormat(sigstore.Attachment)
	for _, item := range s.sorted() {
		if !isKeyring && item.found != nil && item.found.IsUnread {
			return Verdict{Consumer: CRIO, Key: keyName,
				Reason: fmt.Sprintf("%s: %v: it needs all of them", item.name, item.found.Err)}
		}
	}
	verdict := s.judge(CRIO, keyName, func(keyName string, item signatureResult) (isRead bool, err error) {
		var claim simplesigning.Claim
		switch {
		case isKeyring && item.message != nil:
			isRead = true
			claim, err = checkMessage(item.message, s.digest, keyName, keyring)
		case !isKeyring:
			if isRead, err = attachment(keyName, item); isRead {
				claim = item.found.Claim
			}
		}
		switch {
		case !isRead || err != nil:
			return isRead, err
		case claim.LacksOptional:
			return true, errors.New(`it needs "optional": {} in the text that is signed`)
		default:
			return true, checkReference(image, claim.Reference)
		}
	})
	if isKeyring && verdict.Accepts {
		verdict.Reason += " in a signature store (lookaside)"
	}
	return verdict
}

// checkFormat returns a check of signatures beside an image in a format.
func (s *signatureResults) checkFormat(format sigstore.Format) checker {
	return func(keyName string, item signatureResult) (bool, error) {
		if item.found == nil || item.found.Format != format {
			return false, nil
		}
		keys := s.policy.keys[keyName]
		isCommon, err := item.found.Verify(s.digest, keyName, keys[:1])
		if err != nil && len(keys) > 1 {
			if _, other := item.found.Verify(s.digest, keyName, keys); other == nil {
				err = errors.New("it is by another key than the first, and it reads only the first key of a file")
			}
		}
		if err == nil && !isCommon {
			err = errors.New("it is not made with SHA-256 or plain Ed25519, which it expects by default")
		}
		return true, err
	}
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
