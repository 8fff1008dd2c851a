package lint_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/runlevel/runlevel/internal/review/lint"
)

// secretUntil returns a Secret with a certificate that ends after a time.
func secretUntil(t *testing.T, left time.Duration) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(left),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, content []byte) string {
		lines := strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})))
		return strings.ReplaceAll(lines, "\n", "\n    ")
	}
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: web, namespace: shop}\ntype: kubernetes.io/tls\nstringData:\n" +
		"  tls.crt: |\n    " + block("CERTIFICATE", certificate) + "\n  tls.key: |\n    " +
		block("PRIVATE KEY", private) + "\n"
}

func TestCertificatesOfUpdatesLastAWeek(t *testing.T) {
	const day = 24 * time.Hour
	release := func(left time.Duration) fstest.MapFS {
		return fstest.MapFS{"0000_10_shop_00_web.yaml": text(secretUntil(t, left))}
	}
	for left, isReported := range map[time.Duration]bool{2 * day: true, 30 * day: false} {
		found := messages(run(t, lint.Input{
			Payload: parsed(t, release(left)), Previous: parsed(t, release(90*day)),
		}).Findings)
		if strings.Contains(found, "tls.crt ends on") != isReported {
			t.Errorf("a certificate with %s left: %s", left, found)
		}
	}
}
