package signature

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/crypto/openpgp"        //lint:ignore SA1019 the keyrings of OpenShift's library are of its types
	"golang.org/x/crypto/openpgp/packet" //lint:ignore SA1019 as above

	"github.com/runlevel/runlevel/internal/release/signature/simplesigning"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// The maximum size of a signature, as in the cluster-version operator, and of its unpacked message. A message could be
// compressed twice, and unpack to gigabytes before its signature is checked.
const (
	maxBytes    = 50 << 10
	maxUnpacked = 256 << 10
)

// compressed is the tag of a compressed packet.
const compressed = 8

var errNoMessage = errors.New(`it is not a signed OpenPGP message, as "gpg --sign" without --armor writes it`)

// unpack returns an OpenPGP message without compression.
func unpack(message []byte) ([]byte, error) {
	if len(message) > maxBytes {
		return nil, fmt.Errorf("it has more than %d KiB", maxBytes>>10)
	}
	first, err := packet.NewOpaqueReader(bytes.NewReader(message)).Next()
	if err != nil {
		return nil, errNoMessage
	}
	if first.Tag == compressed {
		if message, err = decompress(first); err != nil {
			return nil, err
		}
	}
	for packets := packet.NewOpaqueReader(bytes.NewReader(message)); ; {
		next, err := packets.Next()
		switch {
		case errors.Is(err, io.EOF):
			return message, nil
		case err != nil:
			return nil, errNoMessage
		case next.Tag == compressed:
			return nil, errors.New("it is compressed more than once")
		}
	}
}

// decompress returns the content of a compressed packet.
func decompress(opaque *packet.OpaquePacket) ([]byte, error) {
	parsed, err := opaque.Parse()
	content, isCompressed := parsed.(*packet.Compressed)
	if err != nil || !isCompressed {
		return nil, errNoMessage
	}
	message, err := io.ReadAll(io.LimitReader(content.Body, maxUnpacked+1))
	switch {
	case err != nil:
		return nil, errNoMessage
	case len(message) > maxUnpacked:
		return nil, fmt.Errorf("it unpacks to more than %d KiB", maxUnpacked>>10)
	}
	return message, nil
}

// checkMessage returns the claim of a message about an image. It fails if the message is not a valid signature of the
// image by a key of a keyring. It is stricter than OpenShift's library, which accepts signatures by keys that have
// expired.
func checkMessage(message []byte, digest, name string, keyring openpgp.EntityList) (simplesigning.Claim, error) {
	var claim simplesigning.Claim
	read, err := openpgp.ReadMessage(bytes.NewReader(message), keyring, nil, nil)
	if err != nil {
		return claim, errNoMessage
	}
	content, err := io.ReadAll(read.UnverifiedBody)
	switch {
	case err != nil || !read.IsSigned:
		return claim, errNoMessage
	case read.SignedBy == nil:
		return claim, explainKey(read.SignedByKeyId, name, keyring)
	case read.SignatureError != nil:
		return claim, fmt.Errorf("it is forged or damaged: the signature by key %016X does not fit its content",
			read.SignedByKeyId)
	}
	if claim, err = simplesigning.Parse(content, simplesigning.OpenPGP); err != nil {
		return claim, err
	}
	if claim.Digest != digest {
		return claim, fmt.Errorf("it is for another image, %.71s", claim.Digest)
	}
	if end := expiry(read.SignedBy); !end.IsZero() && time.Now().After(end) {
		return claim, fmt.Errorf("key %016X, which created it, has expired at %s in %s", read.SignedByKeyId,
			end.UTC().Format(time.RFC3339), name)
	}
	made := read.Signature // nil for version 3, which old versions of gpg made
	if made == nil || !slices.Contains([]crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512}, made.Hash) {
		return claim, errors.New("it is made with an old hash, such as MD5 or SHA-1: sign with SHA-256")
	}
	claim.Time = made.CreationTime // the time in the content is optional
	if made.SigLifetimeSecs != nil {
		end := made.CreationTime.Add(time.Duration(*made.SigLifetimeSecs) * time.Second)
		if time.Now().After(end) {
			return claim, fmt.Errorf("it has expired at %s", end.UTC().Format(time.RFC3339))
		}
	}
	return claim, nil
}

// explainKey returns the reason why a key is not valid for a keyring.
func explainKey(id uint64, name string, keyring openpgp.EntityList) error {
	keys := keyring.KeysById(id)
	if len(keys) == 0 {
		return fmt.Errorf("key %016X, which created it, is not in %s", id, name)
	}
	if len(keys[0].Entity.Revocations) == 0 { // the library has no reason for a subkey
		return fmt.Errorf("key %016X, which created it, is revoked or not for signing in %s", id, name)
	}
	because := ""
	if text := printable.Line(keys[0].Entity.Revocations[0].RevocationReasonText); text != "" {
		because = fmt.Sprintf(" (%s)", text)
	}
	return fmt.Errorf("key %016X, which created it, is revoked in %s%s", id, name, because)
}

// expiry returns when a key expires; zero if it never does. A subkey expires with its primary key, too. (The library
// does not look at it, and its KeyExpired counts from the signature of the key instead of the key's creation.)
func expiry(key *openpgp.Key) time.Time {
	var newest *packet.Signature
	for _, identity := range key.Entity.Identities {
		if own := identity.SelfSignature; newest == nil || own.CreationTime.After(newest.CreationTime) {
			newest = own
		}
	}
	end := endOf(key.Entity.PrimaryKey, newest)
	if key.PublicKey != key.Entity.PrimaryKey {
		if own := endOf(key.PublicKey, key.SelfSignature); end.IsZero() || !own.IsZero() && own.Before(end) {
			end = own
		}
	}
	return end
}

func endOf(key *packet.PublicKey, binding *packet.Signature) time.Time {
	if binding == nil || binding.KeyLifetimeSecs == nil || *binding.KeyLifetimeSecs == 0 {
		return time.Time{}
	}
	return key.CreationTime.Add(time.Duration(*binding.KeyLifetimeSecs) * time.Second)
}
