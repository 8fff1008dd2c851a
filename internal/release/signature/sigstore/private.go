package sigstore

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/crypto/nacl/secretbox"
	"golang.org/x/crypto/scrypt"
)

// A PrivateKey signs images.
type PrivateKey struct {
	signer crypto.Signer
	public PublicKey
}

// ErrWrongPassword is the error of a password that does not decrypt a key.
var ErrWrongPassword = errors.New("the password is wrong")

// ParsePrivateKey reads a private key in PEM: PKCS #8, PKCS #1, SEC 1, or as "cosign generate-key-pair" writes it. It
// asks for the password of an encrypted key.
func ParsePrivateKey(text []byte, password func() ([]byte, error)) (*PrivateKey, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "EC PARAMETERS" { // openssl writes it before the key
			continue
		}
		key, err := parseBlock(block, password)
		if err != nil {
			return nil, err
		}
		signer, isSigner := key.(crypto.Signer)
		if !isSigner {
			return nil, fmt.Errorf("keys of type %T can't sign: use ECDSA, Ed25519 or RSA", key)
		}
		public, err := newPublicKey(signer.Public())
		return &PrivateKey{signer: signer, public: public}, err
	}
	return nil, errors.New(`it has no "-----BEGIN … PRIVATE KEY-----"`)
}

// Hint returns the identification of the key in bundles.
func (k *PrivateKey) Hint() string { return k.public.Hint }

func parseBlock(block *pem.Block, password func() ([]byte, error)) (any, error) {
	switch block.Type {
	case "ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY":
		decrypted, err := decrypt(block.Bytes, password)
		if err != nil {
			return nil, err
		}
		return x509.ParsePKCS8PrivateKey(decrypted)
	case "PRIVATE KEY":
		return x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	switch {
	case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
		return nil, errors.New(`its encryption is not supported: ` +
			`decrypt it with "openssl pkey", and encrypt it with "cosign import-key-pair"`)
	case block.Type == "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	case block.Type == "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case block.Type == "PUBLIC KEY":
		return nil, errors.New("it is a public key: only a private key can sign")
	default:
		return nil, fmt.Errorf("it has a block %q, which is not a private key", block.Type)
	}
}

// An encryptedKey is a private key that cosign has encrypted.
type encryptedKey struct {
	KDF struct {
		Name   string       `json:"name"`
		Params scryptParams `json:"params"`
		Salt   []byte       `json:"salt"`
	} `json:"kdf"`
	Cipher struct {
		Name  string `json:"name"`
		Nonce []byte `json:"nonce"`
	} `json:"cipher"`
	Ciphertext []byte `json:"ciphertext"`
}

type scryptParams struct {
	N int `json:"N"`
	R int `json:"r"`
	P int `json:"p"`
}

// The parameters that cosign accepts. Others may take any amount of memory.
var knownParams = []scryptParams{{N: 1 << 15, R: 8, P: 1}, {N: 1 << 16, R: 8, P: 1}, {N: 1 << 17, R: 8, P: 1}}

func decrypt(text []byte, password func() ([]byte, error)) ([]byte, error) {
	var key encryptedKey
	var nonce [24]byte
	var secret [32]byte
	switch err := json.Unmarshal(text, &key); {
	case err != nil:
		return nil, errors.New("it is damaged: its content is not JSON, as cosign writes it")
	case key.KDF.Name != "scrypt", key.Cipher.Name != "nacl/secretbox", len(key.Cipher.Nonce) != len(nonce),
		!slices.Contains(knownParams, key.KDF.Params):
		return nil, errors.New("cosign does not encrypt keys in this way")
	}
	words, err := password()
	if err != nil {
		return nil, err
	}
	params := key.KDF.Params
	derived, err := scrypt.Key(words, key.KDF.Salt, params.N, params.R, params.P, len(secret))
	if err != nil {
		return nil, err
	}
	copy(nonce[:], key.Cipher.Nonce)
	copy(secret[:], derived)
	decrypted, isRight := secretbox.Open(nil, key.Ciphertext, &nonce, &secret)
	if !isRight {
		return nil, ErrWrongPassword
	}
	return decrypted, nil
}

// Public returns the public key.
func (k *PrivateKey) Public() crypto.PublicKey { return k.public.key }

// Sign signs a message in the way that all consumers verify: with SHA-256, whatever the size of the key, or plain
// Ed25519.
func (k *PrivateKey) Sign(message []byte) ([]byte, error) {
	if _, isEd25519 := k.signer.(ed25519.PrivateKey); isEd25519 {
		return k.signer.Sign(rand.Reader, message, crypto.Hash(0))
	}
	return k.signer.Sign(rand.Reader, sum(crypto.SHA256, message), crypto.SHA256)
}
