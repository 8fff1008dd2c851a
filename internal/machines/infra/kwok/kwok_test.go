package kwok_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/infra/kwok"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var shared = machinetest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// machineIn returns a KwokMachine with a name that no Node has.
func machineIn(namespace, name string, spec v1alpha1.KwokMachineSpec) *v1alpha1.KwokMachine {
	return &v1alpha1.KwokMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace + "-" + name},
		Spec:       spec,
	}
}

// isReady waits for a reason of the condition Ready.
func isReady(reason string) func(*v1alpha1.KwokMachine) bool {
	return func(m *v1alpha1.KwokMachine) bool {
		ready := meta.FindStatusCondition(m.Status.Conditions, "Ready")
		return ready != nil && ready.Reason == reason
	}
}

func TestMachinesOfNodes(t *testing.T) {
	f := shared.NewFixture(t)
	f.Manage(kwok.SetupWithManager)

	t.Run("a machine runs and ends, and its Node stays for the controller of machines", func(t *testing.T) {
		f := f.In(t)
		machine := machineIn(f.Namespace, "a", v1alpha1.KwokMachineSpec{Node: v1alpha1.KwokNode{
			Labels: map[string]string{"node-role.kubernetes.io/worker": ""},
			Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}},
		}})
		machine.Annotations = map[string]string{annotation.MachineUID: "some"}
		key, node := client.ObjectKeyFromObject(machine), client.ObjectKey{Name: machine.Name}
		f.MustCreate(machine)
		machinetest.Await(f, f, machine, key, isReady("Running"))
		existing := machinetest.Await(f, f, &corev1.Node{}, node, func(n *corev1.Node) bool {
			return len(n.Status.Conditions) > 0
		})
		if want := "kwok://" + f.Namespace + "/" + machine.Name; existing.Spec.ProviderID != want ||
			machine.Spec.ProviderID != want {
			t.Errorf("providerID %s of the Node, %s of the machine, want %s", existing.Spec.ProviderID,
				machine.Spec.ProviderID, want)
		}
		if existing.Status.Addresses[0] != machine.Status.Addresses[0] || !machine.Status.Initialization.Provisioned {
			t.Errorf("addresses %v of the Node, status %+v of the machine", existing.Status.Addresses, machine.Status)
		}
		if _, ok := existing.Labels["node-role.kubernetes.io/worker"]; !ok || len(existing.Spec.Taints) == 0 {
			t.Errorf("the Node has labels %v and taints %v", existing.Labels, existing.Spec.Taints)
		}
		// it is linked
		f.MustPatch(existing, `{"metadata":{"annotations":{"machine.openshift.io/machine":"%s/a"}}}`, f.Namespace)
		f.MustDelete(machine)
		f.AwaitGone(machine)
		if err := f.Get(t.Context(), node, existing); err != nil {
			t.Errorf("its Node: %v", err)
		}
	})

	t.Run("the Node of a machine that was not linked to it goes with it", func(t *testing.T) {
		f := f.In(t)
		machine := machineIn(f.Namespace, "unlinked", v1alpha1.KwokMachineSpec{})
		machine.Annotations = map[string]string{annotation.MachineUID: "some"}
		f.MustCreate(machine)
		machinetest.Await(f, f, machine, client.ObjectKeyFromObject(machine), isReady("Running"))
		f.MustDelete(machine)
		f.AwaitGone(machine)
		if err := f.Get(t.Context(), client.ObjectKey{Name: machine.Name}, &corev1.Node{}); !apierrors.IsNotFound(err) {
			t.Errorf("its Node: %v", err)
		}
	})

	t.Run("the Node of a machine that was made by hand goes with it", func(t *testing.T) {
		f := f.In(t)
		machine := machineIn(f.Namespace, "hand", v1alpha1.KwokMachineSpec{})
		f.MustCreate(machine)
		machinetest.Await(f, f, machine, client.ObjectKeyFromObject(machine), isReady("Running"))
		f.MustDelete(machine)
		machinetest.AwaitGone(f, f, &corev1.Node{}, client.ObjectKey{Name: machine.Name})
	})

	t.Run("a Node of another is left alone", func(t *testing.T) {
		f := f.In(t)
		machine := machineIn(f.Namespace, "taken", v1alpha1.KwokMachineSpec{})
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: machine.Name},
			Spec:       corev1.NodeSpec{ProviderID: "other://1"},
		}
		f.MustCreate(node)
		f.MustCreate(machine)
		machinetest.Await(f, f, machine, client.ObjectKeyFromObject(machine), isReady("NodeTaken"))
		f.MustDelete(machine)
		f.AwaitGone(machine)
		if err := f.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			t.Errorf("its Node: %v", err)
		}
	})

	t.Run("failures", func(t *testing.T) {
		f := f.In(t)
		fails := machineIn(f.Namespace, "fails",
			v1alpha1.KwokMachineSpec{StartFailure: &v1alpha1.StartFailure{Message: "no room"}})
		retries := machineIn(f.Namespace, "retries",
			v1alpha1.KwokMachineSpec{StartFailure: &v1alpha1.StartFailure{Message: "no room", Times: 2}})
		slow := machineIn(f.Namespace, "slow",
			v1alpha1.KwokMachineSpec{StartAfter: metav1.Duration{Duration: time.Hour}})
		vanishes := machineIn(f.Namespace, "vanishes", v1alpha1.KwokMachineSpec{VanishAfter: &metav1.Duration{}})
		stays := machineIn(f.Namespace, "stays", v1alpha1.KwokMachineSpec{NeverDeletes: true})
		for _, machine := range []*v1alpha1.KwokMachine{fails, retries, slow, vanishes, stays} {
			f.MustCreate(machine)
		}
		for machine, reason := range map[*v1alpha1.KwokMachine]string{fails: "StartFailed", retries: "Running",
			slow: "Starting", stays: "Running"} {
			machinetest.Await(f, f, machine, client.ObjectKeyFromObject(machine), isReady(reason))
		}
		if retries.Status.StartFailures != 2 {
			t.Errorf("it failed %d times", retries.Status.StartFailures)
		}
		f.AwaitGone(vanishes)
		f.MustDelete(stays)
		machinetest.Await(f, f, stays, client.ObjectKeyFromObject(stays), isReady("NeverDeletes"))
		before := stays.DeepCopy()
		stays.Spec.NeverDeletes = false
		f.Must(f.Patch(t.Context(), stays, client.MergeFrom(before)))
		f.AwaitGone(stays)
	})
}

// Addresses are chosen by workers side by side, and again after a restart.
func TestAddressesAreUnique(t *testing.T) {
	f := shared.NewFixture(t)
	stop := f.Manage(kwok.SetupWithManager)
	owners := map[string]string{}
	const half = 40
	for i := range 2 * half {
		f.MustCreate(machineIn(f.Namespace, fmt.Sprint("many-", i), v1alpha1.KwokMachineSpec{}))
		if i == half {
			stop()
			f.Manage(kwok.SetupWithManager)
		}
	}
	for i := range 2 * half {
		machine := machineIn(f.Namespace, fmt.Sprint("many-", i), v1alpha1.KwokMachineSpec{})
		machinetest.Await(f, f, machine, client.ObjectKeyFromObject(machine), isReady("Running"))
		address := machine.Status.Addresses[0].Address
		if other := owners[address]; other != "" {
			t.Errorf("%s and %s have the address %s", machine.Name, other, address)
		}
		owners[address] = machine.Name
	}
}
