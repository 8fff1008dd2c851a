package sandbox

import (
	"os"
	"path/filepath"
	"time"

	"github.com/openshift/library-go/pkg/crypto"
	"k8s.io/apimachinery/pkg/util/sets"
	authentication "k8s.io/apiserver/pkg/authentication/user"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

// lifetime of all certificates. A sandbox is stopped long before; a machine that
// sleeps for a week should find it working.
const lifetime = 30 * 24 * time.Hour

// keys makes the keys of all certificates.
var keys = crypto.ECDSAKeyPairGenerator{Curve: crypto.P256}

// An authority is a throw-away certificate authority. There are three, as in a
// real cluster: for clients of etcd, for the aggregator, and for all
// other certificates. A common one would let every user issue certificates for the other two.
type authority struct{ crypto.CA }

// A pair is a certificate and its private key, in PEM.
type pair struct{ cert, key []byte }

func newAuthority(name string) (*authority, error) {
	config, err := crypto.NewSigningCertificate(name, keys, crypto.WithLifetime(lifetime))
	return &authority{crypto.CA{Config: config, SerialGenerator: &crypto.RandomSerialGenerator{}}}, err
}

// server issues a certificate for serving on loopback under the given names. It is
// valid for clients too: etcd connects to itself.
func (a *authority) server(names ...string) (pair, error) {
	hosts := sets.New(names...).Insert("127.0.0.1", "::1")
	return pairOf(a.NewPeerCertificate(hosts, &authentication.DefaultInfo{Name: names[0]}, keys,
		crypto.WithLifetime(lifetime)))
}

// client issues a certificate for a client of that name.
func (a *authority) client(name string) (pair, error) {
	return pairOf(a.NewClientCertificate(&authentication.DefaultInfo{Name: name}, keys, crypto.WithLifetime(lifetime)))
}

// pair returns the authority's own certificate and key.
func (a *authority) pair() (pair, error) { return pairOf(a.Config, nil) }

func pairOf(issued *crypto.TLSCertificateConfig, err error) (pair, error) {
	if err != nil {
		return pair{}, err
	}
	cert, key, err := issued.GetPEMBytes()
	return pair{cert: cert, key: key}, err
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
