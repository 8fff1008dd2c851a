package external_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/external"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var shared = machinetest.New(sandbox.Options{Nodes: sandbox.NoNodes})

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

func TestAMachineThatAPersonProvides(t *testing.T) {
	f := shared.NewFixture(t)
	f.Manage(external.SetupWithManager)
	machine := &v1alpha1.ExternalMachine{ObjectMeta: f.Meta("m")}
	key := client.ObjectKeyFromObject(machine)
	f.MustCreate(machine)
	waits := func(reason, message string) func(*v1alpha1.ExternalMachine) bool {
		return func(m *v1alpha1.ExternalMachine) bool {
			ready := meta.FindStatusCondition(m.Status.Conditions, "Ready")
			return ready != nil && ready.Reason == reason && strings.HasPrefix(ready.Message, message)
		}
	}
	machinetest.Await(f, f, machine, key, waits("WaitingForProviderID", "waiting for spec.providerID: "))
	if machine.Status.Initialization.Provisioned {
		t.Error("it is provisioned without a machine")
	}

	patch(f, machine, func() {
		machine.Spec.ProviderID = "rack://7"
		machine.Spec.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}}
	})
	machinetest.Await(f, f, machine, key, waits("Provided", "the machine runs as rack://7"))
	if !machine.Status.Initialization.Provisioned || len(machine.Status.Addresses) != 1 {
		t.Errorf("provided machine: got %+v, want it provisioned, with one address", machine.Status)
	}
	machine.Spec.ProviderID = "rack://8"
	if err := f.Update(t.Context(), machine); err == nil {
		t.Error("the providerID could be changed")
	}

	f.MustDelete(machine)
	machinetest.Await(f, f, machine, key, waits("WaitingForTermination", "waiting for spec.terminated: "))
	patch(f, machine, func() { machine.Spec.Terminated = true })
	f.AwaitGone(machine)
}

func patch(f *machinetest.Fixture, machine *v1alpha1.ExternalMachine, change func()) {
	f.Helper()
	before := machine.DeepCopy()
	change()
	f.Must(f.Patch(f.Context(), machine, client.MergeFrom(before)))
}
