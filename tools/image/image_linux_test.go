package main

import (
	"archive/tar"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// maxSize is the maximum compressed size of the image.
const maxSize = 44_000_000

// compressedSize returns the size of the layers of an image.
func compressedSize(image v1.Image) (int64, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return 0, err
	}
	var size int64
	for _, layer := range manifest.Layers {
		size += layer.Size
	}
	return size, nil
}

// TestProgramsRunInTheImageAlone starts the programs of an image in a folder with only the image.
func TestProgramsRunInTheImageAlone(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may change the root folder of a program")
	}
	folder := filepath.Join(t.TempDir(), "image")
	if err := (&builder{source: "../.."}).write(folder, []string{"linux/" + runtime.GOARCH}); err != nil {
		t.Fatal(err)
	}
	image := onlyImage(t, folder)
	if size, err := compressedSize(image); err != nil || size > maxSize {
		t.Errorf("the image has %d MB, at most %d: %v", size/1_000_000, maxSize/1_000_000, err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	container := &container{t: t, root: t.TempDir(), config: config.Config}
	if err := os.Chmod(container.root, 0o755); err != nil {
		t.Fatal(err)
	}
	container.unpack(image)

	t.Run("programs", func(t *testing.T) {
		for _, main := range glob(t, "../../cmd/*") {
			if out, err := container.run(nil, "/"+filepath.Base(main), "--help"); err != nil ||
				!strings.Contains(out, "Usage:") {
				t.Errorf("%s: %v\n%s", main, err, out)
			}
		}
	})
	t.Run("entrypoint", func(t *testing.T) {
		out, err := container.run(nil, config.Config.Entrypoint[0], "version")
		if err != nil || !strings.Contains(out, "linux/"+runtime.GOARCH) {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("public authorities", func(t *testing.T) {
		text, err := os.ReadFile(filepath.Join(container.root, "etc/ssl/certs/ca-certificates.crt"))
		if err != nil {
			t.Fatal(err)
		}
		if read := authoritiesIn(t, text); read < 80 {
			t.Errorf("the programs read %d certificates", read)
		}
	})
	t.Run("another authority", func(t *testing.T) { testAuthority(t, container) })
	t.Run("time zones", func(t *testing.T) { testTimeZone(t, container) })
}

// testAuthority pulls a release by TLS, with a certificate in the folder that the operator's Deployment mounts.
func testAuthority(t *testing.T, container *container) {
	server := httptest.NewUnstartedServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "https://") + "/shop:v1")
	if err != nil {
		t.Fatal(err)
	}
	layer, err := newLayer([]file{
		{path: "release-manifests/", mode: 0o755},
		{
			path:    "release-manifests/release-metadata",
			mode:    0o644,
			content: []byte(`{"kind": "cincinnati-metadata-v0", "version": "1.4.0"}`),
		},
		{
			path: "release-manifests/image-references",
			mode: 0o644,
			content: []byte(
				`{"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": {"name": "1.4.0"}}`,
			),
		},
		{
			path:    "release-manifests/0000_10_shop_a.yaml",
			mode:    0o644,
			content: []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: of-the-shop}}"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	release, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, release, remote.WithTransport(server.Client().Transport)); err != nil {
		t.Fatal(err)
	}
	if out, err := container.run(nil, "/runlevel", "render", ref.String()); err == nil ||
		!strings.Contains(out, "isn't trusted") {
		t.Errorf("without its certificate: %v\n%s", err, out)
	}
	certificates := filepath.Join(container.root, "etc/pki/tls/certs")
	if err := os.MkdirAll(certificates, 0o755); err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(certificates, "ours.crt"), certificate, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := container.run(nil, "/runlevel", "render", ref.String()); err != nil ||
		!strings.Contains(out, "name: of-the-shop") {
		t.Errorf("with its certificate: %v\n%s", err, out)
	}
}

// testTimeZone reads the time in a log, in the zone of $TZ.
func testTimeZone(t *testing.T, container *container) {
	const zone = "Asia/Kolkata" // which is never the host's by chance, at 5:30 hours
	kubeconfig := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
		clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]}`
	if err := os.WriteFile(filepath.Join(container.root, "kubeconfig"), []byte(kubeconfig), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _ := container.run([]string{"TZ=" + zone, "KUBECONFIG=/kubeconfig"}, "/runlevel", "history", "-v", "6")
	place, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().In(place)
	year := now.Format("2006 ")
	for line := range strings.Lines(out) {
		if logged, err := time.ParseInLocation("2006 0102 15:04:05", year+line[1:min(len(line), 14)],
			place); err == nil {
			if off := now.Sub(logged).Abs(); off > 10*time.Minute {
				t.Errorf("the log has the line %s, want the time %s", line, now)
			}
			return
		}
	}
	t.Errorf("no line has a time: %s", out)
}

// A container is a folder with the files of an image, the root folder of its programs.
type container struct {
	t      *testing.T
	root   string
	config v1.Config
}

// run runs a program as the user of the image. The user must be a number, so that a cluster can check that it is not
// root.
func (c *container) run(env []string, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, program, args...)
	command.Env, command.Dir = append(slices.Clone(c.config.Env), env...), "/"
	var as syscall.Credential
	if n, err := fmt.Sscanf(c.config.User, "%d:%d", &as.Uid, &as.Gid); n != 2 || as.Uid == 0 {
		return "", fmt.Errorf("the image's user is %q: %w", c.config.User, err)
	}
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Credential: &as}
	out, err := command.CombinedOutput()
	return string(out), err
}

// unpack writes the files of an image.
func (c *container) unpack(image v1.Image) {
	c.t.Helper()
	content := mutate.Extract(image)
	defer content.Close()
	archive := tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			c.t.Fatal(err)
		}
		if err := c.put(header, archive); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *container) put(header *tar.Header, content io.Reader) error {
	path := filepath.Join(c.root, header.Name)
	mode := header.FileInfo().Mode()
	if header.Typeflag == tar.TypeDir {
		return errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, mode))
	}
	text, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, mode)
}

// onlyImage returns the image of a layout for one platform.
func onlyImage(t *testing.T, folder string) v1.Image {
	t.Helper()
	written, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	for {
		manifest, err := written.IndexManifest()
		if err != nil || len(manifest.Manifests) != 1 {
			t.Fatalf("got %d manifests, %v; want one", len(manifest.Manifests), err)
		}
		if !manifest.Manifests[0].MediaType.IsIndex() {
			image, err := written.Image(manifest.Manifests[0].Digest)
			if err != nil {
				t.Fatal(err)
			}
			return image
		}
		if written, err = written.ImageIndex(manifest.Manifests[0].Digest); err != nil {
			t.Fatal(err)
		}
	}
}

// authoritiesIn counts the certificates of a file.
func authoritiesIn(t *testing.T, text []byte) int {
	t.Helper()
	count := 0
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return count
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err != nil || !certificate.IsCA {
			t.Errorf("%v: %v", certificate, err)
		}
		count++
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatal(err, found)
	}
	return found
}
