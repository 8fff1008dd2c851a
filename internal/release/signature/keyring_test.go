package signature_test

import (
	"bytes"
	"crypto"
	"crypto/dsa" //lint:ignore SA1019 keys that are refused
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/openpgp"        //lint:ignore SA1019 tests write keys with the library that reads them
	"golang.org/x/crypto/openpgp/armor"  //lint:ignore SA1019 as above
	"golang.org/x/crypto/openpgp/packet" //lint:ignore SA1019 as above

	"github.com/runlevel/runlevel/internal/release/signature"
)

// packetsOf returns the packets of ASCII-armored keys.
func packetsOf(t testing.TB, text string) (packets []*packet.OpaquePacket) {
	t.Helper()
	block, err := armor.Decode(strings.NewReader(text))
	must(t, err)
	for reader := packet.NewOpaqueReader(block.Body); ; {
		next, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return packets
		}
		must(t, err)
		packets = append(packets, next)
	}
}

// armored returns packets as keys, ASCII-armored.
func armored(t testing.TB, packets ...*packet.OpaquePacket) string {
	t.Helper()
	var text bytes.Buffer
	out, err := armor.Encode(&text, openpgp.PublicKeyType, nil)
	must(t, err)
	for _, item := range packets {
		must(t, item.Serialize(out))
	}
	must(t, out.Close())
	return text.String() + "\n"
}

// opaque returns a packet as bytes.
func opaque(t testing.TB, serialize func(io.Writer) error) *packet.OpaquePacket {
	t.Helper()
	var content bytes.Buffer
	must(t, serialize(&content))
	read, err := packet.NewOpaqueReader(&content).Next()
	must(t, err)
	return read
}

// TestKeyringsThatAreRefused are those that the library reads in another way than gpg, which refuses their signatures.
func TestKeyringsThatAreRefused(t *testing.T) {
	key := newKey(t)
	all := packetsOf(t, revoked(t, key))
	primary, revocation, user, own := all[0], all[1], all[2], all[3]
	unknown := &packet.OpaquePacket{Tag: 6, Contents: append([]byte{4, 0, 0, 0, 0, 22}, make([]byte, 40)...)}
	weak, err := openpgp.NewEntity("weak", "", "", &packet.Config{RSABits: 1024})
	must(t, err)
	for _, identity := range weak.Identities {
		must(t, identity.SelfSignature.SignUserId(identity.UserId.Id, weak.PrimaryKey, weak.PrivateKey, nil))
	}
	for name, test := range map[string]struct{ text, want string }{
		"a second block with a revocation": {armored(t, primary, user, own) + armored(t, revocation),
			"key 1 of release key <release@example.com>: its revocation would be ignored"},
		"a revocation after a user": {armored(t, primary, user, own, revocation), "its revocation would be ignored"},
		"twice, revoked at last": {armored(t, append([]*packet.OpaquePacket{primary, user, own}, all...)...),
			"is there twice"},
		"twice, revoked at first": {armored(t, append(all, primary, user, own)...), "is there twice"},
		"a second block, revoked": {public(t, key) + "\n" + revoked(t, key), "is there twice"},
		"a second block, damaged": {public(t, key) + "\n" +
			strings.Replace(public(t, newKey(t)), "-----BEGIN", "-----BEGN", 1), "one of its blocks is damaged"},
		"a key of another kind": {armored(t, unknown, user, own, primary, user, own),
			"key 1 of release key <release@example.com>: openpgp: unsupported feature: public key type: 22"},
		"a small key": {public(t, weak), "it is an RSA key of 1024 bits: use one of 2048 or more"},
		"a DSA key":   {public(t, newDSA(t)), "it is a DSA key: use RSA"},
		"no key":      {armored(t, user, own), "it does not begin with a key"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := signature.PolicyOf(release(t, map[string]string{"verifier-public-key-shop": test.text}))
			if err == nil || !strings.Contains(err.Error(), "no GPG public key that can be used: ") ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %s", err, test.want)
			}
		})
	}
}

