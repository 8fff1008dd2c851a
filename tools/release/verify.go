package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
)

// The files that verify all others.
const (
	checksums = "checksums.txt"
	publicKey = "runlevel.pub"
)

// readKey reads the private key of the signatures.
func (d *draft) readKey(ctx context.Context) error {
	if d.isUnsigned {
		return nil
	}
	if d.key == "" {
		return errors.New(`name the key of the signatures by -key: "cosign generate-key-pair" creates one, and so does ` +
			`"openssl ecparam -genkey -name prime256v1 -noout -out runlevel.key". ` +
			`For a trial without signatures, pass -unsigned`)
	}
	text, err := os.ReadFile(d.key)
	if err != nil {
		return fmt.Errorf("-key: %w", err)
	}
	d.private, err = sigstore.ParsePrivateKey(text, func() ([]byte, error) {
		password, err := core.Streams{In: os.Stdin, Err: os.Stderr}.AskPassword(ctx, "COSIGN_PASSWORD", d.key)
		if err == nil {
			err = os.Setenv("COSIGN_PASSWORD", string(password)) // for the verbs that this process runs
		}
		return password, err
	})
	if err != nil {
		return fmt.Errorf("-key %s: %w", d.key, err)
	}
	if public, isECDSA := d.private.Public().(*ecdsa.PublicKey); !isECDSA || public.Curve != elliptic.P256() {
		return fmt.Errorf("-key %s: cosign and openssl verify the checksums with ECDSA P-256 keys only", d.key)
	}
	encoded, err := x509.MarshalPKIXPublicKey(d.private.Public())
	d.public = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: encoded})
	return err
}

// writeChecksums writes the digests of all files but signatures, and signs them. They are last.
func writeChecksums(_ context.Context, d *draft) error {
	entries, err := os.ReadDir(d.folder)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, entry := range entries {
		sum, err := sumFile(filepath.Join(d.folder, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, entry.Name())
	}
	path := filepath.Join(d.folder, checksums)
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil || d.isUnsigned {
		return err
	}
	signature, err := d.private.Sign(text.Bytes())
	if err != nil {
		return err
	}
	encoded := base64.StdEncoding.EncodeToString(signature) + "\n"
	return errors.Join(os.WriteFile(path+".sig", []byte(encoded), 0o644),
		os.WriteFile(filepath.Join(d.folder, publicKey), d.public, 0o644))
}
