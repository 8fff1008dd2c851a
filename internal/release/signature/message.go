package signature

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/crypto/openpgp"        //lint:ignore SA1019 the keyrings of OpenShift's library are of its types
	"golang.org/x/crypto/openpgp/packet" //lint:ignore SA1019 as above

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

// checkSignatures returns the error of each signature for one keyring, and whether one is good.
func checkSignatures(all []signatureResult, digest, name string,
	keyring openpgp.EntityList) (wrong []string, isSigned bool) {
	for _, item := range all {
		if item.message == nil {
			continue
		}
		err := checkSignature(item.message, digest, name, keyring)
		if err == nil {
			return nil, true
		}
		wrong = append(wrong, fmt.Sprintf("%s %s: %v", item.place, item.name, err))
	}
	return wrong, false
}

// checkSignature returns why a message is not a signature of an image by a key of a keyring. It explains the library's
// decision, and decides nothing.
func checkSignature(message []byte, digest, name string, keyring openpgp.EntityList) error {
	read, err := openpgp.ReadMessage(bytes.NewReader(message), keyring, nil, nil)
	if err != nil {
		return errNoMessage
	}
	content, err := io.ReadAll(read.UnverifiedBody)
	switch {
	case err != nil || !read.IsSigned:
		return errNoMessage
	case read.SignedBy == nil:
		return explainKey(read.SignedByKeyId, name, keyring)
	case read.SignatureError != nil:
		return fmt.Errorf("it is forged or damaged: the signature by key %016X does not fit its content",
			read.SignedByKeyId)
	}
	if made := read.Signature; made != nil && made.SigLifetimeSecs != nil {
		if end := made.CreationTime.Add(time.Duration(*made.SigLifetimeSecs) * time.Second); time.Now().After(end) {
			return fmt.Errorf("it has expired at %s", end.UTC().Format(time.RFC3339))
		}
	}
	return checkContent(content, digest)
}

// explainKey returns the reason why a key is not valid for a keyring.
func explainKey(id uint64, name string, keyring openpgp.EntityList) error {
	keys := keyring.KeysById(id)
	switch {
	case len(keys) == 0:
		return fmt.Errorf("key %016X, which created it, is not in %s", id, name)
	case len(keys[0].Entity.Revocations) == 0: // the library has no reason for a subkey
		return fmt.Errorf("key %016X, which created it, is revoked or not for signing in %s", id, name)
	}
	because := ""
	if text := printable.Line(keys[0].Entity.Revocations[0].RevocationReasonText); text != "" {
		because = fmt.Sprintf(" (%s)", text)
	}
	return fmt.Errorf("key %016X, which created it, is revoked in %s%s", id, name, because)
}

// checkContent returns an error if the signed content is not about an image.
func checkContent(content []byte, digest string) error {
	var claims struct {
		Critical struct {
			Type  string `json:"type"`
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
			Identity struct {
				Reference string `json:"docker-reference"`
			} `json:"identity"`
		} `json:"critical"`
		Optional struct {
			Creator   string `json:"creator"`
			Timestamp int64  `json:"timestamp"`
		} `json:"optional"`
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&claims)
	critical := claims.Critical
	switch {
	case err != nil, critical.Type != "atomic container signature", critical.Identity.Reference == "":
		return errors.New(`its content is not an "atomic container signature" with an image and an identity`)
	case critical.Image.Digest != digest:
		return fmt.Errorf("it is for another image, %.71s", critical.Image.Digest)
	default:
		return nil
	}
}
