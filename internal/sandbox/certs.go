package sandbox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

// lifetime of all certificates. A sandbox is stopped long before; a machine that
// sleeps for a week should find it working.
const lifetime = 30 * 24 * time.Hour

// An authority is a throw-away certificate authority. There are three, as in a
// real cluster: who may talk to etcd, who may speak for the aggregator, and all
// the rest. One for all would give every user the keys to the other two.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// A pair is a certificate and its private key, in PEM.
type pair struct{ cert, key []byte }

func newAuthority(name string) (*authority, error) {
	template, err := template(name)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key}, err
}

// server issues a certificate for serving on loopback under the given names,
// good as a client's too: etcd talks to itself.
func (a *authority) server(names ...string) (pair, error) {
	template, err := template(names[0])
	if err != nil {
		return pair{}, err
	}
	template.DNSNames = names
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

// client issues a certificate for a user in groups.
func (a *authority) client(user string, groups ...string) (pair, error) {
	template, err := template(user)
	if err != nil {
		return pair{}, err
	}
	template.Subject.Organization = groups
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	return pair{cert: encodeCert(der), key: private}, err
}

// pair returns the authority's own certificate and key.
func (a *authority) pair() (pair, error) {
	private, err := keyutil.MarshalPrivateKeyToPEM(a.key)
	return pair{cert: encodeCert(a.cert.Raw), key: private}, err
}

func template(commonName string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    now.Add(-time.Minute), // for clocks that are set back a little
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}, nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// newSigningKey makes a key pair without a certificate.
func newSigningKey() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, err
	}
	private, err = keyutil.MarshalPrivateKeyToPEM(key)
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}

// write stores the pair as NAME.crt and NAME.key in a folder.
func (p pair) write(folder, name string) error {
	for extension, content := range map[string][]byte{".crt": p.cert, ".key": p.key} {
		if err := os.WriteFile(filepath.Join(folder, name+extension), content, 0o600); err != nil {
			return binaries.Explain("write certificates", err)
		}
	}
	return nil
}
