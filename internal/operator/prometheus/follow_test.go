package prometheus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// encode returns a certificate in PEM.
func encode(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// otherAuthority returns the certificate of an authority that has signed no server.
func otherAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return encode(der)
}

// TestAuthoritiesChange has the file of OpenShift's authorities appear after the start, and change. A follower reports
// each change once: that the server is missing (nil), or an error, of which the first stays.
func TestAuthoritiesChange(t *testing.T) {
	t.Parallel()
	status, authorities := http.StatusOK, filepath.Join(t.TempDir(), "service-ca.crt")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w,
			`{"status": "success", "data": {"alerts": [{"state": "firing", "labels": {"alertname": "Down"}}]}}`)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that the client ends are expected
	server.StartTLS()
	t.Cleanup(server.Close)
	own, other := encode(server.Certificate().Raw), otherAuthority(t)
	options, notices, logged := (Options{}).orOpenShifts(authorities), 0, 0
	options.URL, options.TokenFile = server.URL, ""
	f, err := newFollower(options, func() { notices++ })
	if err != nil || f.Follow(nil) != nil {
		t.Fatalf("got error %v and %+v without authorities, want no Prometheus", err, f.Follow(nil))
	}
	ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(string, string) { logged++ }, funcr.Options{}))
	const missing, unknown = "missing", "certificate signed by unknown authority"
	for i, c := range []struct {
		authorities string
		status      int
		want        string
		isLogged    bool
	}{
		{"", http.StatusOK, missing, false}, // no file
		{"\n", http.StatusOK, missing, true},
		{"no certificate", http.StatusOK, missing, false},
		{other, http.StatusOK, unknown, true},
		{own, http.StatusForbidden, unknown, false},
		{own, http.StatusOK, "", false},
		{own, http.StatusForbidden, "403", true},
		{own, http.StatusOK, "", false},
		{other, http.StatusOK, unknown, true}, // a connection of before is not used
		{"\n", http.StatusOK, missing, true},
		{own, http.StatusForbidden, "403", true},
	} {
		if c.authorities != "" {
			if err := os.WriteFile(authorities, []byte(c.authorities), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		status = c.status
		logged = 0
		f.readAlerts(ctx)
		before := notices
		if c.want != "" {
			f.readAlerts(ctx)
		}
		got := missing
		if monitoring := f.Follow(nil); monitoring != nil {
			got = strings.TrimPrefix(fmt.Sprint(monitoring.AlertErr), "<nil>")
			if monitoring.HasAlerts && len(monitoring.Alerts) != 1 {
				t.Errorf("step %d: got alerts %+v, want the last ones", i, monitoring.Alerts)
			}
		}
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") || (logged == 1) != c.isLogged ||
			logged > 1 {
			t.Errorf("step %d: got %q, and %d lines of the log; want %q, logged: %t", i, got, logged, c.want,
				c.isLogged)
		}
		if notices != before {
			t.Errorf("step %d: the same state is reported twice", i)
		}
	}
}

func TestAuthoritiesOfTheFlagMustExist(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ca.crt")
	options := Options{URL: "https://prometheus.example", CAFile: file}
	if _, err := New(options, nil); err == nil || !strings.Contains(err.Error(), "--prometheus-ca-file: open ") {
		t.Errorf("got error %v, want that of the missing file", err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(options, nil); err == nil || !strings.Contains(err.Error(), "ca.crt has no certificate in PEM") {
		t.Errorf("got error %v, want that of the empty file", err)
	}
}

func TestNoPrometheus(t *testing.T) {
	t.Parallel()
	if f, err := New(Options{URL: None}, nil); f != nil || err != nil || f.Follow([]string{"up"}) != nil {
		t.Errorf("got %+v, error %v; want no Prometheus", f, err)
	}
}
