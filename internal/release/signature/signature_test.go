package signature_test

import (
	"context"
	"crypto"
	_ "crypto/md5" // hashes of messages that are refused
	_ "crypto/sha1"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
)

// verify verifies the image with the policy of a release that has the given keys and stores.
func verify(t testing.TB, data map[string]string, maps ...runtime.Object) error {
	t.Helper()
	policy, err := signature.PolicyOf(release(t, data))
	must(t, err)
	return verifyFrom(t, policy, fake.NewClientset(maps...))
}

func verifyFrom(t testing.TB, policy *signature.Policy, client *fake.Clientset) error {
	t.Helper()
	signatures, err := policy.Verify(t.Context(), image, signature.Stores{
		HTTP: &http.Client{Timeout: 300 * time.Millisecond}, ConfigMaps: client.CoreV1(),
		Namespaces: []string{signature.ManagedNamespace, "runlevel-system"},
	})
	if err == nil && len(signatures) == 0 {
		t.Error("verified without a signature")
	}
	return err
}

// TestInvalidSignatures has each kind of invalid signature, and its error.
func TestInvalidSignatures(t *testing.T) {
	key, stranger := newKey(t), newKey(t)
	good := sign(t, key, claim(image))
	damaged := append([]byte{}, good...)
	damaged[len(damaged)-10] ^= 1
	old := sign(t, key, claim(image), 1)
	bomb := compress(t, sign(t, key, claim(image)+strings.Repeat(" ", 1<<20)))
	for name, test := range map[string]struct {
		keys      string
		signature []byte
		want      string // empty for a good one
	}{
		"good":                {signature: good},
		"good and compressed": {signature: compress(t, good)},
		"one of two keys":     {keys: public(t, stranger, key), signature: good},
		"of an unknown key": {
			signature: sign(t, stranger, claim(image)),
			want: fmt.Sprintf("key %016X, which created it, is not in verifier-public-key-shop",
				stranger.PrimaryKey.KeyId),
		},
		"of a revoked key": {keys: revoked(t, key), signature: good, want: "is revoked in verifier-public-key-shop"},
		"of another image": {
			signature: sign(t, key, claim(another)),
			want:      "it is for another image, " + another,
		},
		"of another text": {
			signature: sign(t, key, `{"image": "`+image+`"}`),
			want:      `not an "atomic container signature"`,
		},
		"with SHA-1": {signature: signWith(t, key, claim(image), crypto.SHA1), want: "it is made with an old hash"},
		"with MD5":   {signature: signWith(t, key, claim(image), crypto.MD5), want: "it is made with an old hash"},
		"damaged":    {signature: damaged, want: "it is forged or damaged"},
		"expired":    {signature: old, want: "it has expired at 20"},
		"a page": {
			signature: []byte("<html>please log in</html>"),
			want:      "it is not a signed OpenPGP message",
		},
		"not signed": {
			signature: compress(t, []byte("nothing")),
			want:      "it is not a signed OpenPGP message",
		},
		"too long":               {signature: make([]byte, 60<<10), want: "it has more than 50 KiB"},
		"unpacks to too much":    {signature: bomb, want: "it unpacks to more than 256 KiB"},
		"compressed many times":  {signature: compress(t, compress(t, good)), want: "it is compressed more than once"},
		"ends within the packet": {signature: good[:len(good)-20], want: "OpenPGP message"},
	} {
		t.Run(name, func(t *testing.T) {
			store := serve(t, test.signature)
			data := map[string]string{"verifier-public-key-shop": test.keys, "store-shop": store}
			if test.keys == "" {
				data["verifier-public-key-shop"] = public(t, key)
			}
			err := verify(t, data)
			if test.want == "" {
				must(t, err)
				return
			}
			if err == nil {
				t.Fatal("the release is verified")
			}
			start := "The update cannot be verified: unable to verify " + image +
				" against keyrings: verifier-public-key-shop (ConfigMap shop/verification of release 1.0.0): "
			if text := err.Error(); !strings.HasPrefix(text, start) ||
				!strings.Contains(text, store+" signature-1: ") || !strings.Contains(text, test.want) {
				t.Errorf("got %s, want %s", text, test.want)
			}
			if reason.Of(err) != "ImageVerificationFailed" {
				t.Errorf("its reason is %s", reason.Of(err))
			}
			if again := verify(t, data); again == nil || again.Error() != err.Error() {
				t.Errorf("the next error differs: %v", again)
			}
		})
	}
}

// TestAGoodSignatureIsFoundAmongOthers checks several signatures in one store, and a second store while the first
// hangs.
func TestAGoodSignatureIsFoundAmongOthers(t *testing.T) {
	key := newKey(t)
	others := serve(t, []byte("nothing"), sign(t, newKey(t), claim(image)), sign(t, key, claim(image)))
	must(t, verify(t, map[string]string{"verifier-public-key-shop": public(t, key), "store-shop": others}))
	must(t,
		verify(t, map[string]string{"verifier-public-key-shop": public(t, key), "store-a": hang(t), "store-b": others}))
}

