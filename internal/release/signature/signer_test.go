package signature_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/openpgp/armor"  //lint:ignore SA1019 tests write keys with the library that reads them
	"golang.org/x/crypto/openpgp/packet" //lint:ignore SA1019 as above
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"golang.org/x/crypto/openpgp" //lint:ignore SA1019 as above

	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
	"github.com/runlevel/runlevel/internal/release/signature/simplesigning"
)

// secret returns a secret key, ASCII-armored.
func secret(t testing.TB, key *openpgp.Entity) string {
	t.Helper()
	var text bytes.Buffer
	out, err := armor.Encode(&text, openpgp.PrivateKeyType, nil)
	must(t, err)
	must(t, key.SerializePrivate(out, nil))
	must(t, out.Close())
	return text.String()
}

// message returns a message about the image.
func message(t testing.TB, key string, password ...string) []byte {
	t.Helper()
	signer, err := signature.ReadSigner([]byte(key), func() ([]byte, error) { return []byte(password[0]), nil })
	must(t, err)
	text, err := signer.Sign(simplesigning.Claim{
		Digest: image, Reference: "registry.example/shop:1.4.0", Time: time.Now(),
	})
	must(t, err)
	return text
}

// TestMessages are found in the folder of a web server, and in a ConfigMap, beside those of others.
func TestMessages(t *testing.T) {
	first, second := newKey(t), newKey(t)
	folder := filepath.Join(t.TempDir(), "signatures")
	file := filepath.Join(t.TempDir(), "signatures.yaml")
	for _, key := range []*openpgp.Entity{first, second} {
		for _, place := range []string{folder, file} {
			_, err := signature.AddTo(place, image, message(t, secret(t, key)))
			must(t, err)
		}
	}
	store := serveAll(t, http.StripPrefix("/signatures", http.FileServer(http.Dir(folder))).ServeHTTP)
	both := map[string]string{
		"verifier-public-key-first": public(t, first), "verifier-public-key-second": public(t, second),
	}
	for _, from := range []signature.Stores{{Files: []string{folder}}, {Files: []string{file}}} {
		policy, err := signature.PolicyOf(release(t, both))
		must(t, err)
		found, err := policy.Verify(t.Context(), image, from)
		must(t, err)
		if len(found) != 2 {
			t.Errorf("%v: got %d messages", from.Files, len(found))
		}
	}
	text, err := os.ReadFile(file)
	must(t, err)
	var configMap corev1.ConfigMap
	must(t, yaml.UnmarshalStrict(text, &configMap))
	if configMap.Namespace != "" || len(configMap.BinaryData) != 2 {
		t.Errorf("got %s", text)
	}
	configMap.Namespace = "runlevel-system"
	policy, err := signature.PolicyOf(release(t, both))
	must(t, err)
	must(t, verifyFrom(t, policy, fake.NewClientset(&configMap)))
	both["store-web"] = store
	must(t, verify(t, both))
}

// TestMessagesHaveALimit: a tenth message of an image would not be read. A second one of the same key and name takes
// the place of the first.
func TestMessagesHaveALimit(t *testing.T) {
	signer, err := signature.ReadSigner([]byte(secret(t, newKey(t))), nil)
	must(t, err)
	messageFor := func(reference string, age time.Duration) []byte {
		text, err := signer.Sign(simplesigning.Claim{Digest: image, Reference: reference, Time: time.Now().Add(-age)})
		must(t, err)
		return text
	}
	text := messageFor("registry.example/shop:10", 0)
	for _, place := range []string{t.TempDir(), filepath.Join(t.TempDir(), "signatures.yaml")} {
		var want [][]byte
		for i := range 9 {
			for age := range 2 {
				last := messageFor(fmt.Sprint("registry.example/shop:", i), time.Duration(age)*time.Hour)
				_, err := signature.AddTo(place, image, last)
				must(t, err)
				want = append(want[:i], last)
			}
		}
		found, err := signature.Collect(t.Context(), place, image)
		must(t, err)
		if !slices.EqualFunc(found, want, bytes.Equal) {
			t.Errorf("%s has %d other messages", place, len(found))
		}
		_, err = signature.AddTo(place, image, text)
		if err == nil || !strings.Contains(err.Error(), "has 9 signatures of the image already, which is the limit") {
			t.Errorf("got error %v", err)
		}
	}
	file := filepath.Join(t.TempDir(), "x.yaml")
	must(t, os.WriteFile(file, []byte("kind: Secret"), 0o600))
	if _, err := signature.AddTo(file, image, text); err == nil ||
		!strings.Contains(err.Error(), "it is not a ConfigMap") {
		t.Errorf("got error %v", err)
	}
}

// TestMessagesThatAreAddedAtTheSameTime are all kept.
func TestMessagesThatAreAddedAtTheSameTime(t *testing.T) {
	var messages [8][]byte
	for i := range messages {
		messages[i] = sign(t, newKey(t), claim(image))
	}
	for _, path := range []string{"folder", "file.yaml"} {
		path = filepath.Join(t.TempDir(), path)
		var signing sync.WaitGroup
		for i, text := range messages {
			signing.Go(func() {
				if _, err := signature.AddTo(path, image, text); err != nil {
					t.Errorf("message %d: %v", i, err)
				}
			})
		}
		signing.Wait()
		found, err := signature.Collect(t.Context(), path, image)
		must(t, err)
		if len(found) != 8 {
			t.Errorf("%s has %d messages", path, len(found))
		}
	}
}

