package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestInterruptedPreviewFails loses the server after some requests: objects without an answer
// must be reported neither as unchanged nor as changed.
func TestInterruptedPreviewFails(t *testing.T) {
	config := control.Sandbox(t).Config
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	host, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(host)
	proxy.Transport = transport
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodPatch {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, request)
	}))
	defer server.Close()
	folder := t.TempDir()
	kubeconfig := filepath.Join(folder, "kubeconfig")
	write(t, kubeconfig,
		fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, "+
			"user: a}}], clusters: [{name: a, cluster: {server: %q}}], users: [{name: a, user: {}}]}", server.URL))
	for i := range 100 {
		write(t, filepath.Join(folder, "release", fmt.Sprintf("0000_10_shop_%02d.yaml", i)),
			fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: half-%d, namespace: default}}", i))
	}
	for _, args := range [][]string{{"diff", "--exit-code"}, {"plan", "--cluster", "--exit-code"}} {
		code, output := runCommand(
			append(args, filepath.Join(folder, "release"), "--name", "half", "--kubeconfig", kubeconfig),
		)
		if code != 2 || strings.Contains(output, "gave no answer") || !strings.Contains(output, "EOF") {
			t.Errorf("%v: got exit code %d, want 2 and an error with EOF:\n%s", args, code, output)
		}
	}
}
