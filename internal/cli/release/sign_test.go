package release

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/crypto/openpgp"        //lint:ignore SA1019 the keys are of its types
	"golang.org/x/crypto/openpgp/packet" //lint:ignore SA1019 as above

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
)

// TestSignAnIndex signs the images of an index as well, since a node verifies the one of its platform.
func TestSignAnIndex(t *testing.T) {
	images := imageregistry.Start()
	t.Cleanup(images.Close)
	tag, err := name.NewTag(images.Host+"/shop:1.4.0", name.Insecure)
	must(t, err)
	index, err := random.Index(10, 1, 2)
	must(t, err)
	index = mutate.IndexMediaType(index, "application/vnd.oci.image.index.v1+json")
	manifest, err := index.IndexManifest()
	must(t, err)
	again, err := index.Image(manifest.Manifests[0].Digest)
	must(t, err)
	provenance, err := random.Image(10, 1)
	must(t, err)
	index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: again}, mutate.IndexAddendum{
		Add: provenance, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}},
	})
	must(t, remote.WriteIndex(tag, index))
	private, public := writeKeys(t)

	before := verify(t, tag, public)
	if before.Accepts || !strings.Contains(before.Reason, "no signature in the format that it reads was found") {
		t.Errorf("without signatures: %+v", before)
	}
	var out bytes.Buffer
	command := newSign(core.Streams{Out: &out, Err: &out})
	command.SetArgs([]string{tag.Name(), "--key", private, "--insecure", "-o", "json"})
	must(t, command.ExecuteContext(t.Context()))
	var report SignReport
	must(t, json.Unmarshal(out.Bytes(), &report))
	digest, err := index.Digest()
	must(t, err)
	if len(report.Signatures) != 4 || report.Digest != digest.String() || report.Identity != tag.Name() {
		t.Errorf("signed %+v", report)
	}
	if after := verify(t, tag, public); !after.Accepts {
		t.Errorf("with all signatures: %+v", after)
	}

	must(t, remote.Delete(tag.Context().Tag(tagOf(manifest.Manifests[1].Digest))))
	if after := verify(t, tag, public); after.Accepts {
		t.Errorf("without the signature of one platform: %+v", after)
	}
}

// TestSignWritesMessagesFirst: a registry is only changed after the OpenPGP message is written, and the message is
// printed even if a later one fails.
func TestSignWritesMessagesFirst(t *testing.T) {
	images := imageregistry.Start()
	t.Cleanup(images.Close)
	tag, err := name.NewTag(images.Host+"/shop:1.4.0", name.Insecure)
	must(t, err)
	image, err := random.Image(10, 1)
	must(t, err)
	must(t, remote.Write(tag, image))
	digest, err := image.Digest()
	must(t, err)
	private, _ := writeKeys(t)
	entity, err := openpgp.NewEntity("release", "", "", &packet.Config{RSABits: 2048})
	must(t, err)
	var secret bytes.Buffer
	must(t, entity.SerializePrivate(&secret, nil))
	folder := t.TempDir()
	write := func(name string, content []byte) string {
		must(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
		return filepath.Join(folder, name)
	}
	run := func(place string) (string, error) {
		var out bytes.Buffer
		command := newSign(core.Streams{Out: &out, Err: &out})
		command.SetArgs([]string{tag.Name(), "--key", private, "--insecure", "--openpgp-key",
			write("secret.gpg", secret.Bytes()), "--openpgp-to", place})
		command.SilenceUsage, command.SilenceErrors = true, true
		err := command.ExecuteContext(t.Context())
		return out.String(), err
	}
	if out, err := run(write("file", nil)); err == nil || out != "" {
		t.Errorf("with a file as folder: %v\n%s", err, out)
	}
	signatures := tag.Context().Tag(tagOf(digest))
	if _, err := remote.Head(signatures); err == nil {
		t.Error("the registry was changed")
	}
	must(t, remote.Put(signatures, empty.Index))
	out, err := run(filepath.Join(folder, "signatures"))
	if err == nil || !strings.Contains(err.Error(), "it is an index") || !strings.Contains(out, "  openpgp  "+folder) ||
		strings.Contains(out, "  cosign ") {
		t.Errorf("got error %v\n%s", err, out)
	}
}

func tagOf(digest v1.Hash) string { return digest.Algorithm + "-" + digest.Hex + ".sig" }

// verify returns the verdict of CRI-O.
func verify(t *testing.T, tag name.Tag, key string) signature.Verdict {
	t.Helper()
	var out bytes.Buffer
	command := newVerify(core.Streams{Out: &out, Err: &out})
	command.SetArgs([]string{tag.Name(), "--key", key, "--insecure", "-o", "json", "--consumer", "containerd"})
	must(t, command.ExecuteContext(t.Context()))
	var report VerifyReport
	must(t, json.Unmarshal(out.Bytes(), &report))
	for _, verdict := range report.Consumers {
		if verdict.Consumer == signature.CRIO {
			return verdict
		}
	}
	t.Fatalf("no verdict in %s", out.String())
	return signature.Verdict{}
}

// writeKeys writes a key pair to files.
func writeKeys(t *testing.T) (private, public string) {
	t.Helper()
	publicKey, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	write := func(file, kind string, content []byte, err error) string {
		must(t, err)
		path := filepath.Join(t.TempDir(), file)
		must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o644))
		return path
	}
	content, err := x509.MarshalPKCS8PrivateKey(key)
	private = write("key.pem", "PRIVATE KEY", content, err)
	content, err = x509.MarshalPKIXPublicKey(publicKey)
	return private, write("key.pub", "PUBLIC KEY", content, err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
