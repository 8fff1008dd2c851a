package binaries_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

// TestSandboxStartsFromAnArchive packs the real programs as a release does, and starts a sandbox of a user without any
// programs.
func TestSandboxStartsFromAnArchive(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	programs, err := binaries.Locate(t.Context(), binaries.Names(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := binaries.Pack(programs["etcd"], binaries.Names())
	if err != nil {
		t.Fatal(err)
	}
	name, err := binaries.ArchiveName()
	if err != nil {
		t.Fatal(err)
	}
	binaries.ReplaceArchives(t, fmt.Sprintf("%s %x\n", name, sha256.Sum256(archive)))
	var downloads atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		downloads.Add(1)
		if r.URL.Path != "/all/"+name {
			t.Errorf("request for %s, want %s", r.URL.Path, name)
		}
		_, _ = w.Write(archive)
	}))
	t.Cleanup(server.Close)
	t.Setenv(binaries.DownloadsVariable, server.URL+"/all/")
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	t.Setenv("PATH", "") // no Go
	if os.Getenv(binaries.AssetsVariable) != "" {
		if _, err := binaries.Locate(t.Context(), binaries.Names(), nil); err != nil || downloads.Load() > 0 {
			t.Errorf("%s does not have precedence: %d downloads, %v", binaries.AssetsVariable, downloads.Load(), err)
		}
	}
	t.Setenv(binaries.AssetsVariable, "")
	s, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 || downloads.Load() != 1 {
		t.Errorf("%d nodes, %d downloads, %v; want 1 of each", len(nodes.Items), downloads.Load(), err)
	}
	located, err := binaries.Locate(t.Context(), []string{"etcd"}, nil)
	if err != nil || !strings.HasPrefix(located["etcd"], cache) {
		t.Errorf("etcd is %s, %v; want one in %s", located["etcd"], err, cache)
	}
}
