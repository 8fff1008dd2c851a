package signature_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
	"github.com/runlevel/runlevel/internal/release/signature/simplesigning"
)

// A report has the verdicts on an image.
type report map[signature.Consumer]signature.Verdict

// judge returns the verdicts on an image, and checks that the operator's is that of the operator.
func judge(t testing.TB, data map[string]string, image signature.Image, from signature.Stores) report {
	t.Helper()
	policy, err := signature.PolicyOf(release(t, data))
	must(t, err)
	all, err := policy.Judge(t.Context(), image, from)
	must(t, err)
	verdicts := report{}
	for _, verdict := range all {
		verdicts[verdict.Consumer] = verdict
	}
	_, err = policy.Verify(t.Context(), image.Digest, from)
	if got := verdicts[signature.Operator]; (err == nil) != got.Accepts ||
		err != nil && !strings.HasSuffix(err.Error(), got.Reason) {
		t.Errorf("got %+v, but the operator has error %v", got, err)
	}
	return verdicts
}

// wants checks the verdict of a consumer: that it accepts the image, or refuses it for a reason.
func wants(t testing.TB, verdicts report, consumer signature.Consumer, want string) {
	t.Helper()
	if got := verdicts[consumer]; got.Accepts != (want == "") || !strings.Contains(got.Reason, want) {
		t.Errorf("got %+v, want %s", got, want)
	}
}

// TestWhoAcceptsATextOfAMessage: podman and CRI-O are the strictest consumers.
func TestWhoAcceptsATextOfAMessage(t *testing.T) {
	key := newKey(t)
	const noClaim = `its content is not an "atomic container signature"`
	const optional = `"optional": {"creator": "test"}`
	for name, test := range map[string]struct{ before, after, operator, crio string }{
		"a good one":           {"", "", "", ""},
		"without optional":     {", " + optional, "", "", `needs "optional": {}`},
		"with optional null":   {optional, `"optional": null`, "", `needs "optional": {}`},
		"a fraction of time":   {optional, `"optional": {"timestamp": 1.5}`, noClaim, noClaim},
		"two images":           {`"image": {`, `"image": {}, "image": {`, noClaim, noClaim},
		"keys in another case": {`"critical"`, `"Critical"`, noClaim, noClaim},
		"a text after it":      {optional + "}", optional + "}{}", noClaim, noClaim},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			text := sign(t, key, strings.Replace(claim(image), test.before, test.after, 1))
			_, err := signature.AddTo(folder, image, text)
			must(t, err)
			verdicts := judge(t, map[string]string{"verifier-public-key-shop": public(t, key)},
				signature.Image{Digest: image}, signature.Stores{Files: []string{folder}})
			wants(t, verdicts, signature.Operator, test.operator)
			wants(t, verdicts, signature.CRIO, test.crio)
		})
	}
}

// TestNodesNeedAMessageOfTheirPlatform, not of the index.
func TestNodesNeedAMessageOfTheirPlatform(t *testing.T) {
	key, folder := newKey(t), t.TempDir()
	for _, test := range []struct{ digest, want string }{
		{image, "no signature in the format that it reads"}, {another, ""},
	} {
		_, err := signature.AddTo(folder, test.digest, sign(t, key, claim(test.digest)))
		must(t, err)
		verdicts := judge(t, map[string]string{"verifier-public-key-shop": public(t, key)},
			signature.Image{Digest: image, Platforms: []string{another}}, signature.Stores{Files: []string{folder}})
		wants(t, verdicts, signature.Operator, "")
		wants(t, verdicts, signature.ClusterVersionOperator, "")
		wants(t, verdicts, signature.CRIO, test.want)
	}
	verdicts := judge(t, map[string]string{"verifier-public-key-shop": public(t, key)},
		signature.Image{Digest: image, Platforms: make([]string, 129)}, signature.Stores{Files: []string{folder}})
	wants(t, verdicts, signature.Operator, "")
	wants(t, verdicts, signature.CRIO, "the index has more than 128 images")
}

// TestOnlyTheFirstKeyOfAFile is read by programs that have one key.
func TestOnlyTheFirstKeyOfAFile(t *testing.T) {
	first, second := newKeyPair(t), newKeyPair(t)
	named := simplesigning.Claim{Reference: "registry.example/shop:1.4.0"}
	r := newRepository(t).sign(signing{second, sigstore.Attachment, named}, signing{second, sigstore.Bundle, named})
	verdicts := judge(t, map[string]string{"sigstore-public-key-shop": first.public + second.public},
		signature.Image{Digest: r.image.Digest.String()}, signature.Stores{Images: r.places()})
	wants(t, verdicts, signature.Operator, "")
	for _, consumer := range []signature.Consumer{signature.CRIO, signature.Cosign2, signature.Cosign3} {
		wants(t, verdicts, consumer, "it reads only the first key of a file")
	}
}