// TestSecretKeysThatAreRefused has the message of each.
func TestSecretKeysThatAreRefused(t *testing.T) {
	key := newKey(t)
	old, err := openpgp.NewEntity("old", "", "", &packet.Config{RSABits: 2048, Time: func() time.Time {
		return time.Now().Add(-2 * time.Hour)
	}})
	must(t, err)
	lifetime := uint32(time.Hour.Seconds())
	for _, identity := range old.Identities {
		identity.SelfSignature.KeyLifetimeSecs = &lifetime
	}
	for name, test := range map[string]struct{ text, want string }{
		"nothing":        {"", "no GPG secret key that can be used"},
		"a public one":   {public(t, key), "it has no secret key that can sign"},
		"an expired one": {secret(t, old), "it has no secret key that can sign"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := signature.ReadSigner([]byte(test.text), nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %s", err, test.want)
			}
		})
	}
}

// A gpg is GnuPG with a secret key, whose password is "secret".
type gpg struct {
	t            *testing.T
	home, folder string
}

func newGPG(t *testing.T) *gpg {
	t.Helper()
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("needs gpg")
	}
	g := &gpg{t, t.TempDir(), t.TempDir()}
	must(t, os.Chmod(g.home, 0o700))
	t.Cleanup(func() { _ = exec.Command("gpgconf", "--homedir", g.home, "--kill", "all").Run() })
	g.run("--quick-gen-key", "release@example.com", "rsa3072", "sign", "never")
	return g
}

// run runs gpg, and returns its output.
func (g *gpg) run(arguments ...string) []byte {
	g.t.Helper()
	arguments = append([]string{"--batch", "--pinentry-mode", "loopback", "--passphrase", "secret"}, arguments...)
	command := exec.CommandContext(g.t.Context(), "gpg", arguments...)
	command.Env = append(os.Environ(), "GNUPGHOME="+g.home)
	var failed bytes.Buffer
	command.Stderr = &failed
	out, err := command.Output()
	if err != nil {
		g.t.Fatalf("gpg %v: %v\n%s", arguments, err, failed.String())
	}
	return out
}

// TestGPG signs with an encrypted key of gpg, and has gpg verify the message.
func TestGPG(t *testing.T) {
	g := newGPG(t)
	key := string(g.run("--armor", "--export-secret-keys"))
	file := filepath.Join(g.folder, "message")
	must(t, os.WriteFile(file, message(t, key, "secret"), 0o600))
	if text := string(g.run("--decrypt", file)); !strings.Contains(text, image) {
		t.Errorf("gpg reads %s", text)
	}
	_, err := signature.ReadSigner([]byte(key), func() ([]byte, error) { return []byte("wrong"), nil })
	if !errors.Is(err, sigstore.ErrWrongPassword) {
		t.Errorf("got error %v", err)
	}
	text := g.run("--export-secret-keys")
	must(t, verify(t, map[string]string{
		"verifier-public-key-shop": string(g.run("--armor", "--export")),
		"store-shop":               serve(t, message(t, string(text), "secret")),
	}))
}

// TestPodmanReadsMessages has the library of podman and CRI-O, in skopeo, verify a message in a signature store.
func TestPodmanReadsMessages(t *testing.T) {
	if _, err := exec.LookPath("skopeo"); err != nil {
		t.Skip("needs skopeo")
	}
	g := newGPG(t)
	r := newRepository(t)
	public := filepath.Join(g.folder, "key.asc")
	must(t, os.WriteFile(public, g.run("--armor", "--export"), 0o600))
	signer, err := signature.ReadSigner(g.run("--export-secret-keys"), func() ([]byte, error) {
		return []byte("secret"), nil
	})
	must(t, err)
	text, err := signer.Sign(simplesigning.Claim{
		Digest: r.image.Digest.String(), Reference: r.location.String(), Time: time.Now(),
	})
	must(t, err)
	policy, stores := filepath.Join(g.folder, "policy.json"), filepath.Join(g.folder, "registries.d")
	must(t, os.WriteFile(policy, fmt.Appendf(nil, `{"default": [{"type": "reject"}], "transports": {"docker": {%q:
		[{"type": "signedBy", "keyType": "GPGKeys", "keyPath": %q}]}}}`, r.location.Repository.Name(), public), 0o600))
	must(t, os.Mkdir(stores, 0o700))
	must(t, os.WriteFile(filepath.Join(stores, "stores.yaml"),
		[]byte("default-docker: {lookaside: file://"+g.folder+"}"), 0o600))
	pull := func() (string, error) {
		command := exec.CommandContext(t.Context(), "skopeo", "--policy", policy, "--registries.d", stores, "copy",
			"--remove-signatures", "--src-tls-verify=false", "docker://"+r.location.String(), "dir:"+t.TempDir())
		command.Env = append(os.Environ(), "GNUPGHOME="+g.home)
		out, err := command.CombinedOutput()
		return string(out), err
	}
	if out, err := pull(); err == nil || !strings.Contains(out, "no signature exists") {
		t.Errorf("an image without a signature: %v\n%s", err, out)
	}
	folder := filepath.Join(g.folder, "shop@"+strings.Replace(r.image.Digest.String(), ":", "=", 1))
	must(t, os.Mkdir(folder, 0o700))
	must(t, os.WriteFile(filepath.Join(folder, "signature-1"), text, 0o600))
	if out, err := pull(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
