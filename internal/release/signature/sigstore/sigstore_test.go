package sigstore_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
	"github.com/runlevel/runlevel/internal/release/signature/simplesigning"
)

// A repository is a place with an image.
type repository struct {
	oci.Target
	t        testing.TB
	name     string
	location oci.Location
	image    v1.Descriptor
}

// The kinds of places.
const (
	withReferrers    = "a registry with the referrers API"
	withoutReferrers = "a registry without the referrers API"
	inLayout         = "a layout"
	inArchive        = "an archive"
)

// newRepository returns a place of a kind, with an image.
func newRepository(t testing.TB, kind string) *repository {
	t.Helper()
	name := "registry.example/shop"
	location := oci.Location{Path: filepath.Join(t.TempDir(), "shop.tar")}
	switch kind {
	case inLayout:
		location.Path = t.TempDir() + "/shop"
	case withReferrers, withoutReferrers:
		server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)),
			registry.WithReferrersSupport(kind == withReferrers)))
		t.Cleanup(server.Close)
		name = strings.TrimPrefix(server.URL, "http://") + "/shop"
		var err error
		location, err = oci.ParseRegistry(name+":1.4.0", true)
		must(t, err)
	}
	target, err := oci.Create(t.Context(), location, oci.Options{Insecure: true})
	must(t, err)
	t.Cleanup(func() { must(t, target.Close()) })
	r := &repository{Target: target, t: t, name: name, location: location}
	config := r.put(types.OCIConfigJSON,
		[]byte(`{"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}`))
	r.image = r.putManifest(v1.Manifest{Config: config, Layers: []v1.Descriptor{}}, "1.4.0")
	return r
}

// put writes a blob.
func (r *repository) put(kind types.MediaType, content []byte) v1.Descriptor {
	r.t.Helper()
	digest, size, err := v1.SHA256(bytes.NewReader(content))
	must(r.t, err)
	described := v1.Descriptor{MediaType: kind, Digest: digest, Size: size}
	must(r.t, r.PutBlob(r.t.Context(), described, func(int64) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}))
	return described
}

func (r *repository) putManifest(manifest v1.Manifest, tag string) v1.Descriptor {
	r.t.Helper()
	manifest.SchemaVersion, manifest.MediaType = 2, types.OCIManifestSchema1
	if manifest.Config.Size == 0 {
		manifest.Config = r.put("application/vnd.oci.empty.v1+json", []byte("{}"))
	}
	return r.putJSON(manifest.MediaType, manifest, tag)
}

// putJSON writes a manifest or an index.
func (r *repository) putJSON(kind types.MediaType, content any, tag string) v1.Descriptor {
	r.t.Helper()
	raw, err := json.Marshal(content)
	must(r.t, err)
	digest, size, err := v1.SHA256(bytes.NewReader(raw))
	must(r.t, err)
	described := v1.Descriptor{MediaType: kind, Digest: digest, Size: size}
	must(r.t, r.PutManifest(r.t.Context(), described, raw, tag))
	return described
}

// claim returns a claim about the image.
func (r *repository) claim() simplesigning.Claim {
	return simplesigning.Claim{Digest: r.image.Digest.String(), Reference: r.name + ":1.4.0", Time: time.Now()}
}

// sign signs the image in both formats.
func (r *repository) sign(key *sigstore.PrivateKey) {
	r.t.Helper()
	must(r.t, key.Attach(r.t.Context(), r, r.claim()))
	must(r.t, key.AddBundle(r.t.Context(), r, r.image, r.claim()))
}

// find returns the signatures of the image.
func (r *repository) find() []sigstore.Signature {
	r.t.Helper()
	must(r.t, r.Commit(r.t.Context()))
	store, err := oci.Open(r.t.Context(), r.location, oci.Options{Insecure: true})
	must(r.t, err)
	defer store.Close()
	only, err := store.Resolve(r.t.Context(), r.location.Identifier)
	must(r.t, err)
	if only.Digest != r.image.Digest {
		r.t.Errorf("the image is %s", only.Digest)
	}
	found, err := sigstore.Find(r.t.Context(), store, r.image.Digest.String())
	must(r.t, err)
	return found
}

