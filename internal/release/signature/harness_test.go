package signature_test

import (
	"bytes"
	"crypto"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/crypto/openpgp"        //lint:ignore SA1019 tests write signatures with the same library
	"golang.org/x/crypto/openpgp/armor"  //lint:ignore SA1019 as above
	"golang.org/x/crypto/openpgp/packet" //lint:ignore SA1019 as above
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/pkg/payload"
)

// The image whose signatures are looked for, and another one.
var (
	image   = "sha256:" + strings.Repeat("a", 64)
	another = "sha256:" + strings.Repeat("b", 64)
)

// newKey returns a key pair.
func newKey(t testing.TB) *openpgp.Entity {
	t.Helper()
	key, err := openpgp.NewEntity("release key", "", "release@example.com", &packet.Config{RSABits: 2048})
	must(t, err)
	for _, identity := range key.Identities {
		must(t, identity.SelfSignature.SignUserId(identity.UserId.Id, key.PrimaryKey, key.PrivateKey, nil))
	}
	return key
}

// public returns a public key, ASCII-armored.
func public(t testing.TB, keys ...*openpgp.Entity) string {
	t.Helper()
	var text bytes.Buffer
	out, err := armor.Encode(&text, openpgp.PublicKeyType, nil)
	must(t, err)
	for _, key := range keys {
		must(t, key.Serialize(out))
	}
	must(t, out.Close())
	return text.String()
}

// revoked returns a public key with its revocation, ASCII-armored.
func revoked(t testing.TB, key *openpgp.Entity) string {
	t.Helper()
	var primary, all bytes.Buffer
	must(t, key.PrimaryKey.Serialize(&primary))
	must(t, key.Serialize(&all))
	revocation := &packet.Signature{
		SigType: packet.SigTypeKeyRevocation, PubKeyAlgo: key.PrimaryKey.PubKeyAlgo, Hash: crypto.SHA256,
		CreationTime: time.Now(), IssuerKeyId: &key.PrimaryKey.KeyId,
	}
	const header = 3 // bytes of a packet of this length
	hash := crypto.SHA256.New()
	key.PrimaryKey.SerializeSignaturePrefix(hash)
	hash.Write(primary.Bytes()[header:])
	must(t, revocation.Sign(hash, key.PrivateKey, nil))
	var text bytes.Buffer
	out, err := armor.Encode(&text, openpgp.PublicKeyType, nil)
	must(t, err)
	_, err = out.Write(primary.Bytes())
	must(t, err)
	must(t, revocation.Serialize(out))
	_, err = out.Write(all.Bytes()[primary.Len():])
	must(t, err)
	must(t, out.Close())
	return text.String()
}

// claim returns the signed message about an image.
func claim(digest string) string {
	return fmt.Sprintf(`{"critical": {"type": "atomic container signature", "image": {"docker-manifest-digest": %q},
		"identity": {"docker-reference": "registry.example/shop"}}, "optional": {"creator": "test"}}`, digest)
}

// sign returns a signed message, made an hour ago. It is good for ever, or for some seconds.
func sign(t testing.TB, key *openpgp.Entity, text string, seconds ...uint32) []byte {
	t.Helper()
	return signWith(t, key, text, crypto.SHA256, seconds...)
}

func signWith(t testing.TB, key *openpgp.Entity, text string, kind crypto.Hash, seconds ...uint32) []byte {
	t.Helper()
	var message bytes.Buffer
	begin := &packet.OnePassSignature{
		Hash:       kind,
		PubKeyAlgo: key.PrimaryKey.PubKeyAlgo,
		KeyId:      key.PrimaryKey.KeyId,
		IsLast:     true,
	}
	must(t, begin.Serialize(&message))
	literal, err := packet.SerializeLiteral(closer{&message}, true, "", 0)
	must(t, err)
	_, err = io.WriteString(literal, text)
	must(t, err)
	must(t, literal.Close())
	end := &packet.Signature{
		Hash: begin.Hash, PubKeyAlgo: begin.PubKeyAlgo, IssuerKeyId: &begin.KeyId,
		CreationTime: time.Now().Add(-time.Hour),
	}
	if len(seconds) > 0 {
		end.SigLifetimeSecs = &seconds[0]
	}
	hash := kind.New()
	hash.Write([]byte(text))
	must(t, end.Sign(hash, key.PrivateKey, nil))
	must(t, end.Serialize(&message))
	return message.Bytes()
}

// compress returns a message compressed.
func compress(t testing.TB, message []byte) []byte {
	t.Helper()
	var text bytes.Buffer
	out, err := packet.SerializeCompressed(closer{&text}, packet.CompressionZIP, nil)
	must(t, err)
	_, err = out.Write(message)
	must(t, err)
	must(t, out.Close())
	return text.Bytes()
}

type closer struct{ io.Writer }

func (closer) Close() error { return nil }

// serve starts a store with some signatures of the image.
func serve(t testing.TB, signatures ...[]byte) string {
	t.Helper()
	return serveAll(t, func(w http.ResponseWriter, r *http.Request) {
		for i, group := range signatures {
			if r.URL.Path == fmt.Sprintf("/signatures/%s/signature-%d", strings.Replace(image, ":", "=", 1), i+1) {
				_, _ = w.Write(group)
				return
			}
		}
		http.NotFound(w, r)
	})
}

func serveAll(t testing.TB, handle http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return server.URL + "/signatures"
}

// release returns a release with a ConfigMap of keys and stores.
func release(t testing.TB, data map[string]string) *payload.Payload {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": data,
		"metadata": map[string]any{
			"name":        "verification",
			"namespace":   "shop",
			"annotations": map[string]string{signature.ConfigAnnotation: ""},
		},
	})
	must(t, err)
	return load(t, payload.Options{}, string(text))
}

// load returns a release of one file.
func load(t testing.TB, options payload.Options, text string) *payload.Payload {
	t.Helper()
	options.Version = "1.0.0"
	loaded, _, err := payload.Load(t.Context(), fstest.MapFS{"0000_10_shop_verification.yaml": {Data: []byte(text)}},
		options)
	must(t, err)
	return loaded
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
