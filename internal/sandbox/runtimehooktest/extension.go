// Package runtimehooktest runs runtime extensions for tests: real HTTPS servers in the process of the test, each with a
// certificate authority of its own, that answer hooks as the test configures and record their requests.
//
// Start with New:
//
//	extension := runtimehooktest.New(t)
//	extension.Answer("UpdateMachine", `{"status":"Success","retryAfterSeconds":0}`)
package runtimehooktest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openshift/library-go/pkg/crypto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An Extension is a runtime extension.
type Extension struct {
	server *httptest.Server
	ca     []byte

	mu      sync.Mutex
	answers map[string]http.HandlerFunc // answers by the hook, in lower case
	calls   []TestCall
}

// A TestCall is a request that an extension received.
type TestCall struct {
	URL        string // path and query
	ServerName string // server name in the client's TLS handshake
	Body       string
}

// New runs an extension until the test ends. Its certificate is for the names, or for 127.0.0.1 if there are none.
func New(t testing.TB, names ...string) *Extension {
	t.Helper()
	e := &Extension{answers: map[string]http.HandlerFunc{}}
	e.server = httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	issued := issueCertificate(t, names...)
	certificate, err := tls.X509KeyPair(issued.cert, issued.key)
	if err != nil {
		t.Fatal(err)
	}
	e.ca = issued.ca
	e.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	e.server.StartTLS()
	t.Cleanup(e.server.Close)
	return e
}

// ClientConfig returns the configuration of clients of the extension.
func (e *Extension) ClientConfig() runtimev1.ClientConfig {
	return runtimev1.ClientConfig{URL: e.server.URL, CABundle: e.ca}
}

// CA returns the certificate of the extension's authority, as PEM.
func (e *Extension) CA() []byte { return e.ca }

// Address returns the host and port of the extension.
func (e *Extension) Address() string { return e.server.Listener.Addr().String() }

// Answer sets the response of the extension to a hook.
func (e *Extension) Answer(hook, text string) {
	e.Serve(hook, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

// Serve makes the extension answer a hook by a function.
func (e *Extension) Serve(hook string, answer http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers[strings.ToLower(hook)] = answer
}

// Stop closes the extension's port: connections to it are refused.
func (e *Extension) Stop() { e.server.Close() }

// Calls returns the requests that the extension has received so far.
func (e *Extension) Calls() []TestCall {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]TestCall(nil), e.calls...)
}

func (e *Extension) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_, hook, _ := strings.Cut(r.URL.Path, "/v1alpha1/")
	hook, _, _ = strings.Cut(hook, "/")
	e.mu.Lock()
	e.calls = append(e.calls, TestCall{r.URL.RequestURI(), r.TLS.ServerName, string(body)})
	answer, isKnown := e.answers[hook]
	e.mu.Unlock()
	if !isKnown {
		http.NotFound(w, r)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer(w, r)
}

// FreeAddress returns an address of this machine where no server listens.
func FreeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

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

// Register creates an ExtensionConfig with the namespace's name, for that namespace only, and deletes it at the end of
// the test.
func (e *Extension) Register(t testing.TB, c client.Client, namespace string) *runtimev1.ExtensionConfig {
	t.Helper()
	config := &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	config.Spec.ClientConfig = e.ClientConfig()
	config.Spec.NamespaceSelector = &metav1.LabelSelector{
		MatchLabels: map[string]string{corev1.LabelMetadataName: namespace},
	}
	if err := c.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), config) })
	return config
}

// Discover writes the status of an ExtensionConfig as its controller does once it has discovered the hooks.
func Discover(t testing.TB, c client.Client, config *runtimev1.ExtensionConfig, policy runtimev1.FailurePolicy,
	hooks ...string) {
	t.Helper()
	before := config.DeepCopy()
	for _, hook := range hooks {
		config.Status.Handlers = append(config.Status.Handlers, runtimev1.ExtensionHandler{
			Name: strings.ToLower(hook) + "." + config.Name, TimeoutSeconds: 10, FailurePolicy: policy,
			RequestHook: runtimev1.GroupVersionHook{APIVersion: hooksv1.GroupVersion.String(), Hook: hook},
		})
	}
	config.Status.Conditions = []metav1.Condition{{
		Type: runtimev1.ExtensionConfigDiscoveredCondition, Status: metav1.ConditionTrue, Reason: "Discovered",
		ObservedGeneration: config.Generation, LastTransitionTime: metav1.Now(),
	}}
	if err := c.Status().Patch(t.Context(), config, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// StartProcess runs an extension as a process of its own until the test ends, and returns the configuration of its
// clients. The command gets the flags of package extensionserver, and must log its address.
func StartProcess(t testing.TB, command *exec.Cmd) runtimev1.ClientConfig {
	t.Helper()
	folder := t.TempDir()
	ca := WriteCertificate(t, folder)
	command.Args = append(command.Args, "--listen=127.0.0.1:0", "--cert-file="+filepath.Join(folder, "tls.crt"),
		"--key-file="+filepath.Join(folder, "tls.key"))
	stderr, err := command.StderrPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return runtimev1.ClientConfig{URL: "https://" + awaitAddress(t, bufio.NewScanner(stderr)), CABundle: ca}
}

// WriteCertificate writes a certificate for 127.0.0.1 and its key into a folder, as tls.crt and tls.key, and returns
// the certificate of the authority.
func WriteCertificate(t testing.TB, folder string) []byte {
	t.Helper()
	issued := issueCertificate(t)
	for name, text := range map[string][]byte{"tls.crt": issued.cert, "tls.key": issued.key} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return issued.ca
}

// awaitAddress reads the log of an extension up to the line with its address, and returns the address. Later lines go
// to the test's standard error.
func awaitAddress(t testing.TB, stderr *bufio.Scanner) string {
	t.Helper()
	listens := regexp.MustCompile(` at (\S+:\d+)$`)
	for stderr.Scan() {
		if found := listens.FindStringSubmatch(stderr.Text()); found != nil {
			go func() {
				for stderr.Scan() {
					_, _ = os.Stderr.WriteString(stderr.Text() + "\n")
				}
			}()
			return found[1]
		}
		t.Log(stderr.Text())
	}
	t.Fatalf("the extension has ended: %v", stderr.Err())
	return ""
}
