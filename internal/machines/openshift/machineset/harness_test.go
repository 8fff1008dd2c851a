package machineset_test

import (
	"os"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/openshift/machineset"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var shared = machinetest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// A hold is a finalizer that keeps a deleted machine, as the controller of machines does.
const hold = "example.com/hold"

// A fixture is the namespace of one test, and a client.
type fixture struct{ *machinetest.Fixture }

// newFixture creates a namespace, and runs the controller for it until the test ends.
func newFixture(t testing.TB) *fixture {
	f := newIdleFixture(t)
	f.manage(shared.Sandbox(t).Config)
	return f
}

// newIdleFixture creates a namespace that no controller looks after yet.
func newIdleFixture(t testing.TB) *fixture {
	return &fixture{shared.NewFixture(t)}
}

// manage runs the controller, which sees this namespace only, until the test ends or stop is called.
func (f *fixture) manage(reach *rest.Config) (stop func()) {
	f.Helper()
	return f.ManageWith(reach, func(m ctrl.Manager) error {
		return machineset.SetupWithManager(f.Context(), m)
	})
}

// newSet returns a MachineSet whose machines have the label set=NAME.
func (f *fixture) newSet(name string, replicas int32) *machinev1beta1.MachineSet {
	labels := map[string]string{"set": name}
	set := &machinev1beta1.MachineSet{
		ObjectMeta: f.Meta(name),
		Spec: machinev1beta1.MachineSetSpec{
			Replicas: &replicas,
			Selector: metav1.LabelSelector{MatchLabels: labels},
		},
	}
	set.Spec.Template.Labels = labels
	return set
}

func (f *fixture) scale(set *machinev1beta1.MachineSet, replicas int) {
	f.Helper()
	f.MustPatch(set, `{"spec":{"replicas":%d}}`, replicas)
}

// machines returns all machines of the namespace.
func (f *fixture) machines() []machinev1beta1.Machine {
	f.Helper()
	var list machinev1beta1.MachineList
	f.MustList(&list)
	return list.Items
}

// living returns those not being deleted.
func living(machines []machinev1beta1.Machine) []machinev1beta1.Machine {
	var found []machinev1beta1.Machine
	for i := range machines {
		if machines[i].DeletionTimestamp == nil {
			found = append(found, machines[i])
		}
	}
	return found
}

// awaitSet waits until a set's status is as wanted for its newest generation.
func (f *fixture) awaitSet(set *machinev1beta1.MachineSet,
	isWanted func(machinev1beta1.MachineSetStatus) bool) *machinev1beta1.MachineSet {
	f.Helper()
	return machinetest.Await(f, f, &machinev1beta1.MachineSet{}, client.ObjectKeyFromObject(set),
		func(set *machinev1beta1.MachineSet) bool {
			return set.Status.ObservedGeneration == set.Generation && isWanted(set.Status)
		})
}

// awaitReplicas waits until a set counts so many machines, and returns all of the namespace not being deleted.
func (f *fixture) awaitReplicas(set *machinev1beta1.MachineSet, replicas int) []machinev1beta1.Machine {
	f.Helper()
	f.awaitSet(set, func(s machinev1beta1.MachineSetStatus) bool { return int(s.Replicas) == replicas })
	return living(f.machines())
}

// nodeOf creates a node for a machine. Its Ready condition has the given age; kwok does not change a ready node.
func (f *fixture) nodeOf(machine *machinev1beta1.Machine, status corev1.ConditionStatus,
	age time.Duration) *corev1.Node {
	f.Helper()
	since := metav1.NewTime(time.Now().Add(-age))
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: f.Namespace + "-" + machine.Name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: status, LastHeartbeatTime: since, LastTransitionTime: since,
		}}},
	}
	f.MustCreate(node)
	f.DeleteAfterwards(node)
	before := machine.DeepCopy()
	machine.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: node.Name, UID: node.UID}
	f.Must(f.Status().Patch(f.Context(), machine, client.MergeFrom(before)))
	return node
}

func names(machines []machinev1beta1.Machine) map[string]bool {
	found := map[string]bool{}
	for i := range machines {
		found[machines[i].Name] = true
	}
	return found
}