func newDSA(t testing.TB) *openpgp.Entity {
	t.Helper()
	var private dsa.PrivateKey
	must(t, dsa.GenerateParameters(&private.Parameters, rand.Reader, dsa.L1024N160))
	must(t, dsa.GenerateKey(&private, rand.Reader))
	key := packet.NewDSAPrivateKey(time.Now(), &private)
	user := packet.NewUserId("dsa", "", "")
	own := &packet.Signature{
		SigType: packet.SigTypePositiveCert, PubKeyAlgo: packet.PubKeyAlgoDSA, Hash: crypto.SHA256,
		CreationTime: time.Now(), IssuerKeyId: &key.KeyId,
	}
	must(t, own.SignUserId(user.Id, &key.PublicKey, key, nil))
	return &openpgp.Entity{PrimaryKey: &key.PublicKey, Identities: map[string]*openpgp.Identity{
		user.Id: {Name: user.Id, UserId: user, SelfSignature: own},
	}}
}

// TestKeysInSeveralBlocks are those of a keyring to which a second key was added.
func TestKeysInSeveralBlocks(t *testing.T) {
	key := newKey(t)
	must(t, verify(t, map[string]string{
		"verifier-public-key-shop": public(t, newKey(t)) + "\n# the next one\n" + public(t, key) + "\n",
		"store-shop":               serve(t, sign(t, key, claim(image))),
	}))
}

// TestTheNewestSignatureOfAKeyCounts, wherever it is in the file: it has the expiry of the key.
func TestTheNewestSignatureOfAKeyCounts(t *testing.T) {
	began := time.Now().Add(-2 * time.Hour)
	key, err := openpgp.NewEntity("release key", "", "", &packet.Config{
		RSABits: 2048, Time: func() time.Time { return began },
	})
	must(t, err)
	with := func(lifetime time.Duration, made time.Time) []*packet.OpaquePacket {
		for _, identity := range key.Identities {
			seconds := uint32(lifetime.Seconds())
			own := identity.SelfSignature
			own.KeyLifetimeSecs, own.CreationTime = &seconds, made
			must(t, own.SignUserId(identity.UserId.Id, key.PrimaryKey, key.PrivateKey, nil))
		}
		return packetsOf(t, public(t, key))
	}
	older, newer := with(0, began), with(time.Hour, time.Now())
	for _, packets := range [][]*packet.OpaquePacket{
		slices.Insert(slices.Clone(older), 3, newer[2]), slices.Insert(slices.Clone(newer), 3, older[2]),
	} {
		err := verify(t, map[string]string{
			"verifier-public-key-shop": armored(t, packets...), "store-shop": serve(t, sign(t, key, claim(image))),
		})
		if err == nil || !strings.Contains(err.Error(), "which created it, has expired at 20") {
			t.Errorf("got error %v", err)
		}
	}
}

// TestARevokedSubkey may have signed, but does not count any more, whether its revocation has a reason or not.
func TestARevokedSubkey(t *testing.T) {
	primary, subkey := newKey(t), newKey(t)
	subkey.PrimaryKey.IsSubkey = true
	bind := func(kind packet.SignatureType) *packet.OpaquePacket {
		binding := &packet.Signature{
			SigType: kind, PubKeyAlgo: primary.PrimaryKey.PubKeyAlgo, Hash: crypto.SHA256,
			CreationTime: time.Now().Add(-time.Hour), IssuerKeyId: &primary.PrimaryKey.KeyId,
		}
		must(t, binding.SignKey(subkey.PrimaryKey, primary.PrivateKey, nil))
		return opaque(t, binding.Serialize)
	}
	packets := append(packetsOf(t, public(t, primary)), opaque(t, subkey.PrimaryKey.Serialize),
		bind(packet.SigTypeSubkeyBinding))
	data := map[string]string{
		"verifier-public-key-shop": armored(t, packets...), "store-shop": serve(t, sign(t, subkey, claim(image))),
	}
	must(t, verify(t, data))
	data["verifier-public-key-shop"] = armored(t, append(packets, bind(packet.SigTypeSubkeyRevocation))...)
	if err := verify(t, data); err == nil || !strings.Contains(err.Error(), "is revoked or not for signing in ") {
		t.Errorf("got error %v", err)
	}
}
