package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rehearsed is a release with a Deployment that works, and one that crashes.
const rehearsed = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: works, namespace: default}
spec:
  selector: {matchLabels: {app: works}}
  template:
    metadata: {labels: {app: works}}
    spec:
      containers:
      - {name: app, image: "registry.example/app:1", command: [/program, serve], readinessProbe: {httpGet: {port: 8080}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: crashes, namespace: default}
spec:
  selector: {matchLabels: {app: crashes}}
  template:
    metadata: {labels: {app: crashes}}
    spec:
      containers:
      - {name: app, image: "registry.example/app:1", command: [/program, exit, "3"]}
`

// With nodes that run containers, a rehearsal finds a program that crashes.
func TestRehearseOnRealNodes(t *testing.T) {
	s := newStage(t)
	image, err := imageFolder()
	s.must(err)
	t.Cleanup(func() { _ = os.RemoveAll(image) })
	release := t.TempDir()
	s.must(os.WriteFile(filepath.Join(release, "0000_50_shop_01_all.yaml"), []byte(strings.TrimSpace(rehearsed)),
		0o600))
	out, code := s.try("rehearse", release, "--real-nodes", "1", "--load-image", image+"="+appImage, "--patience",
		"15s", "-o", "github")
	if code != 1 {
		t.Errorf("the exit code is %d", code)
	}
	s.expect("the report", out,
		"line=12,title=rehearsal-not-ready::Deployment default/crashes: it does not become ready: ", "container app ",
		"exit code 3", "1 error, 0 warnings, 0 notes")
}
