// Package signature verifies that the image of a release is signed by the keys of the previous release, before the
// image is pulled.
//
// The keys and the signature stores are in a ConfigMap of the installed release, as for OpenShift's cluster-version
// operator. OpenShift's own library verifies OpenPGP messages; package sigstore verifies the signatures that lie beside
// the image. This package finds all of them, bounds the time and the memory that a hostile store can cost, refuses
// keys that have expired and signatures that are too old or of another repository, and reports the error of each.
//
// Start with PolicyOf; Policy.Verify finds and verifies signatures, and Persist saves the valid ones. Signer makes
// OpenPGP messages.
package signature

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"golang.org/x/crypto/openpgp" //lint:ignore SA1019 the keyrings of OpenShift's library are of its types
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/openshift/library-go/pkg/verify"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
	"github.com/runlevel/runlevel/internal/release/signature/simplesigning"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ConfigAnnotation marks the ConfigMap of a release with the keyrings whose signatures the next release needs.
const ConfigAnnotation = verify.ReleaseAnnotationConfigMapVerifier

// The keys of that ConfigMap, and the prefixes of others. The cluster-version operator ignores keys that it does not
// know, but it fails if it can't read a keyring.
const (
	keyringPrefix = "verifier-public-key-"
	keysPrefix    = "sigstore-public-key-"
	storePrefix   = "store-"
	maximumAge    = "maximum-signature-age"
	repositoryKey = "signed-repository"
)

// A Policy is the requirement of a release for the image of the next release: a signature by each of its keyrings, and
// by one of the keys of each of its entries with keys.
type Policy struct {
	origin     string // source of the keyrings, shown to users
	keyrings   map[string]openpgp.EntityList
	keys       map[string][]sigstore.PublicKey
	stores     []*url.URL      // sorted
	maximumAge time.Duration   // 0 for signatures of any age
	repository name.Repository // that signatures have to name, unless it is zero
}

// NewPolicy returns a policy without keys. Origin is shown to users as the source of its keys.
func NewPolicy(origin string) *Policy {
	return &Policy{origin: origin, keyrings: map[string]openpgp.EntityList{}, keys: map[string][]sigstore.PublicKey{}}
}

// AddKeys requires a signature by one of the public keys in a text: OpenPGP keys, or keys in PEM.
func (p *Policy) AddKeys(name string, text []byte) error {
	var err error
	if bytes.Contains(text, []byte("-----BEGIN ")) && !bytes.Contains(text, []byte("-----BEGIN PGP")) {
		p.keys[name], err = sigstore.ParsePublicKeys(text)
		return err
	}
	p.keyrings[name], err = readKeyring(text)
	return err
}

// PolicyOf returns the policy of a release; nil if the release has none. It fails if the policy is invalid: no image
// can be verified by it.
func PolicyOf(release *payload.Payload) (*Policy, error) {
	manifest := configOf(release)
	if manifest == nil {
		return nil, nil
	}
	id := manifest.ID()
	p := NewPolicy(fmt.Sprintf("%s of release %s", id.String(), printable.Line(release.Version)))
	data, _, err := unstructured.NestedStringMap(manifest.Object().Object, "data")
	if err != nil {
		return nil, newError("%s: %v", p.origin, err)
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if err := p.add(key, data[key]); err != nil {
			return nil, newError("%s: key %s: %v", p.origin, printable.Line(key), err)
		}
	}
	if len(p.keyrings)+len(p.keys) == 0 {
		return nil, newError("%s: no key begins with %s or %s", p.origin, keyringPrefix, keysPrefix)
	}
	return p, nil
}

// Problems returns why no image could be verified by the policy of a release.
func Problems(release *payload.Payload) []payload.Problem {
	_, err := PolicyOf(release)
	if err == nil {
		return nil
	}
	config := configOf(release)
	return []payload.Problem{{File: config.Path, Line: config.Line, Document: config.Document, Cause: payload.Malformed,
		Message: "no cluster could update from this release: " + strings.TrimPrefix(err.Error(), failedPrefix)}}
}

