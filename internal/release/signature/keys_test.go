package signature_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/openpgp"        //lint:ignore SA1019 tests write signatures with the same library
	"golang.org/x/crypto/openpgp/packet" //lint:ignore SA1019 as above

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
	"github.com/runlevel/runlevel/internal/release/signature/simplesigning"
)

// A repository has the image, and signatures beside it.
type repository struct {
	oci.Target
	t        testing.TB
	location oci.Location
	image    v1.Descriptor
}

func newRepository(t testing.TB) *repository {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	location, err := oci.ParseRegistry(strings.TrimPrefix(server.URL, "http://")+"/shop:1.4.0", true)
	must(t, err)
	target, err := oci.Create(t.Context(), location, oci.Options{Insecure: true})
	must(t, err)
	t.Cleanup(func() { must(t, target.Close()) })
	describe := func(kind types.MediaType, text string) v1.Descriptor {
		digest, size, err := v1.SHA256(strings.NewReader(text))
		must(t, err)
		return v1.Descriptor{MediaType: kind, Digest: digest, Size: size}
	}
	config := `{"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}`
	described := describe(types.OCIConfigJSON, config)
	must(t, target.PutBlob(t.Context(), described, func(int64) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(config)), nil
	}))
	raw, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: described, Layers: []v1.Descriptor{},
	})
	must(t, err)
	image := describe(types.OCIManifestSchema1, string(raw))
	must(t, target.PutManifest(t.Context(), image, raw, "1.4.0"))
	return &repository{target, t, location, image}
}

// places are where the policy finds the signatures.
func (r *repository) places() []signature.Images {
	return []signature.Images{{Name: "registry.example/shop", Open: func(ctx context.Context) (oci.Store, error) {
		return oci.Open(ctx, r.location, oci.Options{Insecure: true})
	}}}
}

// A signing is a signature to make.
type signing struct {
	key    keyPair
	format sigstore.Format
	claim  simplesigning.Claim // the defaults are those of a good signature
}

func (r *repository) sign(all ...signing) *repository {
	r.t.Helper()
	for _, item := range all {
		if item.claim.Digest == "" {
			item.claim.Digest = r.image.Digest.String()
		}
		key, err := sigstore.ParsePrivateKey([]byte(item.key.private), nil)
		must(r.t, err)
		if item.format == sigstore.Bundle {
			must(r.t, key.AddBundle(r.t.Context(), r, r.image, item.claim))
		} else {
			must(r.t, key.Attach(r.t.Context(), r, item.claim))
		}
	}
	return r
}

type keyPair struct{ private, public string }

func newKeyPair(t testing.TB) keyPair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(t, err)
	encode := func(kind string, content []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	return keyPair{encode("PRIVATE KEY", private), encode("PUBLIC KEY", public)}
}

// TestKeysOfCosign has the policies of releases with such keys, and what they refuse.
func TestKeysOfCosign(t *testing.T) {
	earlier, key, tester := newKeyPair(t), newKeyPair(t), newKeyPair(t)
	now := time.Now()
	named := simplesigning.Claim{Reference: "registry.example/shop:1.4.0", Time: now}
	shop := map[string]string{"sigstore-public-key-shop": key.public}
	with := func(more ...string) map[string]string {
		data := maps.Clone(shop)
		for i := 0; i < len(more); i += 2 {
			data[more[i]] = more[i+1]
		}
		return data
	}
	aged := func(age time.Duration) simplesigning.Claim {
		return simplesigning.Claim{Reference: named.Reference, Time: now.Add(-age)}
	}
	const attachment, bundle = sigstore.Attachment, sigstore.Bundle
	for name, test := range map[string]struct {
		data   map[string]string
		signed []signing
		want   string // empty if the policy accepts the image
	}{
		"an attachment": {shop, []signing{{key, attachment, named}}, ""},
		"a bundle":      {shop, []signing{{key, bundle, named}}, ""},
		"nothing":       {shop, nil, "no signature for it in registry.example/shop"},
		"rotated: both releases' keys, signed by the earlier one": {
			with("sigstore-public-key-shop", earlier.public+key.public), []signing{{earlier, attachment, named}}, "",
		},
		"rotated: both releases' keys, signed by the new one": {
			with("sigstore-public-key-shop", earlier.public+key.public), []signing{{key, bundle, named}}, "",
		},
		"revoked: the release has only the new key": {shop, []signing{{earlier, attachment, named}},
			"registry.example/shop cosign signature 1: it is not signed by a key of sigstore-public-key-shop, or damaged"},
		"revoked: a bundle": {shop, []signing{{earlier, bundle, named}},
			"which created it, is not in sigstore-public-key-shop"},
		"one of two entries": {with("sigstore-public-key-tester", tester.public), []signing{{key, bundle, named}},
			"against keyrings: sigstore-public-key-tester ("},
		"both entries": {with("sigstore-public-key-tester", tester.public),
			[]signing{{key, bundle, named}, {tester, attachment, named}}, ""},
		"young enough": {with("maximum-signature-age", "720h"), []signing{{key, attachment, aged(719 * time.Hour)}},
			""},
		"too old": {with("maximum-signature-age", "720h"), []signing{{key, attachment, aged(721 * time.Hour)}},
			", and maximum-signature-age is 720h0m0s"},
		"an old bundle": {with("maximum-signature-age", "1h"), []signing{{key, bundle, aged(2 * time.Hour)}},
			", and maximum-signature-age is 1h0m0s"},
		"of the future": {with("maximum-signature-age", "1h"), []signing{{key, bundle, aged(-time.Hour)}},
			"it was created at "},
		"without a time, as cosign signs": {with("maximum-signature-age", "1h"),
			[]signing{{key, bundle, simplesigning.Claim{}}}, "it has no time, and maximum-signature-age is 1h0m0s"},
		"without a time, and any age will do": {shop, []signing{{key, bundle, simplesigning.Claim{}}}, ""},
		"of the repository": {with("signed-repository", "registry.example/shop"),
			[]signing{{key, bundle, named}}, ""},
		"of another repository": {with("signed-repository", "registry.example/bank"),
			[]signing{{key, attachment, named}},
			"it is for another repository, registry.example/shop:1.4.0: signed-repository is registry.example/bank"},
		"of no repository, as cosign signs bundles": {with("signed-repository", "registry.example/shop"),
			[]signing{{key, bundle, simplesigning.Claim{}}},
			"it names no repository, and signed-repository is registry.example/shop"},
		"an entry of GPG as well": {with("verifier-public-key-shop", public(t, newKey(t))),
			[]signing{{key, bundle, named}}, "against keyrings: verifier-public-key-shop ("},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepository(t).sign(test.signed...)
			policy, err := signature.PolicyOf(release(t, test.data))
			must(t, err)
			_, err = policy.Verify(t.Context(), r.image.Digest.String(), signature.Stores{Images: r.places()})
			if test.want == "" {
				must(t, err)
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %s", err, test.want)
			}
		})
	}
}

