// Package signature verifies that the image of a release is signed by the keys of the previous release, before the
// image is pulled.
//
// The keys and the signature stores are in a ConfigMap of the installed release, as for OpenShift's cluster-version
// operator. OpenShift's own library decides whether signatures suffice; this package finds them, bounds the time and
// the memory that a hostile store can cost, and reports the error of each signature.
//
// Start with PolicyOf; Policy.Verify finds and verifies signatures, and Persist saves the valid ones.
package signature

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/crypto/openpgp" //lint:ignore SA1019 the keyrings of OpenShift's library are of its types
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/openshift/library-go/pkg/verify"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ConfigAnnotation marks the ConfigMap of a release with the keyrings whose signatures the next release needs.
const ConfigAnnotation = verify.ReleaseAnnotationConfigMapVerifier

// The prefixes of the keys of that ConfigMap.
const (
	keyringPrefix = "verifier-public-key-"
	storePrefix   = "store-"
)

// A Policy is the requirement of a release for the image of the next release: a signature by each of its keyrings.
type Policy struct {
	origin   string // source of the keyrings, shown to users
	keyrings map[string]openpgp.EntityList
	stores   []*url.URL // sorted
}

// PolicyOf returns the policy of a release; nil if the release has none. It fails if the policy is invalid: no image
// can be verified by it.
func PolicyOf(release *payload.Payload) (*Policy, error) {
	manifest := configOf(release)
	if manifest == nil {
		return nil, nil
	}
	id := manifest.ID()
	p := &Policy{
		origin:   fmt.Sprintf("%s of release %s", id.String(), printable.Line(release.Version)),
		keyrings: map[string]openpgp.EntityList{},
	}
	data, _, err := unstructured.NestedStringMap(manifest.Object().Object, "data")
	if err != nil {
		return nil, newError("%s: %v", p.origin, err)
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if err := p.add(key, data[key]); err != nil {
			return nil, newError("%s: key %s: %v", p.origin, printable.Line(key), err)
		}
	}
	if len(p.keyrings) == 0 {
		return nil, newError("%s: no key begins with %s", p.origin, keyringPrefix)
	}
	return p, nil
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
			return fmt.Errorf("no GPG public key of a kind that can be read, such as RSA: %w", err)
		}
		p.keyrings[key] = keyring
	case strings.HasPrefix(key, storePrefix):
		store, err := url.Parse(strings.TrimSpace(value))
		if err != nil || store.Scheme != "http" && store.Scheme != "https" || store.Host == "" {
			return fmt.Errorf("no URL with http:// or https://")
		}
		p.stores = append(p.stores, store)
	}
	return nil
}

// readKeyring reads public keys, ASCII-armored or not.
func readKeyring(text []byte) (openpgp.EntityList, error) {
	read := openpgp.ReadKeyRing
	if bytes.Contains(text, []byte("-----BEGIN PGP")) {
		read = openpgp.ReadArmoredKeyRing
	}
	keyring, err := read(bytes.NewReader(text))
	if err == nil && len(keyring) == 0 {
		return nil, fmt.Errorf("it is empty")
	}
	return keyring, err
}

// keyringNames returns the names of the keyrings, sorted.
func (p *Policy) keyringNames() []string { return slices.Sorted(maps.Keys(p.keyrings)) }
