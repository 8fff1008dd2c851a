package runtimehooktest

import (
	"slices"
	"testing"
	"time"

	"github.com/openshift/library-go/pkg/crypto"
	"k8s.io/apimachinery/pkg/util/sets"
)

// keys creates the keys of all certificates.
var keys = crypto.ECDSAKeyPairGenerator{Curve: crypto.P256}

// Expired is the name of a certificate that has expired.
const Expired = "expired"

// An issuedCertificate is a certificate, its key, and the certificate of the authority that has signed it, all as PEM.
type issuedCertificate struct{ cert, key, ca []byte }

// issueCertificate issues a certificate for a server with these names, or for 127.0.0.1 if there are none.
func issueCertificate(t testing.TB, names ...string) issuedCertificate {
	t.Helper()
	lifetime := 24 * time.Hour
	if slices.Contains(names, Expired) {
		lifetime = -time.Hour
	}
	hosts := sets.New(names...).Delete(Expired)
	if len(hosts) == 0 {
		hosts.Insert("127.0.0.1")
	}
	signer, err := crypto.NewSigningCertificate("extensions of a test", keys)
	if err != nil {
		t.Fatal(err)
	}
	authority := crypto.CA{Config: signer, SerialGenerator: &crypto.RandomSerialGenerator{}}
	server, err := authority.NewServerCertificate(hosts, keys, crypto.WithLifetime(lifetime))
	if err != nil {
		t.Fatal(err)
	}
	var issued issuedCertificate
	if issued.cert, issued.key, err = server.GetPEMBytes(); err != nil {
		t.Fatal(err)
	}
	if issued.ca, _, err = signer.GetPEMBytes(); err != nil {
		t.Fatal(err)
	}
	return issued
}
