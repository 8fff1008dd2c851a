package main

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/hostpods"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A pageRegistry is a registry of a page.
type pageRegistry struct {
	host   string
	isAway atomic.Bool
	server *httptest.Server
}

// newPageRegistry starts a registry. It requires the password, unless the password is empty.
func newPageRegistry(t *testing.T, hasReferrers bool, password string,
	listen func(net.Listener) net.Listener) *pageRegistry {
	t.Helper()
	content := registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(hasReferrers))
	r := &pageRegistry{}
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if r.isAway.Load() {
			panic(http.ErrAbortHandler)
		}
		if _, given, _ := request.BasicAuth(); given != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		content.ServeHTTP(w, request)
	}))
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.server.Listener = listen(r.server.Listener)
	r.server.StartTLS()
	t.Cleanup(r.server.Close)
	r.host = r.server.Listener.Addr().String()
	return r
}

// A droppingListener closes every second connection after some bytes.
type droppingListener struct {
	net.Listener
	count atomic.Int64
}

// Accept implements net.Listener.
func (d *droppingListener) Accept() (net.Conn, error) {
	connection, err := d.Listener.Accept()
	if err != nil || d.count.Add(1)%2 == 0 {
		return connection, err
	}
	return &droppedConnection{Conn: connection, left: 200_000}, nil
}

type droppedConnection struct {
	net.Conn
	left int
}

func (d *droppedConnection) Write(p []byte) (int, error) {
	if d.left -= len(p); d.left < 0 {
		d.Close()
	}
	return d.Conn.Write(p)
}

// TestPageOnReleases runs the page from its first line to its last, on a control plane. Its first registry drops every
// second connection, and does not answer where the page is in the other network; its second one requires a password,
// and has no referrers API. The operator runs as a process with the rights of its Deployment.
func TestPageOnReleases(t *testing.T) {
	for _, program := range []string{"kubectl", "openssl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	sandboxtest.NeedControlPlane(t)
	t.Parallel()
	outer := newPageRegistry(t, true, "", func(l net.Listener) net.Listener { return &droppingListener{Listener: l} })
	inner := newPageRegistry(t, false, "secret", func(l net.Listener) net.Listener { return l })
	folder := t.TempDir()
	certificate := filepath.Join(folder, "company.crt")
	auth := fmt.Sprintf(`{"auths": {%q: {"username": "shop", "password": "secret"}}}`, inner.host)
	if err := os.Mkdir(filepath.Join(folder, "certs.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"company.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: outer.server.Certificate().Raw}),
		"config.json": []byte(auth),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, image := range []string{"shop/web:1.0", "tools/runlevel:v0.1.0"} {
		push(t, outer, image)
	}
	running := sandboxtest.Start(t, sandbox.Options{})
	startOperator(t, running)
	replace := strings.NewReplacer("registry.example", outer.host, "registry.internal:5000", inner.host,
		"/etc/containerd/", folder+"/",
		// The operator is a process, which does not have the certificates of its container.
		"kubectl create namespace runlevel-system\n", `kubectl create namespace runlevel-system
kubectl -n runlevel-system create configmap runlevel-proxy --from-literal=SSL_CERT_FILE=`+certificate+"\n")
	sections := append(sandboxtest.ReadPage(t, "../../docs/releases.md"), sandboxtest.Section{
		Script: "kubectl get clusterversion version -o jsonpath='{.status.history[*].version}'",
	})
	last := ""
	for _, section := range sections {
		outer.isAway.Store(slices.Contains([]string{"Mirror into the internal registry", "Install", "Update",
			"Update again", "Roll back"}, section.Title))
		last = section.Run(t, folder, replace, "KUBECONFIG="+running.Kubeconfig, "SSL_CERT_FILE="+certificate,
			"DOCKER_CONFIG="+folder)
		if section.Title == "Update" && !strings.Contains(last, "The update cannot be verified") {
			t.Errorf("an unsigned release is not refused:\n%s", last)
		}
	}
	if !strings.HasSuffix(last, "1.0.0 1.0.1 1.0.0") {
		t.Errorf("the history is %q", last)
	}
}

// push pushes an image to a registry.
func push(t *testing.T, r *pageRegistry, tagged string) {
	t.Helper()
	image, err := random.Image(300_000, 2)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(r.host + "/" + tagged)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	if err := remote.Write(ref, image, remote.WithTransport(transport)); err != nil {
		t.Fatal(err)
	}
}

// startOperator runs the pods of the operator as processes, once they exist.
func startOperator(t *testing.T, running *sandbox.Sandbox) {
	t.Helper()
	pods, err := hostpods.Start(t.Context(), hostpods.Options{
		Config: running.Config, Namespace: "runlevel-system", Selector: "app.kubernetes.io/name=runlevel-operator",
		Programs: map[string]string{"runlevel-cluster": sandboxtest.Program(t, "runlevel-cluster")},
		Folder:   t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, process := range pods.Processes() {
			if text, _ := os.ReadFile(process.Log); t.Failed() {
				t.Logf("%s", text[max(0, len(text)-5000):])
			}
		}
		_ = pods.Stop()
	})
}
