package external_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/external"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var stage = machinetest.New(sandbox.Options{Nodes: sandbox.NoNodes})

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }

func TestAMachineThatAPersonProvides(t *testing.T) {
	c, namespace := stage.Client(t), stage.Namespace(t)
	stage.Manage(t, namespace, external.SetupWithManager)
	machine := &v1alpha1.ExternalMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m"}}
	key := client.ObjectKeyFromObject(machine)
	if err := c.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	waits := func(reason, message string) func(*v1alpha1.ExternalMachine) bool {
		return func(m *v1alpha1.ExternalMachine) bool {
			ready := meta.FindStatusCondition(m.Status.Conditions, "Ready")
			return ready != nil && ready.Reason == reason && strings.HasPrefix(ready.Message, message)
		}
	}
	machinetest.Await(t, c, machine, key, waits("WaitingForProviderID", "waiting for spec.providerID: "))
	if machine.Status.Initialization.Provisioned {
		t.Error("it is provisioned without a machine")
	}

	patch(t, c, machine, func() {
		machine.Spec.ProviderID = "rack://7"
		machine.Spec.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}}
	})
	machinetest.Await(t, c, machine, key, waits("Provided", "the machine runs as rack://7"))
	if !machine.Status.Initialization.Provisioned || len(machine.Status.Addresses) != 1 {
		t.Errorf("after it was provided: %+v", machine.Status)
	}
	machine.Spec.ProviderID = "rack://8"
	if err := c.Update(t.Context(), machine); err == nil {
		t.Error("the providerID could be changed")
	}

	if err := c.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	machinetest.Await(t, c, machine, key, waits("WaitingForTermination", "waiting for spec.terminated: "))
	patch(t, c, machine, func() { machine.Spec.Terminated = true })
	machinetest.AwaitGone(t, c, machine, key)
}

func patch(t *testing.T, c client.Client, machine *v1alpha1.ExternalMachine, change func()) {
	t.Helper()
	before := machine.DeepCopy()
	change()
	if err := c.Patch(t.Context(), machine, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}
