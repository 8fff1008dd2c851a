package nodelink_test

import (
	"os"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/openshift/nodelink"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var shared = machinetest.New(sandbox.Options{Nodes: sandbox.NoNodes})

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// A node is not linked while two Machines have its providerID. It is linked when one Machine has been deleted.
func TestLink(t *testing.T) {
	f := shared.NewFixture(t)
	id := "test://" + f.Namespace
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace}, Spec: corev1.NodeSpec{ProviderID: id}}
	machine := &machinev1beta1.Machine{ObjectMeta: f.Meta("m")}
	machine.Spec.ProviderID = &id
	machine.Spec.Labels = map[string]string{"role": "web"}
	machine.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	rival := &machinev1beta1.Machine{ObjectMeta: f.Meta("rival")}
	rival.Spec.ProviderID = &id
	f.MustCreate(machine, rival, node)
	manage(f)
	f.AwaitEvent("m", "NodeNotLinked", "")
	f.AwaitMachine("m", func(m *machinev1beta1.Machine) bool { return m.Status.NodeRef == nil })
	f.MustDelete(rival)
	f.AwaitMachine("m", func(m *machinev1beta1.Machine) bool {
		return m.Status.NodeRef != nil && m.Status.NodeRef.UID == node.UID
	})
	machinetest.Await(f, f, node, client.ObjectKeyFromObject(node), func(node *corev1.Node) bool {
		hasTaint := false
		for _, taint := range node.Spec.Taints {
			hasTaint = hasTaint || taint.Key == "gpu"
		}
		return hasTaint && node.Labels["role"] == "web" &&
			node.Annotations[nodelink.MachineAnnotation] == f.Namespace+"/m"
	})
}

// A node that names a Machine is its own as long as the Machine exists, though the Machine has no nodeRef: a backup has
// no status.
func TestANodeThatNamesAnotherMachineIsNotLinked(t *testing.T) {
	f, elsewhere := shared.NewFixture(t), shared.NewFixture(t)
	id := "test://" + f.Namespace
	owner := &machinev1beta1.Machine{ObjectMeta: elsewhere.Meta("owner")}
	machine := &machinev1beta1.Machine{ObjectMeta: f.Meta("m"), Spec: machinev1beta1.MachineSpec{ProviderID: &id}}
	local := &machinev1beta1.Machine{ObjectMeta: f.Meta("local")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace}, Spec: corev1.NodeSpec{ProviderID: id}}
	node.Annotations = map[string]string{nodelink.MachineAnnotation: elsewhere.Namespace + "/owner"}
	f.MustCreate(owner, local, machine, node)
	f.DeleteAfterwards(node)
	manage(f)
	f.AwaitEvent("m", "NodeNotLinked", "it is linked to Machine "+elsewhere.Namespace+"/owner")
	f.MustPatch(node, `{"metadata":{"annotations":{%q:%q}}}`, nodelink.MachineAnnotation, f.Namespace+"/local")
	f.AwaitEvent("m", "NodeNotLinked", "it is linked to Machine "+f.Namespace+"/local")
	f.MustDelete(local)
	f.AwaitMachine("m", func(m *machinev1beta1.Machine) bool {
		return m.Status.NodeRef != nil && m.Status.NodeRef.UID == node.UID
	})
}

func manage(f *machinetest.Fixture) (stop func()) {
	f.Helper()
	return f.Manage(func(mgr ctrl.Manager) error { return nodelink.SetupWithManager(f.Context(), mgr) })
}
