package signature

import (
	"bytes"
	"cmp"
	_ "crypto/sha512" // some keys sign themselves with it
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	//lint:ignore SA1019 the cluster-version operator reads what this library writes
	"golang.org/x/crypto/openpgp"
	"golang.org/x/crypto/openpgp/packet" //lint:ignore SA1019 as above
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/openshift/library-go/pkg/verify"
	"github.com/openshift/library-go/pkg/verify/util"

	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
	"github.com/runlevel/runlevel/internal/release/signature/simplesigning"
)

// A Signer makes OpenPGP messages about images.
type Signer struct{ key *packet.PrivateKey }

// ReadSigner reads an OpenPGP secret key, ASCII-armored or not. It asks for the password of an encrypted key.
func ReadSigner(text []byte, password func() ([]byte, error)) (*Signer, error) {
	keyring, err := readKeyring(text)
	if err != nil {
		return nil, fmt.Errorf("no GPG secret key that can be used: %w", err)
	}
	key := signingKey(keyring)
	if key == nil {
		return nil, errors.New(`it has no secret key that can sign: export it with "gpg --export-secret-keys"`)
	}
	if key.Encrypted {
		words, err := password()
		if err != nil {
			return nil, err
		}
		if err := key.Decrypt(words); err != nil {
			return nil, sigstore.ErrWrongPassword
		}
	}
	return &Signer{key}, nil
}

// signingKey returns the first secret key that may sign and has not expired; nil if there is none. Subkeys have
// precedence, as for gpg.
func signingKey(keyring openpgp.EntityList) *packet.PrivateKey {
	for _, entity := range keyring {
		var ids []uint64
		for _, subkey := range entity.Subkeys {
			ids = append(ids, subkey.PublicKey.KeyId)
		}
		for _, id := range append(ids, entity.PrimaryKey.KeyId) {
			for _, key := range keyring.KeysByIdUsage(id, packet.KeyFlagSign) {
				end := expiry(&key)
				if key.PrivateKey != nil && key.PublicKey.PubKeyAlgo.CanSign() &&
					(end.IsZero() || time.Now().Before(end)) {
					return key.PrivateKey
				}
			}
		}
	}
	return nil
}

// ID returns the ID of the key.
func (s *Signer) ID() string { return fmt.Sprintf("%016X", s.key.KeyId) }

// Sign returns the message of a claim, as "gpg --sign" writes it.
func (s *Signer) Sign(claim simplesigning.Claim) ([]byte, error) {
	const idOfSHA256 = 8
	// whatever the users of the key prefer, and without its other keys
	signer := &openpgp.Entity{PrimaryKey: &s.key.PublicKey, PrivateKey: s.key, Identities: map[string]*openpgp.Identity{
		"": {SelfSignature: &packet.Signature{PreferredHash: []uint8{idOfSHA256}}},
	}}
	var message bytes.Buffer
	content, err := openpgp.Sign(&message, signer, &openpgp.FileHints{IsBinary: true},
		&packet.Config{Time: func() time.Time { return claim.Time }})
	if err != nil {
		return nil, err
	}
	if _, err := content.Write(claim.Text(simplesigning.OpenPGP)); err != nil {
		return nil, err
	}
	err = content.Close()
	return message.Bytes(), err
}

// AddTo adds a message about an image to a folder that a store would serve, or to a file FILE.yaml with a ConfigMap, as
// "oc adm release mirror" writes it. It takes the place of an earlier one of the same key and reference. AddTo returns
// the path of the message.
func AddTo(path, digest string, message []byte) (string, error) {
	name, err := util.DigestToKeyPrefix(digest, "=")
	if err != nil {
		return "", err
	}
	folder := filepath.Join(path, name)
	if isConfigMapFile(path) {
		folder = filepath.Dir(path)
	} else if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	lock := flock.New(folder, flock.SetFlag(os.O_RDONLY)) // others may sign at the same time
	if err := lock.Lock(); err != nil {
		return "", err
	}
	defer lock.Unlock() //nolint:errcheck // the process ends soon
	messages, err := fileStore(path).read(digest)
	key, reference := signerOf(message)
	i := slices.IndexFunc(messages, func(earlier []byte) bool {
		itsKey, itsReference := signerOf(earlier)
		return itsKey == key && itsReference == reference
	})
	switch {
	case err != nil:
		return "", err
	case i >= 0:
		messages[i] = message
	case len(messages) >= maxSignatures:
		return "", fmt.Errorf("%s has %d signatures of the image already, which is the limit", path, maxSignatures)
	default:
		i, messages = len(messages), append(messages, message)
	}
	if isConfigMapFile(path) {
		return path, addToConfigMap(path, digest, messages)
	}
	file := filepath.Join(folder, fmt.Sprintf("signature-%d", i+1))
	return file, writeFile(file, message)
}

// signerOf returns the key of a message, and the reference of its image. Neither is verified.
func signerOf(message []byte) (key uint64, reference string) {
	unpacked, err := unpack(message)
	if err != nil {
		return 0, ""
	}
	read, err := openpgp.ReadMessage(bytes.NewReader(unpacked), openpgp.EntityList{}, nil, nil)
	if err != nil {
		return 0, ""
	}
	content, _ := io.ReadAll(read.UnverifiedBody)
	claim, _ := simplesigning.Parse(content, simplesigning.OpenPGP)
	return read.SignedByKeyId, claim.Reference
}

func isConfigMapFile(path string) bool {
	return strings.HasSuffix(path, ".yaml") || strings.HasSuffix(path, ".yml")
}

// readConfigMap returns the ConfigMap of a file, and the messages about an image in it.
func readConfigMap(path, digest string) (configMap *corev1.ConfigMap, messages [][]byte, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err == nil {
		err = yaml.UnmarshalStrict(text, &configMap)
	}
	if err == nil && (configMap == nil || configMap.Kind != "ConfigMap") {
		err = errors.New("it is not a ConfigMap")
	}
	prefix, invalid := util.DigestToKeyPrefix(digest, "-")
	if err = cmp.Or(err, invalid); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := 1; i <= maxSignatures && configMap.BinaryData[fmt.Sprintf("%s-%d", prefix, i)] != nil; i++ {
		messages = append(messages, configMap.BinaryData[fmt.Sprintf("%s-%d", prefix, i)])
	}
	return configMap, messages, nil
}

// addToConfigMap writes the messages about an image to the ConfigMap of a file. A new one names no namespace:
// operators of different kinds read different ones.
func addToConfigMap(path, digest string, messages [][]byte) error {
	configMap, _, err := readConfigMap(path, digest)
	if err != nil {
		return err
	}
	added, err := verify.GetSignaturesAsConfigmap(digest, messages)
	if err != nil {
		return err
	}
	added.Namespace = ""
	if configMap != nil {
		maps.DeleteFunc(configMap.BinaryData, func(key string, _ []byte) bool { return added.BinaryData[key] != nil })
		maps.Copy(added.BinaryData, configMap.BinaryData)
		configMap.BinaryData = added.BinaryData
		added = configMap
	}
	text, err := yaml.Marshal(added)
	if err != nil {
		return err
	}
	return writeFile(path, text)
}

// writeFile writes a file as a whole.
func writeFile(path string, content []byte) error {
	part := path + ".part"
	if err := os.WriteFile(part, content, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}