// configOf returns the first manifest with the annotation. A manifest that an administrator has overridden counts, too:
// overrides are about who manages the object, not about the requirements of the release.
func configOf(release *payload.Payload) *payload.Manifest {
	all := slices.Clone(release.Manifests)
	for _, exclusion := range release.Excluded {
		if exclusion.Filter == payload.ByOverrides {
			all = append(all, exclusion.Manifest)
		}
	}
	slices.SortStableFunc(all, payload.InOrder)
	i := slices.IndexFunc(all, func(m *payload.Manifest) bool {
		_, isMarked := m.Object().GetAnnotations()[ConfigAnnotation]
		return isMarked && m.ID().GroupKind() == kinds.ConfigMap && !m.IsTombstone()
	})
	if i < 0 {
		return nil
	}
	return all[i]
}

// add reads one key of the ConfigMap. Unknown keys are ignored: they may be of later versions.
func (p *Policy) add(key, value string) error {
	switch {
	case strings.HasPrefix(key, keyringPrefix):
		keyring, err := readKeyring([]byte(value))
		if err != nil {
			return fmt.Errorf("no GPG public key that can be used: %w", err)
		}
		p.keyrings[key] = keyring
	case strings.HasPrefix(key, keysPrefix):
		keys, err := sigstore.ParsePublicKeys([]byte(value))
		if err != nil {
			return fmt.Errorf("no public keys in PEM: %w", err)
		}
		p.keys[key] = keys
	case strings.HasPrefix(key, storePrefix):
		return p.AddStore(strings.TrimSpace(value))
	case key == maximumAge:
		age, err := time.ParseDuration(strings.TrimSpace(value))
		if err != nil || age <= 0 {
			return fmt.Errorf("no duration such as 720h")
		}
		p.maximumAge = age
	case key == repositoryKey:
		repository, err := name.NewRepository(strings.TrimSpace(value), name.StrictValidation)
		if err != nil {
			return fmt.Errorf("no repository such as registry.example/shop")
		}
		p.repository = repository
	}
	return nil
}

// AddStore adds the URL of a store with OpenPGP messages.
func (p *Policy) AddStore(text string) error {
	store, err := url.Parse(text)
	if err != nil || store.Scheme != "http" && store.Scheme != "https" || store.Host == "" {
		return fmt.Errorf("no URL with http:// or https://")
	}
	p.stores = append(p.stores, store)
	return nil
}

// names returns the names of the keyrings and entries with keys, sorted.
func (p *Policy) names() []string {
	return append(slices.Sorted(maps.Keys(p.keys)), slices.Sorted(maps.Keys(p.keyrings))...)
}

// clockSkew is the allowed difference between the clocks of a signer and of a verifier.
const clockSkew = 10 * time.Minute

// check returns why a signature is not valid for a keyring or keys of the policy.
func (p *Policy) check(item signatureResult, digest, keyName string) error {
	var claim simplesigning.Claim
	var err error
	if item.message != nil {
		claim, err = checkMessage(item.message, digest, keyName, p.keyrings[keyName])
	} else {
		claim = item.found.Claim
		_, err = item.found.Verify(digest, keyName, p.keys[keyName])
	}
	switch age := time.Since(claim.Time); {
	case err != nil:
		return err
	case p.maximumAge > 0 && claim.Time.IsZero():
		return fmt.Errorf("it has no time, and %s is %s", maximumAge, p.maximumAge)
	case p.maximumAge > 0 && (age > p.maximumAge || age < -clockSkew):
		return fmt.Errorf("it was created at %s, and %s is %s", claim.Time.UTC().Format(time.RFC3339), maximumAge,
			p.maximumAge)
	case p.repository != name.Repository{} && claim.Reference == "":
		return fmt.Errorf("it names no repository, and %s is %s", repositoryKey, p.repository)
	case p.repository != name.Repository{} && !isOf(p.repository, claim.Reference):
		return fmt.Errorf("it is for another repository, %.200s: %s is %s", claim.Reference, repositoryKey,
			p.repository)
	default:
		return nil
	}
}

// isOf reports whether a reference is of a repository.
func isOf(repository name.Repository, reference string) bool {
	parsed, err := name.ParseReference(reference)
	return err == nil && parsed.Context().Name() == repository.Name()
}
