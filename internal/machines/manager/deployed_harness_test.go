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
	s := prepareShippedScene(t, map[string]string{"runlevel-cluster": sandboxtest.Program(t, "runlevel-cluster")})
	s.must(s.apply("1.0.0"))
	return s
}

// prepareShippedScene returns a scene that runs the controller's pods as processes of programs.
func prepareShippedScene(t *testing.T, programs map[string]string) *shippedScene {
	t.Helper()
	s := &shippedScene{scene: newScene(t)}
	scheme, err := manager.NewScheme()
	s.must(err)
	s.Client, err = client.New(s.control.Config, client.Options{Scheme: scheme})
	s.must(err)
	s.pods = runPods(t, s.control.Config, programs)
	return s
}

// apply has runlevel apply a version of the payload, and wait until it is at work.
func (s *shippedScene) apply(version string) error {
	s.t.Helper()
	_, err := s.run(sandboxtest.Program(s.t, "runlevel"), "apply",
		writePayload(s.t, version, manifests.Files(), install.Files()), "--name", "machines", "--release-version",
		version)
	return err
}

// run runs a command line, and returns its output.
func (s *shippedScene) run(program string, arguments ...string) (string, error) {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), program, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.control.Kubeconfig)
	out, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", arguments, err, out)
	}
	return string(out), err
}

// writePayload writes a version of the payload, and the definitions that it needs, into a new folder.
func writePayload(t *testing.T, version string, payload, definitions fs.FS) string {
	t.Helper()
	folder := t.TempDir()
	for pattern, files := range map[string]fs.FS{"*.yaml": payload, "*.crd.yaml": definitions} {
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

// runPods runs the controller's pods as processes of programs, which have the name of the container's command.
func runPods(t *testing.T, config *rest.Config, programs map[string]string) *hostpods.HostPods {
	t.Helper()
	pods, err := hostpods.Start(t.Context(), hostpods.Options{
		Config: config, Namespace: manager.DefaultNamespace, Selector: "app.kubernetes.io/name=machine-controller",
		Programs: programs, Folder: t.TempDir(),
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
