package external_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/machines/infra/external"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// A rack contains the hosts that the script of examples/machines-external manages. Its switch records its commands.
type rack struct {
	*machinetest.Fixture
	folder  string
	script  string
	kubectl string // kubectl, or oc
}

func newRack(t *testing.T) *rack {
	t.Helper()
	kubectl, err := exec.LookPath("kubectl")
	if oc := os.Getenv("RUNLEVEL_TEST_OC"); err != nil && oc != "" {
		kubectl, err = oc, nil
	}
	if err != nil {
		t.Skip("kubectl is not installed, and RUNLEVEL_TEST_OC does not name oc")
	}
	script, err := filepath.Abs("../../../../examples/machines-external/provide.sh")
	if err != nil {
		t.Fatal(err)
	}
	r := &rack{Fixture: shared.NewFixture(t), folder: t.TempDir(), script: script, kubectl: kubectl}
	r.write("hosts.txt", "# NAME BMC IP\nrack7-1 192.0.2.71 10.0.7.1\nrack7-2 192.0.2.72 10.0.7.2\n")
	r.write("power", "#!/bin/sh\n[ ! -e broken ] && echo \"$@\" >>switched\n")
	return r
}

func (r *rack) write(name, text string) {
	r.Helper()
	if err := os.WriteFile(filepath.Join(r.folder, name), []byte(text), 0o700); err != nil {
		r.Fatal(err)
	}
}

// run runs the script once, and compares its output and the commands that it has sent to BMCs.
func (r *rack) run(wantCode int, wantOutput, wantSwitched string) {
	r.Helper()
	switched := filepath.Join(r.folder, "switched")
	_ = os.Remove(switched)
	command := exec.CommandContext(r.Context(), r.script, r.Namespace)
	command.Dir = r.folder
	command.Env = append(os.Environ(), "KUBECONFIG="+shared.Sandbox(r).Kubeconfig, "KUBECTL="+r.kubectl,
		"POWER=./power")
	output, err := command.CombinedOutput()
	if code := command.ProcessState.ExitCode(); code != wantCode {
		r.Errorf("exit code %d, want %d: %v", code, wantCode, err)
	}
	if diff := cmp.Diff(wantOutput, string(output)); diff != "" {
		r.Errorf("output (-want +got):\n%s", diff)
	}
	commands, _ := os.ReadFile(switched)
	if diff := cmp.Diff(wantSwitched, string(commands)); diff != "" {
		r.Errorf("switched (-want +got):\n%s", diff)
	}
}

// TestExampleScript starts and ends the machines of a rack that has two hosts by the script of the example.
func TestExampleScript(t *testing.T) {
	r := newRack(t)
	r.Manage(external.SetupWithManager)
	machine := func(name string) *v1alpha1.ExternalMachine {
		return &v1alpha1.ExternalMachine{ObjectMeta: r.Meta(name)}
	}
	await := func(name string, isWanted func(*v1alpha1.ExternalMachine) bool) {
		t.Helper()
		machinetest.Await(t, r, machine(name), r.Key(name), isWanted)
	}
	hasOneFinalizer := func(m *v1alpha1.ExternalMachine) bool { return len(m.Finalizers) == 1 }
	for _, name := range []string{"a", "b", "c"} {
		r.MustCreate(machine(name))
		await(name, hasOneFinalizer)
	}
	r.run(1, "a: runs on rack7-1\nb: runs on rack7-2\nc: there is no host left\n", "on 192.0.2.71\non 192.0.2.72\n")
	await("b", func(m *v1alpha1.ExternalMachine) bool {
		return m.Spec.ProviderID == "metal://rack7-2" && m.Status.Initialization.Provisioned &&
			m.Status.Addresses[0].Address == "10.0.7.2"
	})
	r.run(1, "c: there is no host left\n", "")

	r.MustPatch(machine("a"), `{"metadata":{"finalizers":[%q,"example.com/keep"]}}`, external.Finalizer)
	r.MustDelete(machine("a"))
	r.write("broken", "")
	r.run(1, "a: rack7-1 could not be switched off\nc: there is no host left\n", "")
	r.Must(os.Remove(filepath.Join(r.folder, "broken")))
	r.run(1, "a: ended\nc: there is no host left\n", "off 192.0.2.71\n")
	r.run(1, "c: there is no host left\n", "") // the host is free once the object is deleted
	await("a", hasOneFinalizer)
	r.MustPatch(machine("a"), `{"metadata":{"finalizers":null}}`)
	r.AwaitGone(machine("a"))
	r.run(0, "c: runs on rack7-1\n", "on 192.0.2.71\n")

	r.MustCreate(machine("d")) // it is deleted before it gets a host
	await("d", hasOneFinalizer)
	r.MustDelete(machine("d"))
	r.run(0, "d: ended\n", "")
	r.AwaitGone(machine("d"))
}