// A pair is a key pair, as PEM.
type pair struct{ private, public string }

// newPair returns a key pair, in the most common encoding.
func newPair(t testing.TB, key crypto.Signer) pair {
	t.Helper()
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	must(t, err)
	return pair{encode("PRIVATE KEY", private), encode("PUBLIC KEY", public)}
}

func encode(kind string, content []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
}

func newECDSA(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	must(t, err)
	return key
}

func (p pair) key(t testing.TB) *sigstore.PrivateKey {
	t.Helper()
	key, err := sigstore.ParsePrivateKey([]byte(p.private), nil)
	must(t, err)
	return key
}

func (p pair) keys(t testing.TB, others ...pair) []sigstore.PublicKey {
	t.Helper()
	text := p.public
	for _, other := range others {
		text += other.public
	}
	keys, err := sigstore.ParsePublicKeys([]byte(text))
	must(t, err)
	return keys
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// allPairs returns a key pair of each kind and encoding.
func allPairs(t testing.TB) map[string]pair {
	t.Helper()
	large, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	p256 := newECDSA(t, elliptic.P256())
	sec1, err := x509.MarshalECPrivateKey(p256)
	must(t, err)
	pairs := map[string]pair{
		"P-256":   newPair(t, p256),
		"P-384":   newPair(t, newECDSA(t, elliptic.P384())),
		"P-521":   newPair(t, newECDSA(t, elliptic.P521())),
		"Ed25519": newPair(t, edwards),
		"RSA":     newPair(t, large),
	}
	pairs["SEC 1, as openssl ecparam writes it"] = pair{
		encode("EC PARAMETERS", []byte("any")) + encode("EC PRIVATE KEY", sec1), pairs["P-256"].public,
	}
	pairs["PKCS #1"] = pair{
		encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(large)),
		encode("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&large.PublicKey)),
	}
	return pairs
}

// TestKeys signs with each kind of key, in each kind of place.
func TestKeys(t *testing.T) {
	stranger := newPair(t, newECDSA(t, elliptic.P256()))
	for name, pair := range allPairs(t) {
		for _, place := range []string{withReferrers, withoutReferrers, inLayout, inArchive} {
			t.Run(name+" "+place, func(t *testing.T) {
				r := newRepository(t, place)
				r.sign(pair.key(t))
				found := r.find()
				if len(found) != 2 || found[0].Format != sigstore.Attachment || found[1].Format != sigstore.Bundle {
					t.Fatalf("found %+v", found)
				}
				for _, signature := range found {
					isCommon, err := signature.Verify(r.image.Digest.String(), "cosign.pub", pair.keys(t, stranger))
					must(t, err)
					claim := signature.Claim
					if !isCommon || claim.Reference != r.name+":1.4.0" ||
						time.Since(claim.Time) > time.Minute {
						t.Errorf("%s: got %+v", signature.Format, claim)
					}
					if _, err := signature.Verify(r.image.Digest.String(), "cosign.pub",
						stranger.keys(t)); err == nil ||
						!strings.Contains(err.Error(), "cosign.pub") {
						t.Errorf("%s: verified by another key: %v", signature.Format, err)
					}
					another := "sha256:" + strings.Repeat("b", 64)
					if _, err := signature.Verify(another, "cosign.pub", pair.keys(t)); err == nil ||
						!strings.Contains(err.Error(), "it is for another image, "+r.image.Digest.String()) {
						t.Errorf("%s: verified for another image: %v", signature.Format, err)
					}
				}
			})
		}
	}
}

// TestSignaturesOfSeveralKeysStay signs with two keys, and a second time with the first one.
func TestSignaturesOfSeveralKeysStay(t *testing.T) {
	r := newRepository(t, withReferrers)
	first, second := newPair(t, newECDSA(t, elliptic.P256())), newPair(t, newECDSA(t, elliptic.P384()))
	for _, pair := range []pair{first, second, first} {
		must(t, pair.key(t).Attach(t.Context(), r, r.claim()))
	}
	found := r.find()
	if len(found) != 2 {
		t.Fatalf("found %d signatures", len(found))
	}
	for i, pair := range []pair{second, first} {
		if _, err := found[i].Verify(r.image.Digest.String(), "", pair.keys(t)); err != nil {
			t.Error(err)
		}
	}
}

// A slowTarget has another signer write to the tag while this one does.
type slowTarget struct {
	oci.Target
	meanwhile func()
}

// PutManifest implements oci.Target.
func (s *slowTarget) PutManifest(ctx context.Context, described v1.Descriptor, raw []byte, tag string) error {
	if err := s.Target.PutManifest(ctx, described, raw, tag); err != nil || s.meanwhile == nil {
		return err
	}
	meanwhile := s.meanwhile
	s.meanwhile = nil
	meanwhile()
	return nil
}

// TestSignersAtTheSameTime keep the signature of each other.
func TestSignersAtTheSameTime(t *testing.T) {
	r := newRepository(t, withReferrers)
	tag := strings.Replace(r.image.Digest.String(), ":", "-", 1) + ".sig"
	first, second := newPair(t, newECDSA(t, elliptic.P256())), newPair(t, newECDSA(t, elliptic.P256()))
	must(t, second.key(t).Attach(t.Context(), r, r.claim()))
	before, err := r.Resolve(t.Context(), tag)
	must(t, err)
	raw, err := r.Manifest(t.Context(), before)
	must(t, err)
	must(t, first.key(t).Attach(t.Context(), &slowTarget{r, func() {
		must(t, r.PutManifest(t.Context(), before, raw, tag))
	}}, r.claim()))
	if found := r.find(); len(found) != 2 {
		t.Errorf("found %d signatures", len(found))
	}
}

// TestSigningBesideOthers: what can't be read is kept, and no index is overwritten.
func TestSigningBesideOthers(t *testing.T) {
	r := newRepository(t, withReferrers)
	tag := strings.Replace(r.image.Digest.String(), ":", "-", 1) + ".sig"
	key := newPair(t, newECDSA(t, elliptic.P256())).key(t)
	missing := v1.Descriptor{MediaType: "text/plain", Size: 1 << 20, Digest: r.image.Digest}
	r.putManifest(v1.Manifest{Layers: []v1.Descriptor{missing}}, tag)
	must(t, key.Attach(t.Context(), r, r.claim()))
	described, err := r.Resolve(t.Context(), tag)
	must(t, err)
	raw, err := r.Manifest(t.Context(), described)
	must(t, err)
	if found := r.find(); len(found) != 1 || !strings.Contains(string(raw), "text/plain") {
		t.Errorf("found %+v in %s", found, raw)
	}
	r.putJSON(types.OCIImageIndex, v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}, tag)
	err = key.Attach(t.Context(), r, r.claim())
	if err == nil || !strings.Contains(err.Error(), tag+": it is an index") {
		t.Errorf("got error %v", err)
	}
}