// hang starts a store whose answer never ends.
func hang(t *testing.T) string {
	done := make(chan struct{})
	store := serveAll(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-done
	})
	t.Cleanup(func() { close(done) })
	return store
}

// TestEachKeyringHasToSign names the one that has not.
func TestEachKeyringHasToSign(t *testing.T) {
	builders, testers := newKey(t), newKey(t)
	data := map[string]string{
		"verifier-public-key-builders": public(t, builders), "verifier-public-key-testers": public(t, testers),
		"store-shop": serve(t, sign(t, builders, claim(image))),
	}
	err := verify(t, data)
	if err == nil || !strings.Contains(err.Error(), "against keyrings: verifier-public-key-testers (") {
		t.Errorf("got error %v", err)
	}
	data["store-shop"] = serve(t, sign(t, builders, claim(image)), sign(t, testers, claim(image)))
	must(t, verify(t, data))
}

// TestStoresThatFail has the error of each, and checks that none takes longer than its timeout.
func TestStoresThatFail(t *testing.T) {
	key := newKey(t)
	endless := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	}
	for name, test := range map[string]struct{ store, want string }{
		"empty": {serve(t), "no signature for it in ConfigMaps of namespace openshift-config-managed, ConfigMaps " +
			"of namespace runlevel-system, http://127.0.0.1:"},
		"it hangs": {hang(t), "no answer in time"},
		"it fails": {serveAll(t, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
		}), "the store answers 503 Service Unavailable"},
		"it never ends": {serveAll(t, endless), "it has more than 50 KiB"},
		"it has empty files": {serveAll(t, func(http.ResponseWriter, *http.Request) {}),
			"it is not a signed OpenPGP message"},
		"it redirects to files": {serveAll(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		}), "unsupported protocol scheme"},
		"it is away":   {"http://127.0.0.1:1/signatures", "nothing answers there (connection refused)"},
		"no such host": {"http://store.invalid/", "there is no host store.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			err := verify(t, map[string]string{"verifier-public-key-shop": public(t, key), "store-shop": test.store})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %s", err, test.want)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

// TestSignaturesInTheCluster are found in both namespaces, by their label, though the store is away; and those that are
// persisted, too.
func TestSignaturesInTheCluster(t *testing.T) {
	key := newKey(t)
	good := sign(t, key, claim(image))
	data := map[string]string{"verifier-public-key-shop": public(t, key)}
	for _, namespace := range []string{"openshift-config-managed", "runlevel-system", "shop"} {
		mirrored := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace,
				Name:      "mirrored",
				Labels:    map[string]string{"release.openshift.io/verification-signatures": ""},
			},
			BinaryData: map[string][]byte{strings.Replace(image, ":", "-", 1) + "-1": good},
		}
		if err := verify(t, data, mirrored); (err == nil) != (namespace != "shop") {
			t.Errorf("in %s: %v", namespace, err)
		}
		mirrored.Labels = nil
		if err := verify(t, data, mirrored); err == nil {
			t.Error("a ConfigMap without the label counts")
		}
	}
	client := fake.NewClientset()
	for i := range 70 {
		must(t, signature.Persist(t.Context(), client.CoreV1(), "runlevel-system", fmt.Sprintf("sha256:%064d", i),
			[][]byte{good}))
	}
	must(t, signature.Persist(t.Context(), client.CoreV1(), "runlevel-system", image, [][]byte{good}))
	policy, err := signature.PolicyOf(release(t, data))
	must(t, err)
	must(t, verifyFrom(t, policy, client))
	kept, err := client.CoreV1().ConfigMaps("runlevel-system").Get(t.Context(), "signatures-managed",
		metav1.GetOptions{})
	must(t, err)
	if len(kept.BinaryData) != 64 {
		t.Errorf("signatures of %d images are kept", len(kept.BinaryData))
	}
}

// TestANamespaceThatMayNotBeRead checks that the stores are read even if the user may not read a namespace.
func TestANamespaceThatMayNotBeRead(t *testing.T) {
	key := newKey(t)
	client := fake.NewClientset()
	client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no"))
	})
	data := map[string]string{"verifier-public-key-shop": public(t, key), "store-shop": serve(t)}
	policy, err := signature.PolicyOf(release(t, data))
	must(t, err)
	if err := verifyFrom(t, policy, client); err == nil || !strings.Contains(err.Error(), "configmaps is forbidden") {
		t.Errorf("got error %v", err)
	}
	data["store-shop"] = serve(t, sign(t, key, claim(image)))
	policy, err = signature.PolicyOf(release(t, data))
	must(t, err)
	must(t, verifyFrom(t, policy, client))
}

