package e2e_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
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
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestPageOnReleases runs the page from its first line to its last, on a real node. The first registry is only on the
// loopback of this machine, so the node pulls all images from the second one, by its hosts.toml.
func TestPageOnReleases(t *testing.T) {
	sandboxtest.NeedRealNodes(t)
	for _, program := range []string{"kubectl", "openssl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	t.Parallel()
	s := newStageOn(t, sandboxtest.Start(t, sandbox.Options{RealNodes: 1, Offline: true}))
	var isAway atomic.Bool
	content := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	outer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isAway.Load() {
			panic(http.ErrAbortHandler)
		}
		content.ServeHTTP(w, r)
	}))
	outer.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer outer.Close()
	inner := s.newRegistry()
	inner.isOpen = true
	folder, host := t.TempDir(), strings.TrimPrefix(outer.URL, "https://")
	s.must(os.Mkdir(filepath.Join(folder, "certs.d"), 0o755))
	trusted := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: outer.Certificate().Raw})
	certificate := filepath.Join(folder, "company.crt")
	s.must(os.WriteFile(certificate, slices.Concat(trusted, inner.authority), 0o644))
	s.pushTo(host+"/shop/web:1.0", s.programImage())
	s.pushTo(host+"/tools/runlevel:v0.1.0", s.runlevelImage("page"))

	replace := strings.NewReplacer("registry.example", host, "registry.internal:5000", inner.host, "/etc/containerd/",
		folder+"/")
	for _, section := range sandboxtest.ReadPage(t, "../../docs/releases.md") {
		isAway.Store(slices.Contains([]string{"Mirror into the internal registry", "Nodes", "Install", "Update",
			"Update again", "Roll back"}, section.Title))
		section.Run(t, folder, replace, "KUBECONFIG="+s.sandbox.Kubeconfig, "SSL_CERT_FILE="+certificate,
			"DOCKER_CONFIG="+t.TempDir())
		if section.Title == "Nodes" {
			s.configureNode(filepath.Join(folder, "certs.d"))
		}
		if section.Title == "Update again" {
			s.untilRuns("1.0.1", host+"/shop/web@sha256:")
		}
	}
	s.untilRuns("1.0.0", host+"/shop/web@sha256:")
}

// programImage returns the image of this program, which serves until its end.
func (s *stage) programImage() v1.Image {
	s.t.Helper()
	folder, err := imageFolder()
	s.must(err)
	defer os.RemoveAll(folder)
	image, err := imageregistry.ImageOf(os.DirFS(folder))
	s.must(err)
	image, err = mutate.Config(image, v1.Config{Entrypoint: []string{programPath, "serve"}})
	s.must(err)
	return image
}

func (s *stage) pushTo(tagged string, image v1.Image) {
	s.t.Helper()
	tag, err := name.NewTag(tagged)
	s.must(err)
	s.must(remote.Write(tag, image, remote.WithTransport(
		&http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}})))
}

// configureNode copies the configuration of registries to the folder from which the node's containerd reads it.
func (s *stage) configureNode(folder string) {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(filepath.Dir(s.sandbox.Kubeconfig), "*", "*", "registries"))
	s.must(err)
	if len(found) != 1 {
		s.t.Fatalf("the folders of registries are %q", found)
	}
	s.must(os.CopyFS(found[0], os.DirFS(folder)))
}

// untilRuns waits until a pod of the shop runs an image, for a version.
func (s *stage) untilRuns(version, image string) {
	s.t.Helper()
	s.eventually("version "+version+" runs", func(ctx context.Context) bool {
		pods, err := s.core.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
			return p.Annotations["version"] == version && p.Status.Phase == corev1.PodRunning &&
				strings.HasPrefix(p.Spec.Containers[0].Image, image)
		})
	})
}