// TestPrivateKeysThatAreRefused has the message of each.
func TestPrivateKeysThatAreRefused(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	must(t, err)
	for name, test := range map[string]struct{ text, want string }{
		"nothing":       {"", `no "-----BEGIN … PRIVATE KEY-----"`},
		"a public key":  {newPair(t, newECDSA(t, elliptic.P256())).public, "it is a public key"},
		"a certificate": {encode("CERTIFICATE", []byte("any")), `it has a block "CERTIFICATE"`},
		"a small one":   {newPair(t, small).private, "an RSA key of 1024 bits: use one of 2048 or more"},
		"another curve": {newPair(t, newECDSA(t, elliptic.P224())).private, "it is of curve P-224: use P-256"},
		"PKCS #8":       {encode("ENCRYPTED PRIVATE KEY", nil), "its encryption is not supported"},
		"no JSON":       {encode("ENCRYPTED SIGSTORE PRIVATE KEY", []byte("any")), "it is damaged"},
		"costly": {encode("ENCRYPTED SIGSTORE PRIVATE KEY", []byte(costly)),
			"cosign does not encrypt keys in this way"},
		"wrong password": {encryptedKey, sigstore.ErrWrongPassword.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sigstore.ParsePrivateKey([]byte(test.text), func() ([]byte, error) {
				return []byte("wrong"), nil
			})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %s", err, test.want)
			}
		})
	}
	interrupted := errors.New("interrupted")
	_, err = sigstore.ParsePrivateKey([]byte(encryptedKey), func() ([]byte, error) { return nil, interrupted })
	if !errors.Is(err, interrupted) {
		t.Errorf("got error %v", err)
	}
}

