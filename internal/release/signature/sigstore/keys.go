package sigstore

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// minRSA is the minimum size of RSA keys in bits.
const minRSA = 2048

// A PublicKey verifies signatures. Its Hint identifies it in bundles, as cosign does: the SHA-256 hash of the key.
type PublicKey struct {
	Hint string
	key  crypto.PublicKey
}

func newPublicKey(key crypto.PublicKey) (PublicKey, error) {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		if !slices.Contains([]elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}, key.Curve) {
			return PublicKey{}, fmt.Errorf("it is of curve %s: use P-256", key.Curve.Params().Name)
		}
	case *rsa.PublicKey:
		if key.N.BitLen() < minRSA {
			return PublicKey{}, fmt.Errorf("it is an RSA key of %d bits: use one of %d or more", key.N.BitLen(), minRSA)
		}
	case ed25519.PublicKey:
	default:
		return PublicKey{}, fmt.Errorf("keys of type %T are not supported: use ECDSA, Ed25519 or RSA", key)
	}
	encoded, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return PublicKey{}, err
	}
	sum := sha256.Sum256(encoded)
	return PublicKey{Hint: base64.StdEncoding.EncodeToString(sum[:]), key: key}, nil
}

// ParsePublicKeys reads one or several public keys in PEM.
func ParsePublicKeys(text []byte) ([]PublicKey, error) {
	var keys []PublicKey
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var key crypto.PublicKey
		var err error
		switch block.Type {
		case "PUBLIC KEY":
			key, err = x509.ParsePKIXPublicKey(block.Bytes)
		case "RSA PUBLIC KEY":
			key, err = x509.ParsePKCS1PublicKey(block.Bytes)
		default:
			err = fmt.Errorf("it has a block %q", block.Type)
		}
		if err != nil {
			return nil, err
		}
		public, err := newPublicKey(key)
		if err != nil {
			return nil, err
		}
		keys = append(keys, public)
	}
	switch {
	case len(keys) == 0:
		return nil, errors.New(`it has no valid block "-----BEGIN PUBLIC KEY-----"`)
	case bytes.Count(text, []byte("-----BEGIN ")) > len(keys), bytes.Count(text, []byte("-----END ")) > len(keys):
		return nil, errors.New("one of its blocks is damaged")
	}
	return keys, nil
}

// The hashes of signers. Cosign signs with the hash that fits the size of an ECDSA key, but by default it only
// verifies SHA-256, as podman and CRI-O do.
var hashes = []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512}

// verify reports whether the key has signed a message, and whether it did so in the way that all consumers verify.
func (k PublicKey) verify(message, signature []byte) (isSigned, isCommon bool) {
	if key, isEd25519 := k.key.(ed25519.PublicKey); isEd25519 {
		if ed25519.Verify(key, message, signature) {
			return true, true
		}
		sum := sum(crypto.SHA512, message) // cosign signs with Ed25519ph
		return ed25519.VerifyWithOptions(key, sum, signature, &ed25519.Options{Hash: crypto.SHA512}) == nil, false
	}
	for _, hash := range hashes {
		if k.verifySum(hash, sum(hash, message), signature) {
			return true, hash == crypto.SHA256
		}
	}
	return false, false
}

// verifySum reports whether the key has signed a message with a hash, which Ed25519 keys don't.
func (k PublicKey) verifySum(hash crypto.Hash, sum, signature []byte) bool {
	switch key := k.key.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, sum, signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, hash, sum, signature) == nil
	default:
		return false
	}
}

func sum(hash crypto.Hash, message []byte) []byte {
	state := hash.New()
	state.Write(message)
	return state.Sum(nil)
}
