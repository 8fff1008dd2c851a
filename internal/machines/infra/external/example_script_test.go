package external_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/external"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// A rack is what the script of examples/machines-external works on. Its switch notes what it was asked to do.
type rack struct {
	t         *testing.T
	folder    string
	script    string
	client    string // kubectl, or oc
	namespace string
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
	r := &rack{t: t, folder: t.TempDir(), script: script, client: kubectl, namespace: stage.Namespace(t)}
	r.write("hosts.txt", "# NAME BMC IP\nrack7-1 192.0.2.71 10.0.7.1\nrack7-2 192.0.2.72 10.0.7.2\n")
	r.write("power", "#!/bin/sh\n[ ! -e broken ] && echo \"$@\" >>switched\n")
	return r
}

func (r *rack) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.folder, name), []byte(text), 0o700); err != nil {
		r.t.Fatal(err)
	}
}

// run runs the script once, and compares what it says and what it has switched since the last time.
func (r *rack) run(wantCode int, wantSaid, wantSwitched string) {
	r.t.Helper()
	switched := filepath.Join(r.folder, "switched")
	_ = os.Remove(switched)
	command := exec.CommandContext(r.t.Context(), r.script, r.namespace)
	command.Dir = r.folder
	command.Env = append(os.Environ(), "KUBECONFIG="+stage.Sandbox(r.t).Kubeconfig, "KUBECTL="+r.client,
		"POWER=./power")
	said, err := command.CombinedOutput()
	if code := command.ProcessState.ExitCode(); code != wantCode {
		r.t.Errorf("it ends with %d, not %d: %v", code, wantCode, err)
	}
	if diff := cmp.Diff(wantSaid, string(said)); diff != "" {
		r.t.Errorf("said (-want +got):\n%s", diff)
	}
	did, _ := os.ReadFile(switched)
	if diff := cmp.Diff(wantSwitched, string(did)); diff != "" {
		r.t.Errorf("switched (-want +got):\n%s", diff)
	}
}

// TestTheScriptOfARack has the script of the example start and end the machines of a rack that has two hosts.
func TestTheScriptOfARack(t *testing.T) {
	r := newRack(t)
	c := stage.Client(t)
	stage.Manage(t, r.namespace, external.SetupWithManager)
	machine := func(name string) *v1alpha1.ExternalMachine {
		return &v1alpha1.ExternalMachine{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}}
	}
	create := func(names ...string) {
		for _, name := range names {
			if err := c.Create(t.Context(), machine(name)); err != nil {
				t.Fatal(err)
			}
			machinetest.Await(t, c, machine(name), client.ObjectKeyFromObject(machine(name)),
				func(m *v1alpha1.ExternalMachine) bool {
					return len(m.Finalizers) == 1
				})
		}
	}
	remove := func(name string) {
		if err := c.Delete(t.Context(), machine(name)); err != nil {
			t.Fatal(err)
		}
	}
	create("a", "b", "c")
	r.run(1, "a: runs on rack7-1\nb: runs on rack7-2\nc: there is no host left\n", "on 192.0.2.71\non 192.0.2.72\n")
	machinetest.Await(t, c, machine("b"), client.ObjectKeyFromObject(machine("b")),
		func(m *v1alpha1.ExternalMachine) bool {
			return m.Spec.ProviderID == "metal://rack7-2" && m.Status.Initialization.Provisioned &&
				m.Status.Addresses[0].Address == "10.0.7.2"
		})
	r.run(1, "c: there is no host left\n", "")

	patch := func(name, text string) {
		if err := c.Patch(t.Context(), machine(name),
			client.RawPatch("application/merge-patch+json", []byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	patch("a", `{"metadata":{"finalizers":["`+external.Finalizer+`","example.com/keep"]}}`)
	remove("a")
	r.write("broken", "")
	r.run(1, "a: rack7-1 could not be switched off\nc: there is no host left\n", "")
	if err := os.Remove(filepath.Join(r.folder, "broken")); err != nil {
		t.Fatal(err)
	}
	r.run(1, "a: ended\nc: there is no host left\n", "off 192.0.2.71\n")
	r.run(1, "c: there is no host left\n", "") // it is free once the object is gone
	machinetest.Await(t, c, machine("a"), client.ObjectKeyFromObject(machine("a")),
		func(m *v1alpha1.ExternalMachine) bool {
			return len(m.Finalizers) == 1
		})
	patch("a", `{"metadata":{"finalizers":null}}`)
	machinetest.AwaitGone(t, c, machine("a"), client.ObjectKeyFromObject(machine("a")))
	r.run(0, "c: runs on rack7-1\n", "on 192.0.2.71\n")

	create("d") // which is deleted before it gets a host
	remove("d")
	r.run(0, "d: ended\n", "")
	machinetest.AwaitGone(t, c, machine("d"), client.ObjectKeyFromObject(machine("d")))
}
