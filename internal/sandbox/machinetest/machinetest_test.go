package machinetest_test

import (
	"os"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var shared = machinetest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

func TestFixtureManagesMachines(t *testing.T) {
	f := shared.NewFixture(t)
	stop := f.Manage(func(ctrl.Manager) error { return nil })
	machine := &machinev1beta1.Machine{ObjectMeta: f.Meta("m")}
	f.MustCreate(machine)
	f.AwaitMachine("m", func(m *machinev1beta1.Machine) bool { return m.UID == machine.UID })
	f.MustDelete(machine)
	f.AwaitGone(machine)
	stop()
}

func TestSandboxServesClusterAPI(t *testing.T) {
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: shared.Namespace(t), Name: "s"}}
	set.Spec.ClusterName = "c"
	set.Spec.Selector.MatchLabels = map[string]string{"set": "s"}
	set.Spec.Template.Labels = set.Spec.Selector.MatchLabels
	set.Spec.Template.Spec.ClusterName = "c"
	set.Spec.Template.Spec.Bootstrap.DataSecretName = ptr.To("secret")
	set.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "infrastructure.runlevel.dev", Kind: "KwokMachineTemplate", Name: "t",
	}
	if err := shared.Client(t).Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
}
