// Package credentials issues the credentials of a sandbox: certificates, users with their tokens, and kubeconfigs.
//
// All credentials are for one sandbox and are deleted with it. Packages sandbox and realnode know which component needs
// which credentials.
//
// Start with NewAuthority and NewUser.
package credentials

import (
	"os"
	"path/filepath"
	"time"

	"github.com/openshift/library-go/pkg/crypto"
	"k8s.io/apimachinery/pkg/util/sets"
	authentication "k8s.io/apiserver/pkg/authentication/user"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

// lifetime is the lifetime of all certificates. A sandbox is stopped long before, but one on a machine that sleeps for
// a week still works.
const lifetime = 30 * 24 * time.Hour

// keys generates the keys of all certificates.
var keys = crypto.ECDSAKeyPairGenerator{Curve: crypto.P256}

// An Authority is a certificate authority. A sandbox has three authorities, as a real cluster does: for clients of
// etcd, for the aggregator, and for all other certificates. With a common authority, clients of the API server could
// also connect to etcd, and act as the aggregator.
type Authority struct{ crypto.CA }

// A KeyPair is a certificate and its private key, in PEM.
type KeyPair struct{ Certificate, Key []byte }

// NewAuthority creates an authority.
func NewAuthority(name string) (*Authority, error) {
	config, err := crypto.NewSigningCertificate(name, keys, crypto.WithLifetime(lifetime))
	return &Authority{crypto.CA{Config: config, SerialGenerator: &crypto.RandomSerialGenerator{}}}, err
}

// Server issues a certificate for a server with the given names, which are its names or addresses, and for the
// loopback. The certificate is valid for clients, too: etcd connects to itself.
func (a *Authority) Server(names ...string) (KeyPair, error) {
	hosts := sets.New(names...).Insert("127.0.0.1", "::1")
	user := &authentication.DefaultInfo{Name: names[0]}
	return newKeyPair(a.NewPeerCertificate(hosts, user, keys, crypto.WithLifetime(lifetime)))
}

// Client issues a certificate for a client of that name.
func (a *Authority) Client(name string) (KeyPair, error) {
	user := &authentication.DefaultInfo{Name: name}
	return newKeyPair(a.NewClientCertificate(user, keys, crypto.WithLifetime(lifetime)))
}

// KeyPair returns the authority's own certificate and key.
func (a *Authority) KeyPair() (KeyPair, error) { return newKeyPair(a.Config, nil) }

func newKeyPair(issued *crypto.TLSCertificateConfig, err error) (KeyPair, error) {
	if err != nil {
		return KeyPair{}, err
	}
	certificate, key, err := issued.GetPEMBytes()
	return KeyPair{Certificate: certificate, Key: key}, err
}

// Write stores the pair as NAME.crt and NAME.key in a folder.
func (p KeyPair) Write(folder, name string) error {
	for extension, content := range map[string][]byte{".crt": p.Certificate, ".key": p.Key} {
		if err := os.WriteFile(filepath.Join(folder, name+extension), content, 0o600); err != nil {
			return binaries.Explain("write certificates", err)
		}
	}
	return nil
}
