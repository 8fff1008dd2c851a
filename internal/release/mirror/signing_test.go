package mirror_test

import (
	"bytes"
	"crypto"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/openpgp"        //lint:ignore SA1019 the keyrings of OpenShift's library are of its types
	"golang.org/x/crypto/openpgp/armor"  //lint:ignore SA1019 as above
	"golang.org/x/crypto/openpgp/packet" //lint:ignore SA1019 as above
)

// newKey returns a public key, and a function that signs an image, and writes the signature to a folder.
func newKey(t *testing.T) (string, func(folder, digest string)) {
	t.Helper()
	config := &packet.Config{RSABits: 2048, DefaultHash: crypto.SHA256}
	key := must[*openpgp.Entity](t)(openpgp.NewEntity("release", "", "release@example.com", config))
	for _, identity := range key.Identities {
		identity.SelfSignature.PreferredHash = []uint8{8} // SHA256
		if err := identity.SelfSignature.SignUserId(identity.UserId.Id, key.PrimaryKey, key.PrivateKey,
			nil); err != nil {
			t.Fatal(err)
		}
	}
	var text bytes.Buffer
	out, err := armor.Encode(&text, openpgp.PublicKeyType, nil)
	if err == nil {
		err = key.Serialize(out)
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return text.String(), func(folder, digest string) {
		t.Helper()
		var signed bytes.Buffer
		writer, err := openpgp.Sign(&signed, key, nil, config)
		if err == nil {
			_, err = fmt.Fprintf(writer, `{"critical": {"type": "atomic container signature",
				"image": {"docker-manifest-digest": %q}, "identity": {"docker-reference": %q}}}`, digest, folder)
		}
		if err == nil {
			err = writer.Close()
		}
		folder = filepath.Join(folder, strings.Replace(digest, ":", "=", 1))
		if err == nil {
			err = os.MkdirAll(folder, 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, "signature-1"), signed.Bytes(), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