// TestVerifyEndsWithItsContext checks that Verify ends when another update is requested.
func TestVerifyEndsWithItsContext(t *testing.T) {
	policy, err := signature.PolicyOf(
		release(t, map[string]string{"verifier-public-key-shop": public(t, newKey(t)), "store-shop": hang(t)}),
	)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := policy.Verify(ctx, image, signature.Stores{}); err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

// TestPolicies has releases whose policy can't be followed, and those that have none.
func TestPolicies(t *testing.T) {
	key := public(t, newKey(t))
	for name, test := range map[string]struct {
		data map[string]string
		want string
	}{
		"no keys": {map[string]string{"store-shop": "https://store.example"},
			"no key begins with verifier-public-key-"},
		"a broken key": {map[string]string{
			"verifier-public-key-shop": "-----BEGIN PGP",
			"store-shop":               "https://store.example",
		}, "key verifier-public-key-shop: no GPG public key"},
		"an empty key": {map[string]string{"verifier-public-key-shop": ""},
			"key verifier-public-key-shop: no GPG public key"},
		"a file as store": {map[string]string{"verifier-public-key-shop": key, "store-shop": "file:///etc"},
			"key store-shop: no URL with http:// or https://"},
		"no host": {map[string]string{"verifier-public-key-shop": key, "store-shop": "https:///etc"},
			"key store-shop: no URL"},
		"a broken PEM": {map[string]string{"sigstore-public-key-shop": key},
			`key sigstore-public-key-shop: no public ` +
				`keys in PEM: it has no valid block "-----BEGIN PUBLIC KEY-----"`},
		"no age": {map[string]string{"verifier-public-key-shop": key, "maximum-signature-age": "30d"},
			"key maximum-signature-age: no duration such as 720h"},
		"no repository": {map[string]string{"verifier-public-key-shop": key, "signed-repository": "shop"},
			"key signed-repository: no repository such as registry.example/shop"},
		"only keys":         {map[string]string{"verifier-public-key-shop": key}, ""},
		"something unknown": {map[string]string{"verifier-public-key-shop": key, "other": "x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			policy, err := signature.PolicyOf(release(t, test.data))
			if test.want == "" && (err != nil || policy == nil) ||
				test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got error %v, want %s", err, test.want)
			}
		})
	}
	const configMap = "{apiVersion: v1, kind: ConfigMap, metadata: {name: verification, namespace: shop%s}}"
	for annotations, isPolicy := range map[string]bool{
		"":                           false,
		", annotations: {other: ''}": false,
		", annotations: {release.openshift.io/verification-config-map: ''}":                                      true,
		", annotations: {release.openshift.io/verification-config-map: '', release.openshift.io/delete: 'true'}": false,
	} {
		overridden := payload.Options{Filter: payload.Filter{Overrides: []configv1.ComponentOverride{{
			Kind:      "ConfigMap",
			Namespace: "shop",
			Name:      "verification",
			Unmanaged: true,
		}}}}
		for _, options := range []payload.Options{{}, overridden} {
			policy, err := signature.PolicyOf(load(t, options, fmt.Sprintf(configMap, annotations)))
			if got := policy != nil || err != nil; got != isPolicy {
				t.Errorf("%q: %v, %v", annotations, policy, err)
			}
		}
	}
}

// TestTheCommandsOfTheDocumentation signs an image as docs/operator.md describes.
func TestTheCommandsOfTheDocumentation(t *testing.T) {
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("needs gpg")
	}
	text, err := os.ReadFile("../../../docs/operator.md")
	must(t, err)
	_, script, _ := strings.Cut(string(text), "<!-- how to sign -->\n```sh\n")
	script, _, exists := strings.Cut(script, "```")
	if !exists {
		t.Fatal("the documentation has no script")
	}
	folder, home := t.TempDir(), t.TempDir()
	must(t, os.Chmod(home, 0o700))
	t.Cleanup(func() { _ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run() })
	command := exec.CommandContext(t.Context(), "sh", "-euc", script)
	command.Dir, command.Env = folder, append(os.Environ(), "GNUPGHOME="+home, "IMAGE=registry.example/shop@"+image)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	key, err := os.ReadFile(filepath.Join(folder, "release-key.asc"))
	must(t, err)
	store := serveAll(t, http.StripPrefix("/signatures",
		http.FileServer(http.Dir(filepath.Join(folder, "signatures")))).ServeHTTP)
	must(t, verify(t, map[string]string{"verifier-public-key-shop": string(key), "store-shop": store}))
}

// FuzzSignature has answers of stores: none is taken for a signature, or ends the program.
func FuzzSignature(f *testing.F) {
	key := newKey(f)
	good := sign(f, newKey(f), claim(image))
	f.Add(good)
	f.Add(compress(f, good))
	policy, err := signature.PolicyOf(release(f, map[string]string{"verifier-public-key-shop": public(f, key)}))
	must(f, err)
	f.Fuzz(func(t *testing.T, text []byte) {
		response := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "runlevel-system",
				Name:      "any",
				Labels:    map[string]string{"release.openshift.io/verification-signatures": ""},
			},
			BinaryData: map[string][]byte{strings.Replace(image, ":", "-", 1) + "-1": text},
		}
		if verifyFrom(t, policy, fake.NewClientset(response)) == nil {
			t.Error("verified")
		}
	})
}
