package operator_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
	"github.com/runlevel/runlevel/internal/release/signature/simplesigning"
)

// A keyPair is a key pair in PEM.
type keyPair struct{ private, public string }

func (s *stage) newKeyPair() keyPair {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	s.must(err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	s.must(err)
	encode := func(kind string, content []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	return keyPair{encode("PRIVATE KEY", private), encode("PUBLIC KEY", public)}
}

// policyOf returns the file of a release that demands a signature by one of the keys.
func (s *stage) policyOf(keys ...keyPair) string {
	s.t.Helper()
	var all string
	for _, key := range keys {
		all += key.public
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"data": map[string]string{"sigstore-public-key-shop": all, "maximum-signature-age": "1h"},
		"metadata": map[string]any{
			"name": "verification", "namespace": "shop",
			"annotations": map[string]string{"release.openshift.io/verification-config-map": ""},
		},
	})
	s.must(err)
	return "\n-- 0000_20_shop_05_verification.yaml --\n" + string(text)
}

// signBeside signs an image beside it, some time ago.
func (s *stage) signBeside(image string, key keyPair, format sigstore.Format, age time.Duration) {
	s.t.Helper()
	location, err := oci.ParseRegistry(image, true)
	s.must(err)
	target, err := oci.Create(s.t.Context(), location, oci.Options{Insecure: true})
	s.must(err)
	defer target.Close()
	private, err := sigstore.ParsePrivateKey([]byte(key.private), nil)
	s.must(err)
	claim := simplesigning.Claim{Digest: location.Identifier, Reference: image, Time: time.Now().Add(-age)}
	if format == sigstore.Attachment {
		s.must(private.Attach(s.t.Context(), target, claim))
		return
	}
	described, err := target.Resolve(s.t.Context(), location.Identifier)
	s.must(err)
	s.must(private.AddBundle(s.t.Context(), target, described, claim))
}

// TestReleasesAreSignedBesideTheImage: signatures of cosign's formats are found in the registry as soon as they are
// there. A release with two keys is the way from one to the other; the one after it does not accept the old key.
func TestReleasesAreSignedBesideTheImage(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	earlier, key := s.newKeyPair(), s.newKeyPair()
	s.beginWith("1.0.0", shop+s.policyOf(earlier))
	s.until("installed", isAt("1.0.0"))
	refused := func(words string) func(v *configv1.ClusterVersion) bool {
		return func(v *configv1.ClusterVersion) bool {
			message := find(v, "ReleaseAccepted").Message
			return has("ReleaseAccepted", configv1.ConditionFalse, "RetrievePayload")(v) &&
				strings.Contains(message, "The update cannot be verified: ") && strings.Contains(message, words)
		}
	}
	second := s.push("1.0.1", shop+s.policyOf(earlier, key))
	s.update(second)
	s.until("not signed", refused("no signature for it in "+s.registry+"/team/release"))
	s.signBeside(second, earlier, sigstore.Attachment, 2*time.Hour)
	s.until("signed too long ago", refused("cosign signature 1: it was created at "))
	s.signBeside(second, earlier, sigstore.Attachment, 0)
	if entry := s.until("updated", isAt("1.0.1")).Status.History[0]; !entry.Verified {
		t.Errorf("entry of the history is %+v", entry)
	}

	third := s.push("1.0.2", shop+s.policyOf(key))
	s.signBeside(third, key, sigstore.Bundle, 0)
	s.update(third)
	if entry := s.until("updated by the new key", isAt("1.0.2")).Status.History[0]; !entry.Verified {
		t.Errorf("entry of the history is %+v", entry)
	}

	fourth := s.push("1.0.3", shop+s.policyOf(key))
	s.signBeside(fourth, earlier, sigstore.Bundle, 0)
	s.update(fourth)
	s.until("signed by the key that was removed", refused("which created it, is not in sigstore-public-key-shop"))
}
