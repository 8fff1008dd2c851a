package manager_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/sandbox/hostpods"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/manifests"
)

// A shippedScene is a scene where the controllers run from their Deployment, as runlevel has applied it.
type shippedScene struct {
	*scene
	pods *hostpods.HostPods
}

// newShippedScene applies version 1.0.0 of the payload.
func newShippedScene(t *testing.T) *shippedScene {
	t.Helper()
	s := &shippedScene{scene: newScene(t)}
	scheme, err := manager.NewScheme()
	s.must(err)
	s.Client, err = client.New(s.control.Config, client.Options{Scheme: scheme})
	s.must(err)
	s.pods = runPods(t, s.control.Config)
	s.must(s.apply("1.0.0"))
	return s
}

// apply has runlevel apply a version of the payload, and wait until it is at work.
func (s *shippedScene) apply(version string) error {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), sandboxtest.Program(s.t, "runlevel"), "apply",
		writePayload(s.t, version),
		"--name", "machines", "--release-version", version)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.control.Kubeconfig)
	out, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("apply %s: %w: %s", version, err, out)
	}
	return err
}

// writePayload writes a version of the payload, and the definitions that it needs, into a new folder.
func writePayload(t *testing.T, version string) string {
	t.Helper()
	folder := t.TempDir()
	for pattern, files := range map[string]fs.FS{"*.yaml": manifests.Files(), "*.crd.yaml": install.Files()} {
		names, err := fs.Glob(files, pattern)
		for _, name := range names {
			text, readErr := fs.ReadFile(files, name)
			versioned := strings.ReplaceAll(string(text), "0.0.1-snapshot", version)
			err = errors.Join(err, readErr, os.WriteFile(filepath.Join(folder, name), []byte(versioned), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// runPods runs the controller's pods as processes.
func runPods(t *testing.T, config *rest.Config) *hostpods.HostPods {
	t.Helper()
	pods, err := hostpods.Start(t.Context(), hostpods.Options{
		Config: config, Namespace: manager.DefaultNamespace, Selector: "app.kubernetes.io/name=machine-controller",
		Programs: map[string]string{"runlevel-cluster": sandboxtest.Program(t, "runlevel-cluster")},
		Folder:   t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, hostProcess := range pods.Processes() {
			if text, _ := os.ReadFile(hostProcess.Log); t.Failed() {
				t.Logf("%s: %s", hostProcess.Pod, text)
			}
		}
		_ = pods.Stop()
	})
	return pods
}
