package release_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/openpgp"        //lint:ignore SA1019 tests write keys with the library that verifies them
	"golang.org/x/crypto/openpgp/armor"  //lint:ignore SA1019 as above
	"golang.org/x/crypto/openpgp/packet" //lint:ignore SA1019 as above
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
)

// TestOpenShiftsClientAcceptsASignature mirrors a signed release with OpenShift's client, which verifies the signature
// by the keys and the store that the release names, and compares the ConfigMap that it writes with ours.
func TestOpenShiftsClientAcceptsASignature(t *testing.T) {
	images := imageregistry.Start()
	t.Cleanup(images.Close)
	folder := t.TempDir()
	signatures := filepath.Join(folder, "signatures")
	store := httptest.NewServer(http.FileServer(http.Dir(signatures)))
	t.Cleanup(store.Close)
	write := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret, public := openPGPKey(t)
	key := write("release.gpg", secret)
	verification, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": "verification", "namespace": "shop",
			"annotations": map[string]string{"release.openshift.io/verification-config-map": ""},
		},
		"data": map[string]string{"verifier-public-key-shop": string(public), "store-shop": store.URL},
	})
	if err != nil {
		t.Fatal(err)
	}
	write("web/0000_10_web_verification.yaml", verification)
	write("web/0000_05_web_namespace.yaml", []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"))
	write("release.yaml", []byte("name: shop\nversion: 1.4.0\ncomponents:\n- {name: web, source: ./web}\nimages:\n  web: "+
		push(t, images, "shop/web", imageOf(t, layerOf('w', 1000)))+"\n"))

	mustRun(t, "build", folder, "--to", images.Host+"/shop/release", "--insecure")
	tag := images.Host + "/shop/release:1.4.0"
	ref := images.Host + "/shop/release@" + describe(t, tag, "--insecure").Digest
	mustRun(t, "sign", tag, "--openpgp-key", key, "--openpgp-to", signatures, "--insecure")
	oc(t, "mirror", "--from", ref, "--to", images.Host+"/mirror", "--insecure", "--release-image-signature-to-dir",
		filepath.Join(folder, "oc"))
	mustRun(t, "mirror", tag, filepath.Join(folder, "carry"), "--insecure")
	mustRun(t, "mirror", filepath.Join(folder, "carry"), images.Host+"/own", "--insecure", "--config-dir",
		filepath.Join(folder, "own"))

	want := signaturesIn(t, filepath.Join(folder, "oc"))
	have := signaturesIn(t, filepath.Join(folder, "own"))
	if diff := cmp.Diff(want, have); diff != "" || len(have) != 1 {
		t.Errorf("signatures in ConfigMaps, -oc +runlevel:\n%s", diff)
	}
}

func mustRun(t *testing.T, args ...string) {
	t.Helper()
	if code, _, problems := run(t, args...); code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, problems)
	}
}

// openPGPKey returns a key pair, the public key ASCII-armored.
func openPGPKey(t *testing.T) (secret, public []byte) {
	t.Helper()
	key, err := openpgp.NewEntity("release", "", "release@example.com", &packet.Config{RSABits: 2048})
	if err != nil {
		t.Fatal(err)
	}
	var private, text bytes.Buffer
	if err := key.SerializePrivate(&private, nil); err != nil {
		t.Fatal(err)
	}
	out, err := armor.Encode(&text, openpgp.PublicKeyType, nil)
	if err == nil {
		err = key.Serialize(out)
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return private.Bytes(), text.Bytes()
}

// signaturesIn returns the signatures in the ConfigMaps of a folder.
func signaturesIn(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	files, err := filepath.Glob(filepath.Join(folder, "signature*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil { // the folder of a store
			continue
		}
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			var configMap corev1.ConfigMap
			plain, err := yaml.YAMLToJSON([]byte(document))
			if err == nil {
				err = json.Unmarshal(plain, &configMap)
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			for key, signature := range configMap.BinaryData {
				found[key] = signature
			}
		}
	}
	return found
}
