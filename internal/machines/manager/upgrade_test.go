package manager_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/sandbox/hostpods"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/manifests"
)

// TestTheControllerIsUpgradedAndDowngraded goes from an earlier commit to the present one and back, with machines at
// all stages of their deletion. Each command line applies its own manifests, and reads the record of the other.
func TestTheControllerIsUpgradedAndDowngraded(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	folder := sandboxtest.Older(t)
	older, newer := filepath.Join(folder, "runlevel"), sandboxtest.Program(t, "runlevel")
	s := prepareShippedScene(t, map[string]string{
		"older": filepath.Join(folder, "runlevel-cluster"), "newer": sandboxtest.Program(t, "runlevel-cluster"),
	})
	payload := func(program, version string, payload, definitions fs.FS) string {
		written := writePayload(t, version, payload, definitions)
		name := filepath.Join(written, "0000_30_machine-controller_06_deployment.yaml")
		text, err := os.ReadFile(name)
		s.must(err)
		s.must(os.WriteFile(name, []byte(strings.ReplaceAll(string(text), "/runlevel-cluster", program)), 0o600))
		return written
	}
	inOlder := func(name string) fs.FS { return os.DirFS(filepath.Join(folder, name)) }
	apply := func(line string, arguments ...string) {
		t.Helper()
		_, err := s.run(line, append(arguments, "--yes")...)
		s.must(err)
		for _, reader := range []string{older, newer} {
			if out, err := s.run(reader, "status", "machines"); err != nil {
				t.Errorf("%s: %v\n%s", reader, err, out)
			}
		}
		if ready, err := s.pods.AwaitReady(t.Context(), 1); err != nil || ready[0].Restarts > 0 {
			t.Errorf("the controller was started again: %+v, %v", ready, err)
		}
	}
	// free lets the machines of a number continue, one at each stage, and checks that all others stay.
	free := func(number string) {
		t.Helper()
		s.checkHeld()
		s.eachHeld(func(machine string, stage heldStage) {
			if machine == stage.name+number {
				stage.release(s, machine)
			}
		})
		for _, stage := range heldStages {
			s.awaitGone(stage.name + number)
		}
		s.checkHeld()
	}

	apply(older, "apply", payload("/older", "1.0.0", inOlder("manifests"), inOlder("install")),
		"--name", "machines", "--release-version", "1.0.0")
	s.hold(3)
	apply(newer, "apply", payload("/newer", "1.0.1", manifests.Files(), install.Files()),
		"--name", "machines", "--release-version", "1.0.1")
	awaitOperator(t, s, "1.0.1", configv1.OperatorAvailable, configv1.ConditionTrue, "")
	free("-0")
	apply(older, "rollback", "machines")
	awaitOperator(t, s, "1.0.0", configv1.OperatorAvailable, configv1.ConditionTrue, "")
	free("-1")
	if _, err := s.pods.Await(t.Context(), func(all []hostpods.HostProcess) bool { return len(all) == 1 }); err != nil {
		t.Error(err)
	}
	apply(newer, "rollback", "machines", "2")
	s.finish(3 * len(heldStages))
	if out, err := s.run(older, "history", "machines"); err != nil || strings.Count(out, "Completed") != 4 {
		t.Errorf("the history is\n%s\n%v, want 4 entries that are complete", out, err)
	}
}
