package operator_test

import (
	"bytes"
	"crypto"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	configv1 "github.com/openshift/api/config/v1"
	//lint:ignore SA1019 what OpenShift's library reads is written with the same one
	"golang.org/x/crypto/openpgp"
	"golang.org/x/crypto/openpgp/armor"  //lint:ignore SA1019 as above
	"golang.org/x/crypto/openpgp/packet" //lint:ignore SA1019 as above
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A signer is a key, and a store of the signatures that were made with it.
type signer struct {
	stage *stage
	key   *openpgp.Entity
	store string

	mu     sync.Mutex
	signed map[string][]byte // keyed by path
}

// newSigner returns a signer whose store has no signatures.
func (s *stage) newSigner() *signer {
	s.t.Helper()
	key, err := openpgp.NewEntity("release key", "", "release@example.com", &packet.Config{RSABits: 2048})
	s.must(err)
	for _, identity := range key.Identities {
		identity.SelfSignature.PreferredHash = []uint8{8} // SHA-256
		s.must(identity.SelfSignature.SignUserId(identity.UserId.Id, key.PrimaryKey, key.PrivateKey, nil))
	}
	item := &signer{stage: s, key: key, signed: map[string][]byte{}}
	server := httptest.NewServer(item)
	s.t.Cleanup(server.Close)
	item.store = server.URL
	return item
}

func (s *signer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if message, isSigned := s.signed[r.URL.Path]; isSigned {
		_, _ = w.Write(message)
		return
	}
	http.NotFound(w, r)
}

// policy returns the file of a release that demands signatures of its successors.
func (s *signer) policy() string {
	s.stage.t.Helper()
	var key bytes.Buffer
	out, err := armor.Encode(&key, openpgp.PublicKeyType, nil)
	s.stage.must(err)
	s.stage.must(s.key.Serialize(out))
	s.stage.must(out.Close())
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"data": map[string]string{"verifier-public-key-shop": key.String(), "store-shop": s.store},
		"metadata": map[string]any{
			"name":        "verification",
			"namespace":   "shop",
			"annotations": map[string]string{"release.openshift.io/verification-config-map": ""},
		},
	})
	s.stage.must(err)
	return "\n-- 0000_20_shop_05_verification.yaml --\n" + string(text)
}

// sign puts a signature of an image into the store, made with another signer's key if one is given.
func (s *signer) sign(image string, others ...*signer) string {
	s.stage.t.Helper()
	_, digest, _ := strings.Cut(image, "@")
	var message bytes.Buffer
	out, err := openpgp.Sign(&message, append(others, s)[0].key, nil, &packet.Config{DefaultHash: crypto.SHA256})
	s.stage.must(err)
	_, err = fmt.Fprintf(out,
		`{"critical": {"type": "atomic container signature", "image": {"docker-manifest-digest": %q}, "identity": {"docker-reference": "shop"}}}`, digest)
	s.stage.must(err)
	s.stage.must(out.Close())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signed["/"+strings.Replace(digest, ":", "=", 1)+"/signature-1"] = message.Bytes()
	return image
}

