package machineset_test

import (
	"context"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// held is an annotation that keeps a deleted machine, as a hook does.
const held = "example.com/held"

// A fixture is the namespace of one test, with a Cluster and templates, and a client.
type fixture struct{ *machinetest.Fixture }

// newFixture creates a namespace, and runs the controller for it until the test ends.
func newFixture(t testing.TB) *fixture {
	f := newIdleFixture(t)
	f.manage(stage.Sandbox(t).Config)
	return f
}

// newIdleFixture creates a namespace that no controller reconciles yet.
func newIdleFixture(t testing.TB) *fixture {
	f := &fixture{stage.NewFixture(t)}
	infrastructure := &v1alpha1.KwokMachineTemplate{ObjectMeta: f.Meta("small")}
	infrastructure.Spec.Template.ObjectMeta.Labels = map[string]string{"size": "small"}
	config := &v1alpha1.KwokConfigTemplate{ObjectMeta: f.Meta("plain")}
	config.Spec.Template.Spec.Data = "#cloud-config"
	f.MustCreate(f.NewCluster(), infrastructure, config)
	return f
}

// manage runs the controller, which sees this namespace only, until the test ends or stop is called. Machines go once
// they are deleted, unless they are held.
func (f *fixture) manage(reach *rest.Config) (stop func()) {
	f.Helper()
	return f.manageWith(reach, machineset.Options{})
}

func (f *fixture) manageWith(reach *rest.Config, o machineset.Options) (stop func()) {
	f.Helper()
	return stage.ManageIn(f, f.Namespace, reach, func(m ctrl.Manager) error {
		if err := machineset.SetupWithManager(m, o); err != nil {
			return err
		}
		return ctrl.NewControllerManagedBy(m).Named("ends-machines").For(&clusterv1.Machine{}).Complete(
			&machineRemover{m.GetClient()},
		)
	})
}

// A machineRemover removes machines at the end of their deletion, as the controller of Machines does.
type machineRemover struct{ client.Client }

func (m *machineRemover) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	machine := &clusterv1.Machine{}
	if err := m.Get(ctx, request.NamespacedName, machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	_, isHeld := machine.Annotations[held]
	before := machine.DeepCopy()
	if isHeld || machine.DeletionTimestamp == nil ||
		!controllerutil.RemoveFinalizer(machine, clusterv1.MachineFinalizer) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(m.Patch(ctx, machine, client.MergeFrom(before)))
}

// newSet returns a MachineSet whose machines have the label set=NAME.
func (f *fixture) newSet(name string, replicas int32) *clusterv1.MachineSet {
	labels := map[string]string{"set": name}
	set := &clusterv1.MachineSet{ObjectMeta: f.Meta(name)}
	set.Spec = clusterv1.MachineSetSpec{
		ClusterName: "c",
		Replicas:    &replicas,
		Selector:    metav1.LabelSelector{MatchLabels: labels},
	}
	set.Spec.Template.Labels = labels
	set.Spec.Template.Spec = machinetest.MachineSpec()
	return set
}

func (f *fixture) scale(set *clusterv1.MachineSet, replicas int) {
	f.Helper()
	f.MustPatch(set, `{"spec":{"replicas":%d}}`, replicas)
}

// machines returns all machines of the namespace, by name.
func (f *fixture) machines() map[string]*clusterv1.Machine {
	f.Helper()
	var list clusterv1.MachineList
	f.MustList(&list)
	found := map[string]*clusterv1.Machine{}
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	return found
}

// one returns the machine of a namespace that has one.
func (f *fixture) one() *clusterv1.Machine {
	f.Helper()
	machines := f.machines()
	for _, machine := range machines {
		if len(machines) == 1 {
			return machine
		}
	}
	f.Fatalf("%d machines, not one", len(machines))
	return nil
}

// infrastructure returns the names of the infrastructure objects of the namespace.
func (f *fixture) infrastructure() map[string]bool {
	f.Helper()
	var list v1alpha1.KwokMachineList
	f.MustList(&list)
	names := map[string]bool{}
	for _, item := range list.Items {
		names[item.Name] = true
	}
	return names
}

// awaitSet waits until a set's status is as wanted for its newest generation.
func (f *fixture) awaitSet(set *clusterv1.MachineSet,
	isWanted func(clusterv1.MachineSetStatus) bool) *clusterv1.MachineSet {
	f.Helper()
	return machinetest.Await(f, f, &clusterv1.MachineSet{}, client.ObjectKeyFromObject(set),
		func(set *clusterv1.MachineSet) bool {
			return set.Status.ObservedGeneration == set.Generation && isWanted(set.Status)
		})
}

// awaitReplicas waits until a set counts so many machines, and returns all of the namespace.
func (f *fixture) awaitReplicas(set *clusterv1.MachineSet, replicas int) map[string]*clusterv1.Machine {
	f.Helper()
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
		return s.Replicas != nil && int(*s.Replicas) == replicas
	})
	return f.machines()
}

// awaitMachine waits until a machine is as wanted.
func (f *fixture) awaitMachine(name string, isWanted func(*clusterv1.Machine) bool) *clusterv1.Machine {
	f.Helper()
	return machinetest.Await(f, f, &clusterv1.Machine{}, f.Key(name), isWanted)
}

// newMachine returns a machine that a person creates.
func (f *fixture) newMachine(name string, labels map[string]string) *clusterv1.Machine {
	machine := &clusterv1.Machine{ObjectMeta: f.Meta(name)}
	machine.Labels = labels
	machine.Spec.ClusterName = "c"
	machine.Spec.Bootstrap.DataSecretName = ptr.To("secret")
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: v1alpha1.GroupVersion.Group,
		Kind:     "KwokMachine",
		Name:     name,
	}
	return machine
}