// TestASignatureOfAnotherImage is one that was copied to the tag of this one.
func TestASignatureOfAnotherImage(t *testing.T) {
	key := newKeyPair(t)
	r := newRepository(t).sign(signing{
		key:   key,
		claim: simplesigning.Claim{Digest: another, Reference: "a.example/b:c"},
	})
	moved, err := r.Resolve(t.Context(), strings.Replace(another, ":", "-", 1)+".sig")
	must(t, err)
	raw, err := r.Manifest(t.Context(), moved)
	must(t, err)
	must(t, r.PutManifest(t.Context(), moved, raw, strings.Replace(r.image.Digest.String(), ":", "-", 1)+".sig"))
	policy, err := signature.PolicyOf(release(t, map[string]string{"sigstore-public-key-shop": key.public}))
	must(t, err)
	_, err = policy.Verify(t.Context(), r.image.Digest.String(), signature.Stores{Images: r.places()})
	if err == nil || !strings.Contains(err.Error(), "cosign signature 1: it is for another image, "+another) {
		t.Errorf("got error %v", err)
	}
}

// TestSignaturesInAMirror are found in the first mirror that has them; one that does not answer is only named if they
// are missing.
func TestSignaturesInAMirror(t *testing.T) {
	key := newKeyPair(t)
	r := newRepository(t)
	unreachable, err := oci.ParseRegistry("127.0.0.1:1/shop:1.4.0", true)
	must(t, err)
	mirror := signature.Images{Name: "mirror.example/shop", Open: func(ctx context.Context) (oci.Store, error) {
		return oci.Open(ctx, unreachable, oci.Options{Insecure: true})
	}}
	policy, err := signature.PolicyOf(release(t, map[string]string{"sigstore-public-key-shop": key.public}))
	must(t, err)
	from := signature.Stores{Images: append([]signature.Images{mirror}, r.places()...)}
	_, err = policy.Verify(t.Context(), r.image.Digest.String(), from)
	for _, want := range []string{"mirror.example/shop: ", "connection refused",
		"no signature for it in registry.example/shop"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
	r.sign(signing{key: key, claim: simplesigning.Claim{Reference: "registry.example/shop:1.4.0"}})
	_, err = policy.Verify(t.Context(), r.image.Digest.String(), from)
	must(t, err)
}

// TestKeysThatHaveExpired: a signature of an expired key is refused, although OpenShift's library accepts it. The time
// counts from the creation of the key, also if its expiry was changed later.
func TestKeysThatHaveExpired(t *testing.T) {
	created := func() time.Time { return time.Now().Add(-2 * time.Hour) }
	key, err := openpgp.NewEntity("release key", "", "release@example.com",
		&packet.Config{RSABits: 2048, Time: created})
	must(t, err)
	for lifetime, want := range map[time.Duration]string{
		time.Hour:     " in verifier-public-key-shop",
		3 * time.Hour: "",
	} {
		seconds := uint32(lifetime.Seconds())
		for _, identity := range key.Identities {
			own := identity.SelfSignature
			own.KeyLifetimeSecs, own.CreationTime = &seconds, time.Now()
			must(t, own.SignUserId(identity.UserId.Id, key.PrimaryKey, key.PrivateKey, nil))
		}
		err := verify(t, map[string]string{
			"verifier-public-key-shop": public(t, key), "store-shop": serve(t, sign(t, key, claim(image))),
		})
		if want == "" {
			must(t, err)
		} else if err == nil || !strings.Contains(err.Error(), "which created it, has expired at 20") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got error %v", err)
		}
	}
}

// TestTheAgeOfOpenPGPMessages is that of the signature, which was made an hour ago.
func TestTheAgeOfOpenPGPMessages(t *testing.T) {
	key := newKey(t)
	data := map[string]string{
		"verifier-public-key-shop": public(t, key), "store-shop": serve(t, sign(t, key, claim(image))),
		"maximum-signature-age": "59m",
	}
	if err := verify(t, data); err == nil || !strings.Contains(err.Error(), "and maximum-signature-age is 59m0s") {
		t.Errorf("got error %v", err)
	}
	data["maximum-signature-age"] = "61m"
	must(t, verify(t, data))
	data["signed-repository"] = "registry.example/bank"
	if err := verify(t, data); err == nil || !strings.Contains(err.Error(), "it is for another repository, registry.") {
		t.Errorf("got error %v", err)
	}
}
