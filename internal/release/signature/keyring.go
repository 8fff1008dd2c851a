package signature

import (
	"bytes"
	"crypto/dsa" //lint:ignore SA1019 to refuse them
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/crypto/openpgp"        //lint:ignore SA1019 the keyrings of OpenShift's library are of its types
	"golang.org/x/crypto/openpgp/armor"  //lint:ignore SA1019 as above
	"golang.org/x/crypto/openpgp/packet" //lint:ignore SA1019 as above

	"github.com/runlevel/runlevel/internal/text/printable"
)

// minRSA is the minimum size of RSA keys in bits.
const minRSA = 2048

// The tags of packets that begin a key, and that name its user.
const (
	secretKey = 5
	publicKey = 6
	userID    = 13
)

// readKeyring reads public or secret keys, ASCII-armored or not. The library skips keys that it can't read, and
// revocations that are not where gpg exports them. Here, these are errors: nobody should rely on a revocation that does
// not count.
func readKeyring(text []byte) (openpgp.EntityList, error) {
	content, err := dearmor(text)
	if err != nil {
		return nil, err
	}
	var parts [][]*packet.OpaquePacket
	for packets := packet.NewOpaqueReader(bytes.NewReader(content)); ; {
		next, err := packets.Next()
		switch {
		case errors.Is(err, io.EOF):
			return readKeys(parts)
		case err != nil:
			return nil, err
		case next.Tag == publicKey || next.Tag == secretKey:
			parts = append(parts, nil)
		case len(parts) == 0:
			return nil, errors.New("it does not begin with a key")
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], next)
	}
}

// dearmor returns the content of all ASCII-armored blocks.
func dearmor(text []byte) (content []byte, err error) {
	const begin = "-----BEGIN PGP"
	blocks := strings.Split(string(text), begin)
	switch {
	case len(blocks) == 1:
		return text, nil
	case strings.Count(string(text), "-----END PGP") != len(blocks)-1:
		return nil, errors.New("one of its blocks is damaged")
	}
	for _, text := range blocks[1:] {
		block, err := armor.Decode(strings.NewReader(begin + text))
		if err != nil {
			return nil, err
		}
		part, err := io.ReadAll(block.Body)
		if err != nil {
			return nil, err
		}
		content = append(content, part...)
	}
	return content, nil
}

// readKeys reads keys from the packets of each.
func readKeys(parts [][]*packet.OpaquePacket) (keyring openpgp.EntityList, err error) {
	for i, part := range parts {
		key, err := readKey(part)
		if err == nil && len(keyring.KeysById(key.PrimaryKey.KeyId)) > 0 {
			err = errors.New("it is there twice")
		}
		if err != nil {
			user := ""
			if j := slices.IndexFunc(part, func(o *packet.OpaquePacket) bool { return o.Tag == userID }); j >= 0 {
				user = fmt.Sprintf(" of %.100s", printable.Line(string(part[j].Contents)))
			}
			return nil, fmt.Errorf("key %d%s: %w", i+1, user, err)
		}
		keyring = append(keyring, key)
	}
	if len(keyring) == 0 {
		return nil, errors.New("it is empty")
	}
	return keyring, nil
}

func readKey(part []*packet.OpaquePacket) (*openpgp.Entity, error) {
	var content bytes.Buffer
	for _, opaque := range part {
		if err := opaque.Serialize(&content); err != nil {
			return nil, err
		}
	}
	key, err := openpgp.ReadEntity(packet.NewReader(&content))
	if err != nil {
		return nil, err
	}
	if err := readSignatures(key, part); err != nil {
		return nil, err
	}
	public := []*packet.PublicKey{key.PrimaryKey}
	for _, subkey := range key.Subkeys {
		if subkey.Sig.SigType == packet.SigTypeSubkeyRevocation {
			subkey.Sig.RevocationReason = new(uint8) // the library takes a subkey without a reason for a valid one
		}
		public = append(public, subkey.PublicKey)
	}
	for _, item := range public {
		switch key := item.PublicKey.(type) {
		case *dsa.PublicKey:
			return nil, errors.New("it is a DSA key: use RSA")
		case *rsa.PublicKey:
			if key.N.BitLen() < minRSA {
				return nil, fmt.Errorf("it is an RSA key of %d bits: use one of %d or more", key.N.BitLen(), minRSA)
			}
		}
	}
	return key, nil
}

// readSignatures corrects the signatures of a key's users, which have its expiry: the newest counts, but the library
// takes the last one. It has verified all of them.
func readSignatures(key *openpgp.Entity, part []*packet.OpaquePacket) error {
	var user *openpgp.Identity
	hasUser := false
	for _, opaque := range part {
		parsed, _ := opaque.Parse()
		switch parsed := parsed.(type) {
		case *packet.UserId:
			user, hasUser = key.Identities[parsed.Id], true
		case *packet.OpaquePacket: // of a type that the library skips
		case *packet.Signature:
			isOwn := parsed.IssuerKeyId != nil && *parsed.IssuerKeyId == key.PrimaryKey.KeyId &&
				(parsed.SigType == packet.SigTypePositiveCert || parsed.SigType == packet.SigTypeGenericCert)
			switch {
			case parsed.SigType == packet.SigTypeKeyRevocation && hasUser:
				return errors.New("its revocation would be ignored, since it comes after a user: " +
					"import the keyring with gpg, and export it again")
			case isOwn && user != nil && parsed.CreationTime.After(user.SelfSignature.CreationTime):
				user.SelfSignature = parsed
			}
		default:
			user = nil
		}
	}
	return nil
}
