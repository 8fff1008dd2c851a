package payload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const someReferences = `
kind: ImageStream
apiVersion: image.openshift.io/v1
metadata:
  name: 4.21.3+build.7
  annotations: {io.openshift.build.versions: "crio=1.33.0, odd, =1, kernel=x"}
spec:
  tags:
  - name: hyperkube
    annotations: {io.openshift.build.versions: "kubernetes=1.34.1,kubectl=1.34.1"}
    from: {kind: DockerImage, name: registry.example/hyperkube@sha256:aaaa}
  - name: cli
    annotations: {io.openshift.build.versions: "kubectl=1.34.2"}
    from: {kind: DockerImage, name: registry.example/cli@sha256:bbbb}
  - name: other
    annotations: {io.openshift.build.versions: "kubernetes=1.0.0,crio=1.32.0"}
    from: {kind: DockerImage, name: registry.example/other@sha256:cccc}
`

func TestRewritingOfVersions(t *testing.T) {
	release, err := ParseReferences([]byte(someReferences))
	if err != nil {
		t.Fatal(err)
	}
	component := &References{Images: map[string]string{
		"hyperkube": "dev.example/hyperkube",
		"cli":       "dev.example/cli",
		"new":       "dev.example/new",
	}}
	rewriting, err := NewRewriting(release, component)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"new"}, rewriting.Missing); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		"0.0.1-snapshot":   "4.21.3",
		`"0.0.1-snapshot"`: `"4.21.3"`,
		"a 0.0.1-snapshot 0.0.1-snapshot\n0.0.1-snapshot": "a 4.21.3 4.21.3\n4.21.3",
		"10.0.1-snapshot":             "10.0.1-snapshot",
		"0.0.1-snapshots":             "0.0.1-snapshots",
		"0.0.1-snapshot-kubernetes":   "1.34.1", // version of an image of the component
		"0.0.1-snapshot-crio,":        "1.33.0,",
		"0.0.1-snapshot-kubectl":      "0.0.1-snapshot-kubectl", // its images have two versions
		"0.0.1-snapshot-kernel":       "0.0.1-snapshot-kernel",  // the image has no version
		"image: dev.example/cli:v4.0": "image: registry.example/cli@sha256:bbbb",
		"image: dev.example/new:v4.0": "image: dev.example/new:v4.0",
	} {
		if got, _, _ := rewriting.Apply([]byte(text)); string(got) != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	_, unknown, _ := rewriting.Apply(
		[]byte("0.0.1-snapshot-kubectl 0.0.1-snapshot-kernel 0.0.1-snapshot-kubectl 0.0.1-snapshot"),
	)
	if diff := cmp.Diff([]string{"kubectl", "kernel"}, unknown); diff != "" {
		t.Error(diff)
	}
}

// A release without a version and versions of parts changes no placeholder.
func TestRewritingWithoutVersions(t *testing.T) {
	rewriting, err := NewRewriting(&References{Name: "stable"}, &References{})
	if err != nil {
		t.Fatal(err)
	}
	const text = "0.0.1-snapshot 0.0.1-snapshot-kubernetes"
	if got, unknown, _ := rewriting.Apply([]byte(text)); string(got) != text || len(unknown) > 0 {
		t.Errorf("got %q with unknown images %v", got, unknown)
	}
}

func TestAnImageIsNoLongerThanRegistriesAllow(t *testing.T) {
	_, err := ParseReferences(
		[]byte(strings.Replace(someReferences, "@sha256:aaaa", "@sha256:"+strings.Repeat("a", 1000), 1)),
	)
	const want = `the tag "hyperkube" has a from.name of 1034 bytes, and an image has no more than 1024`
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}
