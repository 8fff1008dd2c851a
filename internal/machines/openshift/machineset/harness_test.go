package machineset_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/openshift/machineset"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var stage = machinetest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }

// patience is far longer than anything takes that is to happen.
const patience = 4 * time.Minute

// A hold is a finalizer that keeps a deleted machine, as the controller of machines does.
const hold = "example.com/hold"

// A field is the namespace of one test, and a client.
type field struct {
	client.Client
	t         testing.TB
	namespace string
}

// newField makes a namespace, and has the controller look after it until the test ends.
func newField(t testing.TB) *field {
	f := newIdleField(t)
	f.manage(stage.Sandbox(t).Config)
	return f
}

// newIdleField makes a namespace that no controller looks after yet.
func newIdleField(t testing.TB) *field {
	return &field{Client: stage.Client(t), t: t, namespace: stage.Namespace(t)}
}

// manage runs the controller, which sees this namespace only, until the test ends or stop is called.
func (f *field) manage(reach *rest.Config) (stop func()) {
	f.t.Helper()
	return stage.ManageIn(f.t, f.namespace, reach, func(m ctrl.Manager) error {
		return machineset.SetupWithManager(f.t.Context(), m)
	})
}

// newSet returns a MachineSet whose machines have the label set=NAME.
func (f *field) newSet(name string, replicas int32) *machinev1beta1.MachineSet {
	labels := map[string]string{"set": name}
	set := &machinev1beta1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
		Spec: machinev1beta1.MachineSetSpec{
			Replicas: &replicas,
			Selector: metav1.LabelSelector{MatchLabels: labels},
		},
	}
	set.Spec.Template.Labels = labels
	return set
}

func (f *field) create(objects ...client.Object) {
	f.t.Helper()
	for _, object := range objects {
		if err := f.Create(f.t.Context(), object); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *field) delete(object client.Object, options ...client.DeleteOption) {
	f.t.Helper()
	if err := f.Delete(f.t.Context(), object, options...); err != nil {
		f.t.Fatal(err)
	}
}

// change merges a change into an object.
func (f *field) change(object client.Object, change string, arguments ...any) {
	f.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, change, arguments...))
	if err := f.Patch(f.t.Context(), object, patch); err != nil {
		f.t.Fatal(err)
	}
}

func (f *field) scale(set *machinev1beta1.MachineSet, replicas int) {
	f.t.Helper()
	f.change(set, `{"spec":{"replicas":%d}}`, replicas)
}

// machines returns all machines of the namespace.
func (f *field) machines() []machinev1beta1.Machine {
	f.t.Helper()
	var list machinev1beta1.MachineList
	if err := f.List(f.t.Context(), &list, client.InNamespace(f.namespace)); err != nil {
		f.t.Fatal(err)
	}
	return list.Items
}

// living returns those that are not being deleted.
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
func (f *field) awaitSet(set *machinev1beta1.MachineSet, isWanted func(machinev1beta1.MachineSetStatus) bool) *machinev1beta1.MachineSet {
	f.t.Helper()
	return machinetest.Await(f.t, f, &machinev1beta1.MachineSet{}, client.ObjectKeyFromObject(set),
		func(set *machinev1beta1.MachineSet) bool {
			return set.Status.ObservedGeneration == set.Generation && isWanted(set.Status)
		})
}

// awaitReplicas waits until a set counts so many machines, and returns all of the namespace that are not being deleted.
func (f *field) awaitReplicas(set *machinev1beta1.MachineSet, replicas int) []machinev1beta1.Machine {
	f.t.Helper()
	f.awaitSet(set, func(s machinev1beta1.MachineSetStatus) bool { return int(s.Replicas) == replicas })
	return living(f.machines())
}

// await waits for something else.
func (f *field) await(what string, exists func() bool) {
	f.t.Helper()
	err := wait.PollUntilContextTimeout(f.t.Context(), 50*time.Millisecond, patience, true,
		func(context.Context) (bool, error) { return exists(), nil })
	if err != nil {
		f.t.Fatalf("%s: %v", what, err)
	}
}

// nodeOf makes a node for a machine. Its Ready condition is of the given age; kwok leaves a node that is ready alone.
func (f *field) nodeOf(machine *machinev1beta1.Machine, status corev1.ConditionStatus, age time.Duration) *corev1.Node {
	f.t.Helper()
	since := metav1.NewTime(time.Now().Add(-age))
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: f.namespace + "-" + machine.Name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: status, LastHeartbeatTime: since, LastTransitionTime: since,
		}}},
	}
	f.create(node)
	f.t.Cleanup(func() { _ = f.Delete(context.Background(), node) })
	before := machine.DeepCopy()
	machine.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: node.Name, UID: node.UID}
	if err := f.Status().Patch(f.t.Context(), machine, client.MergeFrom(before)); err != nil {
		f.t.Fatal(err)
	}
	return node
}

func names(machines []machinev1beta1.Machine) map[string]bool {
	found := map[string]bool{}
	for i := range machines {
		found[machines[i].Name] = true
	}
	return found
}

func (f *field) awaitGone(object client.Object) {
	f.t.Helper()
	machinetest.AwaitGone(f.t, f, object.DeepCopyObject().(client.Object), client.ObjectKeyFromObject(object))
}
