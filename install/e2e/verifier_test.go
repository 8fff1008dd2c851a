package e2e_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestNodeRefusesUnsignedImages runs the image verifier of the page on signing in containerd 2, which pulls a signed
// image, and not an unsigned one.
func TestNodeRefusesUnsignedImages(t *testing.T) {
	sandboxtest.NeedRealNodes(t)
	containerd := os.Getenv("RUNLEVEL_TEST_CONTAINERD")
	if containerd == "" {
		t.Skip("RUNLEVEL_TEST_CONTAINERD names no folder with containerd 2")
	}
	folder := t.TempDir()
	private, public := writeKeyPair(t, folder)
	wrapContainerd(t, containerd, folder, public)
	s := newStageOn(t, sandboxtest.Start(t, sandbox.Options{RealNodes: 1, Offline: true}))
	images := s.newRegistry()
	images.isOpen = true
	authority := filepath.Join(folder, "company.crt")
	s.must(os.WriteFile(authority, images.authority, 0o644))
	s.env = append(s.env, "SSL_CERT_FILE="+authority)
	hosts := filepath.Join(folder, "certs.d", images.host)
	s.must(os.MkdirAll(hosts, 0o755))
	text := fmt.Sprintf("server = %q\nca = %q\n[host.%[1]q]\n  ca = %[2]q\n", "https://"+images.host, authority)
	s.must(os.WriteFile(filepath.Join(hosts, "hosts.toml"), []byte(text), 0o644))
	s.configureNode(filepath.Join(folder, "certs.d"))

	image := s.programImage()
	s.pushTo(images.host+"/shop/signed:1.0", image)
	unsigned, err := mutate.Time(image, metav1.Now().Time)
	s.must(err)
	s.pushTo(images.host+"/shop/unsigned:1.0", unsigned)
	s.run("release", "sign", images.host+"/shop/signed:1.0", "--key", private)
	for _, name := range []string{"signed", "unsigned"} {
		_, err := s.core.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Image: images.host + "/shop/" + name + ":1.0",
			}}},
		}, metav1.CreateOptions{})
		s.must(err)
	}
	s.eventually("the signed image runs", func(ctx context.Context) bool {
		pod, err := s.core.CoreV1().Pods("default").Get(ctx, "signed", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning
	})
	s.eventually("the unsigned image is refused", func(ctx context.Context) bool {
		pod, err := s.core.CoreV1().Pods("default").Get(ctx, "unsigned", metav1.GetOptions{})
		if err != nil || len(pod.Status.ContainerStatuses) == 0 {
			return false
		}
		waiting := pod.Status.ContainerStatuses[0].State.Waiting
		return waiting != nil && strings.Contains(waiting.Message, "blocked pull of "+images.host+"/shop/unsigned:1.0")
	})
}

// wrapContainerd puts a program before containerd 2 that configures the image verifier of the page on signing.
func wrapContainerd(t *testing.T, containerd, folder, key string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/release-sign.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?s)<!-- image verifier -->\n```sh\n(.*?)```").FindSubmatch(page)
	if script == nil {
		t.Fatal("the page on signing has no image verifier")
	}
	programs := filepath.Dir(sandboxtest.Program(t, "runlevel"))
	wrapper := fmt.Sprintf(`#!/bin/sh
export PATH=%[1]s:%[2]s:$PATH SSL_CERT_FILE=%[3]s/company.crt
if [ "$1" = --config ]; then
	printf '[plugins."io.containerd.image-verifier.v1.bindir"]\n  bin_dir = "%[3]s/verifiers"\n' >> "$2"
fi
exec %[2]s/containerd "$@"
`, programs, containerd, folder)
	for name, text := range map[string][]byte{
		"verifiers/signed":    bytes.ReplaceAll(script[1], []byte("/etc/containerd/cosign.pub"), []byte(key)),
		"programs/containerd": []byte(wrapper),
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", filepath.Join(folder, "programs")+":"+os.Getenv("PATH"))
}

// writeKeyPair writes a key pair in PEM, and returns its files.
func writeKeyPair(t *testing.T, folder string) (private, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, content []byte, err error) string {
		path := filepath.Join(folder, name)
		if err == nil {
			err = os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	content, err := x509.MarshalPKCS8PrivateKey(key)
	private = write("release.key", "PRIVATE KEY", content, err)
	content, err = x509.MarshalPKIXPublicKey(&key.PublicKey)
	return private, write("release.pub", "PUBLIC KEY", content, err)
}
