package machineset_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/runlevel/runlevel/internal/machines/capi/machineset"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var stage = machinetest.New(sandbox.Options{CRDs: []string{"testdata"}})

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }

// patience is far longer than anything takes that is to happen.
const patience = 4 * time.Minute

// held is an annotation that keeps a deleted machine, as a hook does.
const held = "example.com/held"

// A field is the namespace of one test, with a Cluster and templates, and a client.
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
	f := &field{Client: stage.Client(t), t: t, namespace: stage.Namespace(t)}
	cluster := &clusterv1.Cluster{ObjectMeta: f.named("c")}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infra.example.com", Kind: "Rack", Name: "r"}
	infrastructure := &v1alpha1.KwokMachineTemplate{ObjectMeta: f.named("small")}
	infrastructure.Spec.Template.ObjectMeta.Labels = map[string]string{"size": "small"}
	config := &v1alpha1.KwokConfigTemplate{ObjectMeta: f.named("plain")}
	config.Spec.Template.Spec.Data = "#cloud-config"
	f.create(cluster, infrastructure, config)
	return f
}

func (f *field) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: f.namespace, Name: name}
}

// manage runs the controller, which sees this namespace only, until the test ends or stop is called. Machines go once
// they are deleted, unless they are held.
func (f *field) manage(reach *rest.Config) (stop func()) {
	f.t.Helper()
	return f.manageWith(reach, machineset.ClusterMachineSetOptions{})
}

func (f *field) manageWith(reach *rest.Config, o machineset.ClusterMachineSetOptions) (stop func()) {
	f.t.Helper()
	return stage.ManageIn(f.t, f.namespace, reach, func(m ctrl.Manager) error {
		if err := machineset.SetupWithManager(m, o); err != nil {
			return err
		}
		return ctrl.NewControllerManagedBy(m).Named("ends-machines").For(&clusterv1.Machine{}).Complete(&undertaker{m.GetClient()})
	})
}

// An undertaker does what the controller of Machines does at the end of a machine.
type undertaker struct{ client.Client }

func (u *undertaker) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	machine := &clusterv1.Machine{}
	if err := u.Get(ctx, request.NamespacedName, machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	_, isHeld := machine.Annotations[held]
	before := machine.DeepCopy()
	if isHeld || machine.DeletionTimestamp == nil || !controllerutil.RemoveFinalizer(machine, clusterv1.MachineFinalizer) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(u.Patch(ctx, machine, client.MergeFrom(before)))
}

// newSet returns a MachineSet whose machines have the label set=NAME.
func (f *field) newSet(name string, replicas int32) *clusterv1.MachineSet {
	labels := map[string]string{"set": name}
	set := &clusterv1.MachineSet{ObjectMeta: f.named(name)}
	set.Spec = clusterv1.MachineSetSpec{ClusterName: "c", Replicas: &replicas, Selector: metav1.LabelSelector{MatchLabels: labels}}
	set.Spec.Template.Labels = labels
	set.Spec.Template.Spec = clusterv1.MachineSpec{
		ClusterName:       "c",
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "KwokMachineTemplate", Name: "small"},
		Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: v1alpha1.GroupVersion.Group, Kind: "KwokConfigTemplate", Name: "plain",
		}},
	}
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

func (f *field) scale(set *clusterv1.MachineSet, replicas int) {
	f.t.Helper()
	f.change(set, `{"spec":{"replicas":%d}}`, replicas)
}

// list fills a list of the objects of the namespace.
func (f *field) list(list client.ObjectList) {
	f.t.Helper()
	if err := f.List(f.t.Context(), list, client.InNamespace(f.namespace)); err != nil {
		f.t.Fatal(err)
	}
}

// machines returns all machines of the namespace, by name.
func (f *field) machines() map[string]*clusterv1.Machine {
	f.t.Helper()
	var list clusterv1.MachineList
	f.list(&list)
	found := map[string]*clusterv1.Machine{}
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	return found
}

// one returns the machine of a namespace that has one.
func (f *field) one() *clusterv1.Machine {
	f.t.Helper()
	machines := f.machines()
	for _, machine := range machines {
		if len(machines) == 1 {
			return machine
		}
	}
	f.t.Fatalf("%d machines, not one", len(machines))
	return nil
}

// infrastructure returns the names of the infrastructure objects of the namespace.
func (f *field) infrastructure() map[string]bool {
	f.t.Helper()
	var list v1alpha1.KwokMachineList
	f.list(&list)
	names := map[string]bool{}
	for _, item := range list.Items {
		names[item.Name] = true
	}
	return names
}

// awaitSet waits until a set's status is as wanted for its newest generation.
func (f *field) awaitSet(set *clusterv1.MachineSet, isWanted func(clusterv1.MachineSetStatus) bool) *clusterv1.MachineSet {
	f.t.Helper()
	return machinetest.Await(f.t, f, &clusterv1.MachineSet{}, client.ObjectKeyFromObject(set), func(set *clusterv1.MachineSet) bool {
		return set.Status.ObservedGeneration == set.Generation && isWanted(set.Status)
	})
}

// awaitReplicas waits until a set counts so many machines, and returns all of the namespace.
func (f *field) awaitReplicas(set *clusterv1.MachineSet, replicas int) map[string]*clusterv1.Machine {
	f.t.Helper()
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool { return s.Replicas != nil && int(*s.Replicas) == replicas })
	return f.machines()
}

// awaitMachine waits until a machine is as wanted.
func (f *field) awaitMachine(name string, isWanted func(*clusterv1.Machine) bool) *clusterv1.Machine {
	f.t.Helper()
	return machinetest.Await(f.t, f, &clusterv1.Machine{}, client.ObjectKey{Namespace: f.namespace, Name: name}, isWanted)
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

// newMachine returns a machine that a person made.
func (f *field) newMachine(name string, labels map[string]string) *clusterv1.Machine {
	machine := &clusterv1.Machine{ObjectMeta: f.named(name)}
	machine.Labels = labels
	machine.Spec.ClusterName = "c"
	machine.Spec.Bootstrap.DataSecretName = ptr.To("secret")
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "KwokMachine", Name: name}
	return machine
}
