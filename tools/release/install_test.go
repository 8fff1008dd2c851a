package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/hostpods"
	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
)

// testInstall applies install.yaml, unchanged and by the command in its first lines, and runs the program of the image
// with the arguments of the Deployment.
func (r builtRelease) testInstall(t *testing.T, s *sandbox.Sandbox) {
	layout, _ := r.openImage(t, "image")
	described, err := layout.Resolve(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "runlevel-cluster")
	if err := os.WriteFile(program, filesOf(t, layout, described)["runlevel-cluster"], 0o755); err != nil {
		t.Fatal(err)
	}
	images := imageregistry.Start()
	t.Cleanup(images.Close)
	shop, err := images.Push(t.Context(), "shop:1.4.0", fstest.MapFS{
		"release-manifests/release-metadata": {Data: []byte(
			`{"kind": "cincinnati-metadata-v0", "version": "1.4.0", "previous": []}`)},
		"release-manifests/image-references": {Data: []byte(
			`{"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": {"name": "1.4.0"}}`)},
		"release-manifests/shop.yaml": {Data: []byte(
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop, namespace: default}\n")},
	})
	if err != nil {
		t.Fatal(err)
	}

	kubectl(t, s, "apply", "--server-side", "-f", r.path("install.yaml"))
	pods, err := hostpods.Start(t.Context(), hostpods.Options{
		Config: s.Config, Namespace: "runlevel-system", Selector: "app.kubernetes.io/name=runlevel-operator",
		Programs: map[string]string{"runlevel-cluster": program}, Folder: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pods.Stop() })
	log := func() (text []byte) {
		for _, process := range pods.Processes() {
			part, _ := os.ReadFile(process.Log)
			text = append(text, part...)
		}
		return text
	}
	await(t, log, func() bool {
		return bytes.Contains(log(), []byte("--release-image: name the image by digest, as REPOSITORY@sha256:DIGEST"))
	})
	_, command, _ := strings.Cut(string(r.read(t, "install.yaml")), "sed '")
	command, _, _ = strings.Cut(command, "'")
	if !strings.Contains(command, "registry.example/shop@sha256:DIGEST") {
		t.Fatalf("install.yaml has no command that sets the release: sed %s", command)
	}
	edited := filepath.Join(t.TempDir(), "install.yaml")
	script := strings.ReplaceAll(command, "registry.example/shop@sha256:DIGEST", shop.String())
	text, err := exec.Command("sed", script, r.path("install.yaml")).Output()
	if err != nil {
		t.Fatal(err)
	}
	create(t, edited, text)
	kubectl(t, s, "-n", "runlevel-system", "create", "configmap", "runlevel-operator",
		"--from-literal=operator.yaml=insecure-registry: true") // the registry of this test speaks plain http
	kubectl(t, s, "apply", "--server-side", "-f", edited)
	kubectl(t, s, "-n", "runlevel-system", "rollout", "status", "deployment/runlevel-operator", "--timeout=2m")
	await(t, log, func() bool {
		return len(kubectl(t, s, "get", "configmap", "shop", "--ignore-not-found", "-o", "name")) > 0
	})
}

// await waits until a condition is met, and otherwise fails the test with a log.
func await(t *testing.T, log func() []byte, isMet func() bool) {
	t.Helper()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.After(2 * time.Minute); !isMet(); {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("nothing happens:\n%s", log())
		}
	}
}