// TestReleasesAreSigned: a release requires a signature of the next one, which is refused without one. It begins as
// soon as a signature exists, and is Verified in the history. Force continues without one, and the history has the
// risk. If a release requires no signatures, the next one is accepted, and the status reports that it was not verified.
func TestReleasesAreSigned(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	signer, stranger := s.newSigner(), s.newSigner()
	s.beginWith("1.0.0", shop+signer.policy())
	installed := s.until("installed", isAt("1.0.0"))
	if entry := installed.Status.History[0]; entry.Verified || entry.AcceptedRisks != "" {
		t.Errorf("first release: got entry %+v, want it unverified and without accepted risks", entry)
	}
	second := s.push("1.0.1", shop+signer.policy())
	refused := func(words string) func(v *configv1.ClusterVersion) bool {
		return func(v *configv1.ClusterVersion) bool {
			message := find(v, "ReleaseAccepted").Message
			return has("ReleaseAccepted", configv1.ConditionFalse, "RetrievePayload")(v) &&
				strings.Contains(message, "The update cannot be verified: ") && strings.Contains(message, words)
		}
	}
	s.update(second)
	s.until("it is not signed", refused("no signature for it in"))
	if !isAt("1.0.0")(s.version()) {
		t.Errorf("the release before is not in place:\n%s", s.text())
	}
	signer.sign(second)
	verified := s.until("updated as soon as it is signed", isAt("1.0.1"))
	if entry := verified.Status.History[0]; !entry.Verified || entry.AcceptedRisks != "" {
		t.Errorf("entry of the history is %+v", entry)
	}
	var kept corev1.ConfigMap
	s.must(s.client.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "signatures-managed"}, &kept))
	if len(kept.BinaryData) != 1 {
		t.Errorf("%d signatures are kept", len(kept.BinaryData))
	}

	third := s.push("1.0.2", shop)
	signer.sign(third, stranger)
	s.update(third)
	s.until("another key has signed it",
		refused(fmt.Sprintf("key %016X, which created it, is not in verifier-public-key-shop",
			stranger.key.PrimaryKey.KeyId)))
	s.update(third, func(u *configv1.Update) { u.Force = true })
	forced := s.until("forced", isAt("1.0.2"))
	if entry := forced.Status.History[0]; entry.Verified ||
		!strings.Contains(entry.AcceptedRisks,
			"cannot be verified, but continuing anyway because the update was forced") {
		t.Errorf("entry of the history is %+v", entry)
	}

	s.update(s.push("1.0.3", shop))
	s.until("updated without keys", isAt("1.0.3"))
	isReported := func(v *configv1.ClusterVersion) bool {
		return strings.Contains(find(v, "ReleaseAccepted").Message, "not verified: release 1.0.2 has no ConfigMap")
	}
	s.until("the missing verification is in the status", isReported)
	s.restart()
	s.must(s.client.Delete(t.Context(), s.settings()))
	s.untilSettings("1.0.3") // the new process has created the ConfigMap
	s.must(s.client.Patch(t.Context(), s.version(),
		client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"channel": "stable"}}`))))
	last := s.until("the edit is observed", func(v *configv1.ClusterVersion) bool {
		return v.Status.ObservedGeneration == v.Generation
	})
	if !isReported(last) || !last.Status.History[2].Verified || last.Status.History[1].AcceptedRisks == "" {
		t.Errorf("after a restart:\n%s", s.text())
	}
	s.must(s.client.Delete(t.Context(), last))
	again := s.until("recreated", func(v *configv1.ClusterVersion) bool {
		return v.UID != last.UID && isAt("1.0.3")(v)
	}).Status.History
	if !again[2].Verified || again[1].Verified || again[1].AcceptedRisks != "ImageVerificationFailed" {
		t.Errorf("entries of the record are %+v, want the verified one and the forced one", again)
	}
}

// TestSignaturesAreDemandedAfterARestart, also when the release that demands them can't be read any more. Force goes
// on, and history has the risk.
func TestSignaturesAreDemandedAfterARestart(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newStage(t)
	s.beginWith("1.0.0", shop+s.newSigner().policy())
	s.until("installed", isAt("1.0.0"))
	next := s.push("1.0.1", shop)
	s.update(next)
	s.until("it is not signed", has("ReleaseAccepted", configv1.ConditionFalse, "RetrievePayload"))

	s.must(s.end())
	s.must(os.RemoveAll(s.options.CacheDir))
	image, err := name.NewDigest(s.options.Payload, name.Insecure)
	s.must(err)
	s.must(remote.Delete(image))
	// the copies
	s.must(s.client.DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace(system),
		client.HasLabels{files.Label}))
	s.start()
	s.until("the message names the unreadable release", func(v *configv1.ClusterVersion) bool {
		c := find(v, "Failing")
		return c.Status == configv1.ConditionTrue && strings.HasPrefix(c.Message, "1.0.0 is not kept in place: ") &&
			strings.Contains(c.Message, "the registry has no such image")
	})
	if got := s.of("settings"); got != "1.0.0" {
		t.Errorf("the settings are of %s, whose image is not signed", got)
	}
	s.update(next, func(u *configv1.Update) { u.Force = true })
	forced := s.until("forced", isAt("1.0.1"))
	if got := forced.Status.History[0].AcceptedRisks; !strings.Contains(got,
		"can't be read, which may demand signatures") {
		t.Errorf("the accepted risks are %q", got)
	}
	s.until("all is well", has("Failing", configv1.ConditionFalse, ""))
}

// TestImagesArePulledFromMirrors by an ImageDigestMirrorSet. The first mirror is away, and the registry that the image
// names does not exist. The release has the requested name.
func TestImagesArePulledFromMirrors(t *testing.T) {
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	s.must(err)
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(module)),
		"config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_imagedigestmirrorsets.crd.yaml"))
	s.must(err)
	definition := &unstructured.Unstructured{}
	s.must(yaml.Unmarshal(text, &definition.Object))
	s.must(s.client.Create(t.Context(), definition))
	mirrors := &configv1.ImageDigestMirrorSet{}
	mirrors.Name = "team"
	mirrors.Spec.ImageDigestMirrors = []configv1.ImageDigestMirrors{{
		Source:             "registry.invalid/team",
		Mirrors:            []configv1.ImageMirror{"127.0.0.1:1/team", configv1.ImageMirror(s.registry + "/team")},
		MirrorSourcePolicy: configv1.NeverContactSource,
	}}
	s.await("mirrors are served", func() bool { return s.client.Create(t.Context(), mirrors.DeepCopy()) == nil })
	image := strings.Replace(s.push("1.0.1", shop), s.registry, "registry.invalid", 1)
	s.update(image)
	done := s.until("updated", isAt("1.0.1"))
	if done.Status.Desired.Image != image {
		t.Errorf("the image is %s, want %s", done.Status.Desired.Image, image)
	}
}