// TestCosignWithAnAttestation: its version 3 reads attachments only of images without any bundle.
func TestCosignWithAnAttestation(t *testing.T) {
	key := newKeyPair(t)
	r := newRepository(t).sign(signing{key: key, claim: simplesigning.Claim{Reference: "registry.example/shop:1.4.0"}})
	from := signature.Stores{Images: r.places()}
	data := map[string]string{"sigstore-public-key-shop": key.public}
	image := signature.Image{Digest: r.image.Digest.String()}
	wants(t, judge(t, data, image, from), signature.Cosign3, "")
	raw, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Subject: &r.image, Layers: []v1.Descriptor{},
		Config:       v1.Descriptor{MediaType: "application/vnd.dev.sigstore.bundle.v0.3+json", Digest: r.image.Digest},
		ArtifactType: "application/vnd.dev.sigstore.bundle.v0.3+json",
		Annotations:  map[string]string{"dev.sigstore.bundle.predicateType": "https://slsa.dev/provenance/v1"},
	})
	must(t, err)
	digest, size, err := v1.SHA256(strings.NewReader(string(raw)))
	must(t, err)
	described := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, Size: size}
	must(t, r.PutManifest(t.Context(), described, raw, ""))
	verdicts := judge(t, data, image, from)
	wants(t, verdicts, signature.Cosign2, "")
	wants(t, verdicts, signature.Cosign3, "no signature in the format that it reads was found")
}

// TestNodesNeedEveryAttachment: one that can't be read is no signature for others, but the end for a node.
func TestNodesNeedEveryAttachment(t *testing.T) {
	key := newKeyPair(t)
	r := newRepository(t).sign(signing{key: key, claim: simplesigning.Claim{Reference: "registry.example/shop:1.4.0"}})
	tag := strings.Replace(r.image.Digest.String(), ":", "-", 1) + ".sig"
	described, err := r.Resolve(t.Context(), tag)
	must(t, err)
	raw, err := r.Manifest(t.Context(), described)
	must(t, err)
	var manifest v1.Manifest
	must(t, json.Unmarshal(raw, &manifest))
	missing := manifest.Layers[0]
	missing.Digest.Hex = strings.Repeat("0", 64)
	manifest.Layers = append(manifest.Layers, missing)
	raw, err = json.Marshal(manifest)
	must(t, err)
	described.Digest, described.Size, err = v1.SHA256(strings.NewReader(string(raw)))
	must(t, err)
	must(t, r.PutManifest(t.Context(), described, raw, tag))
	verdicts := judge(t, map[string]string{"sigstore-public-key-shop": key.public},
		signature.Image{Digest: r.image.Digest.String()}, signature.Stores{Images: r.places()})
	wants(t, verdicts, signature.Operator, "")
	wants(t, verdicts, signature.Cosign2, "")
	wants(t, verdicts, signature.CRIO, "cosign signature 2: ")
}

// TestAMirrorThatHangs does not delay the signatures of other places.
func TestAMirrorThatHangs(t *testing.T) {
	key := newKeyPair(t)
	r := newRepository(t).sign(signing{key: key, claim: simplesigning.Claim{Reference: "registry.example/shop:1.4.0"}})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}))
	t.Cleanup(hanging.Close)
	mirror := signature.Images{Name: "mirror", Open: func(ctx context.Context) (oci.Store, error) {
		location, err := oci.ParseRegistry(strings.TrimPrefix(hanging.URL, "http://")+"/shop:1.4.0", true)
		must(t, err)
		return oci.Open(ctx, location, oci.Options{Insecure: true})
	}}
	policy, err := signature.PolicyOf(release(t, map[string]string{"sigstore-public-key-shop": key.public}))
	must(t, err)
	began := time.Now()
	_, err = policy.Verify(t.Context(), r.image.Digest.String(),
		signature.Stores{Images: append([]signature.Images{mirror}, r.places()...)})
	if took := time.Since(began); err != nil || took > 10*time.Second {
		t.Errorf("after %s: %v", took, err)
	}
}

// TestAStoreThatRedirects must not lead the operator to the metadata of its machine.
func TestAStoreThatRedirects(t *testing.T) {
	store := serveAll(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
	})
	policy, err := signature.PolicyOf(release(t,
		map[string]string{"verifier-public-key-shop": public(t, newKey(t)), "store-shop": store}))
	must(t, err)
	_, err = policy.Verify(t.Context(), image, signature.Stores{})
	if err == nil || !strings.Contains(err.Error(), "leads to 169.254.169.254, an address of this machine or its host") {
		t.Errorf("got error %v", err)
	}
}
