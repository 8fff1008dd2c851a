package sigstore

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConformance has the bundles of sigstore's conformance tests. Those that need more than a key are refused.
func TestConformance(t *testing.T) {
	folder := os.Getenv("RUNLEVEL_TEST_CONFORMANCE")
	if folder == "" {
		t.Skip("set RUNLEVEL_TEST_CONFORMANCE to test/assets/bundle-verify of sigstore/sigstore-conformance")
	}
	bundles, err := filepath.Glob(filepath.Join(folder, "*", "bundle.sigstore.json"))
	if err != nil || len(bundles) == 0 {
		t.Fatalf("%s has no bundles: %v", folder, err)
	}
	accepted := 0
	for _, bundle := range bundles {
		folder, name := filepath.Dir(bundle), filepath.Base(filepath.Dir(bundle))
		t.Run(name, func(t *testing.T) {
			err := verifyFiles(folder)
			_, missing := os.Stat(filepath.Join(folder, "key.pub"))
			isGood := missing == nil && !strings.HasSuffix(name, "_fail")
			if (err == nil) != isGood {
				t.Errorf("got error %v", err)
			}
			if err == nil {
				accepted++
			}
		})
	}
	if accepted == 0 {
		t.Error("no bundle was accepted")
	}
}

func verifyFiles(folder string) error {
	text, err := os.ReadFile(filepath.Join(folder, "bundle.sigstore.json"))
	if err != nil {
		return err
	}
	artifact, err := os.ReadFile(filepath.Join(folder, "artifact"))
	if err != nil {
		artifact, err = os.ReadFile(filepath.Join(folder, "..", "a.txt"))
	}
	if err != nil {
		return err
	}
	key, _ := os.ReadFile(filepath.Join(folder, "key.pub"))
	keys, err := ParsePublicKeys(key)
	if err != nil {
		return err
	}
	signature := Signature{Format: Bundle}
	signature.Err = signature.parseBundle(text)
	_, err = signature.Verify(fmt.Sprintf("sha256:%x", sha256.Sum256(artifact)), "key.pub", keys)
	return err
}

// FuzzBundle has texts of bundles: none is verified, or ends the program.
func FuzzBundle(f *testing.F) {
	keys, err := ParsePublicKeys([]byte(`-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE/U28PFBDHVn/7VnXjYS1XMOeH8lM
RQm/b8CMwnINhw910ynkfctMv1+EHPW+eDEDWf4gMOCzwBcZcDFnpb0Qsw==
-----END PUBLIC KEY-----`))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "verificationMaterial": {"publicKey": {}},
		"messageSignature": {"messageDigest": {"algorithm": "SHA2_256", "digest": "AAAA"}, "signature": "MAYCAQECAQE="}}`))
	f.Add([]byte(`{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "verificationMaterial": {"publicKey": {}},
		"dsseEnvelope": {"payload": "e30=", "payloadType": "application/vnd.in-toto+json", "signatures": [{"sig": "AAAA"}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		signature := Signature{Format: Bundle}
		signature.Err = signature.parseBundle(text)
		if _, err := signature.Verify(signature.Claim.Digest, "key", keys); err == nil {
			t.Error("verified")
		}
	})
}