// TestPublicKeysThatAreRefused has the message of each.
func TestPublicKeysThatAreRefused(t *testing.T) {
	key := newPair(t, newECDSA(t, elliptic.P256()))
	for text, want := range map[string]string{
		"": `it has no valid block "-----BEGIN PUBLIC KEY-----"`,
		key.public + strings.Replace(key.public, "\nM", "\n*", 1):              "one of its blocks is damaged",
		key.public + strings.Replace(key.public, "-----BEGIN", "----BEGIN", 1): "one of its blocks is damaged",
		key.private: `it has a block "PRIVATE KEY"`,
	} {
		if _, err := sigstore.ParsePublicKeys([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

// costly is an encrypted key whose decryption would take 8 TiB of memory.
const costly = `{"kdf": {"name": "scrypt", "params": {"N": 8589934592, "r": 8, "p": 1}, "salt": "AAAA"}, "cipher": ` +
	`{"name": "nacl/secretbox", "nonce": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}, "ciphertext": "AAAA"}`

// TestAKeyThatCosignHasEncrypted signs with a key of "cosign generate-key-pair".
func TestAKeyThatCosignHasEncrypted(t *testing.T) {
	for _, kind := range []string{"SIGSTORE", "COSIGN"} {
		text := strings.ReplaceAll(encryptedKey, "SIGSTORE", kind)
		key, err := sigstore.ParsePrivateKey([]byte(text), func() ([]byte, error) { return []byte("secret"), nil })
		must(t, err)
		r := newRepository(t, withReferrers)
		r.sign(key)
		for _, signature := range r.find() {
			_, err := signature.Verify(r.image.Digest.String(), "", pair{public: publicOfEncrypted}.keys(t))
			must(t, err)
		}
		if key.Hint() != "QUZZSXXY4kYKwTvoHve5wHC+/gdYIpEFX3y+FHHjq+o=" {
			t.Errorf("cosign has another hint for the key than %s", key.Hint())
		}
	}
}

// A key of "cosign generate-key-pair" for this test, whose password is "secret".
const (
	encryptedKey = `-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----
eyJrZGYiOnsibmFtZSI6InNjcnlwdCIsInBhcmFtcyI6eyJOIjo2NTUzNiwiciI6
OCwicCI6MX0sInNhbHQiOiJkZko1R1RvL2pXSUpOVHZsdlZQR0l0ZW0zMG44UzFT
U1RHR0J5cEJucFFjPSJ9LCJjaXBoZXIiOnsibmFtZSI6Im5hY2wvc2VjcmV0Ym94
Iiwibm9uY2UiOiJNanFNNXNSTTlHWDJML0ZCQkJyeWdQUnduWHlSNHB1eCJ9LCJj
aXBoZXJ0ZXh0IjoiVCtDTXRmUm55MVAxWUg1WVJ0VElzMTRXWnNmMkJsVEJzZ041
YmlhYnRBczlhL09mNDA3ZEVvSXEvUGo5eWE3TW1DZG4zc2cvcnlZV2xnRm5KNitN
MnA2SDA5RWJ3d2tZTDRudmFLWjA5anVTU0VSOFJaK1dnL2lmTmZJbjRaa1k1UTVv
WjN2a1JFZjhQWFBRck1XZEJtV3lFQUlUcVQ2NmxLdnpOTVhYOTNpODM5RVprTjFi
UVVpanVNQURqNm5oWS9GdWhOK0pDdVVhWXc9PSJ9
-----END ENCRYPTED SIGSTORE PRIVATE KEY-----
`
	publicOfEncrypted = `-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE/U28PFBDHVn/7VnXjYS1XMOeH8lM
RQm/b8CMwnINhw910ynkfctMv1+EHPW+eDEDWf4gMOCzwBcZcDFnpb0Qsw==
-----END PUBLIC KEY-----
`
)

// TestHostileRegistries has answers of a registry instead of signatures, and the error of each.
func TestHostileRegistries(t *testing.T) {
	signer := newECDSA(t, elliptic.P256())
	key := newPair(t, signer)
	claim := func(r *repository, change func(text string) string) v1.Descriptor {
		return r.put(simpleSigning, []byte(change(string(r.claim().Text(simplesigning.Cosign)))))
	}
	signed := map[string]string{"dev.cosignproject.cosign/signature": "AAAA"}
	tag := func(r *repository) string { return strings.Replace(r.image.Digest.String(), ":", "-", 1) + ".sig" }
	same := func(text string) string { return text }
	for name, test := range map[string]struct {
		put  func(r *repository)
		want string
	}{
		"another key or damaged": {func(r *repository) {
			layer := claim(r, same)
			layer.Annotations = signed
			r.putManifest(v1.Manifest{Layers: []v1.Descriptor{layer}}, tag(r))
		}, "it is not signed by a key of cosign.pub, or damaged"},
		"no signature": {func(r *repository) {
			layer := claim(r, same)
			layer.Annotations = map[string]string{"dev.cosignproject.cosign/signature": "no base64"}
			r.putManifest(v1.Manifest{Layers: []v1.Descriptor{layer}}, tag(r))
		}, "illegal base64"},
		"an OpenPGP text": {func(r *repository) {
			layer := claim(r, func(text string) string {
				return strings.Replace(text, string(simplesigning.Cosign), string(simplesigning.OpenPGP), 1)
			})
			r.putManifest(v1.Manifest{Layers: []v1.Descriptor{layer}}, tag(r))
		}, `not an "cosign container image signature"`},
		"a large text": {func(r *repository) {
			layer := claim(r, func(text string) string { return text + strings.Repeat(" ", 64<<10) })
			r.putManifest(v1.Manifest{Layers: []v1.Descriptor{layer}}, tag(r))
		}, "it has more than 64 KiB"},
		"a missing text": {func(r *repository) {
			layer := claim(r, same)
			layer.Digest.Hex = strings.Repeat("c", 64)
			r.putManifest(v1.Manifest{Layers: []v1.Descriptor{layer}}, tag(r))
		}, "the registry doesn't have it"},
		"a bundle without JSON": {func(r *repository) { r.putBundle("any text") }, "it is not a JSON bundle"},
		"a bundle of the future": {func(r *repository) {
			r.putBundle(`{"mediaType": "application/vnd.dev.sigstore.bundle.v9+json"}`)
		}, "only version 0.3"},
		"a bundle without anything": {func(r *repository) {
			r.putBundle(`{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json"}`)
		}, "either a dsseEnvelope or"},
		"a bundle of a file": {func(r *repository) {
			sum, err := hex.DecodeString(r.image.Digest.Hex)
			must(t, err)
			signed, err := signer.Sign(rand.Reader, sum, crypto.SHA256)
			must(t, err)
			encode := base64.StdEncoding.EncodeToString
			r.putBundle(`{"mediaType": "` + string(bundleType) + `", "verificationMaterial": {"publicKey": {}}, ` +
				`"messageSignature": {"messageDigest": {"algorithm": "SHA2_256", "digest": "` + encode(sum) +
				`"}, "signature": "` + encode(signed) + `"}}`)
		}, `it signs a file, not an image: sign with "cosign sign"`},
		"a bundle with a certificate": {func(r *repository) {
			r.changeBundle(key, `"publicKey":{"hint":"`, `"certificate":{"rawBytes":"`)
		}, "it is made with a certificate instead of a key"},
		"a bundle of another statement": {func(r *repository) {
			r.changeBundle(key, `application/vnd.in-toto+json","signatures`, `application/json","signatures`)
		}, "its content is not an in-toto statement"},
		"a bundle with another signature": {func(r *repository) {
			r.changeBundle(key, `"sig":"M`, `"sig":"N`)
		}, "it is forged or damaged"},
		"a large bundle": {func(r *repository) {
			r.putBundle(strings.Repeat(" ", 256<<10+1))
		}, "it has more than 256 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepository(t, withReferrers)
			test.put(r)
			found := r.find()
			if len(found) != 1 {
				t.Fatalf("found %d signatures", len(found))
			}
			_, err := found[0].Verify(r.image.Digest.String(), "cosign.pub", key.keys(t))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %s", err, test.want)
			}
		})
	}
}

const (
	simpleSigning types.MediaType = "application/vnd.dev.cosign.simplesigning.v1+json"
	bundleType    types.MediaType = "application/vnd.dev.sigstore.bundle.v0.3+json"
)

// putBundle adds a bundle with a text.
func (r *repository) putBundle(text string) {
	r.t.Helper()
	r.putManifest(v1.Manifest{
		ArtifactType: string(bundleType), Subject: &r.image,
		Layers: []v1.Descriptor{r.put(bundleType, []byte(text))},
	}, "")
}

// changeBundle adds a bundle that was changed after it was signed.
func (r *repository) changeBundle(key pair, before, after string) {
	r.t.Helper()
	signed := newRepository(r.t, withReferrers)
	signed.image = r.image
	must(r.t, key.key(r.t).AddBundle(r.t.Context(), signed, r.image, r.claim()))
	referrers, err := signed.Referrers(r.t.Context(), r.image.Digest)
	must(r.t, err)
	raw, err := signed.Manifest(r.t.Context(), referrers[0])
	must(r.t, err)
	var manifest v1.Manifest
	must(r.t, json.Unmarshal(raw, &manifest))
	blob, err := signed.Blob(r.t.Context(), manifest.Layers[0], 0)
	must(r.t, err)
	defer blob.Close()
	text, err := io.ReadAll(blob)
	must(r.t, err)
	if !strings.Contains(string(text), before) {
		r.t.Fatalf("the bundle has no %s: %s", before, text)
	}
	r.putBundle(strings.Replace(string(text), before, after, 1))
}

// TestTooManySignatures are refused without reading them.
func TestTooManySignatures(t *testing.T) {
	r := newRepository(t, withReferrers)
	layers := make([]v1.Descriptor, 51)
	for i := range layers {
		layers[i] = r.put(simpleSigning, fmt.Append(nil, i))
	}
	tag := strings.Replace(r.image.Digest.String(), ":", "-", 1) + ".sig"
	r.putManifest(v1.Manifest{Layers: layers}, tag)
	_, err := sigstore.Find(t.Context(), r, r.image.Digest.String())
	if want := tag + ": it has more than 50 signatures, which is the limit"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	if err := newPair(t, newECDSA(t, elliptic.P256())).key(t).Attach(t.Context(), r, r.claim()); err == nil {
		t.Error("one more was added")
	}
	r = newRepository(t, withReferrers)
	for i := range 51 {
		r.putBundle(fmt.Sprint(i))
	}
	found, err := sigstore.Find(t.Context(), r, r.image.Digest.String())
	if want := "bundles: there are more than 50, which is the limit"; err == nil || err.Error() != want ||
		len(found) != 50 {
		t.Errorf("got %d and error %v, want %s", len(found), err, want)
	}
	r = newRepository(t, withReferrers)
	for i := range 50 {
		r.putBundle(fmt.Sprint(i))
	}
	key := newPair(t, newECDSA(t, elliptic.P256())).key(t)
	if err := key.AddBundle(t.Context(), r, r.image, r.claim()); err == nil ||
		!strings.Contains(err.Error(), "the image has 50 bundles already, which is the limit") {
		t.Errorf("got error %v", err)
	}
}

// TestAttestationsAreNoSignatures: a bundle with provenance of the same key does not count.
func TestAttestationsAreNoSignatures(t *testing.T) {
	r := newRepository(t, withReferrers)
	r.putBundle(`{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "verificationMaterial": {"publicKey": ` +
		`{"hint": "x"}}, "dsseEnvelope": {"payloadType": "application/vnd.in-toto+json", "signatures": [{"sig": "AAAA"}], ` +
		`"payload": "eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEiLCJwcmVkaWNhdGVUeXBlIjoiaHR0cHM6Ly9zbHNhLmRldi9wcm92ZW5hbmNlL3YxIn0="}}`)
	found := r.find()
	if len(found) != 1 || found[0].Format != sigstore.Attestation {
		t.Fatalf("found %+v", found)
	}
	if _, err := found[0].Verify(r.image.Digest.String(), "", nil); err == nil {
		t.Error("verified")
	}
}
