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

var stage = machinetest.New(sandbox.Options{Nodes: sandbox.NoNodes})

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }

// Two Machines of one providerID leave a node alone, until one of them is gone.
func TestLink(t *testing.T) {
	namespace, c := stage.Namespace(t), stage.Client(t)
	id := "test://" + namespace
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: corev1.NodeSpec{ProviderID: id}}
	machine := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m"}}
	machine.Spec.ProviderID = &id
	machine.Spec.Labels = map[string]string{"role": "web"}
	machine.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	rival := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rival"}}
	rival.Spec.ProviderID = &id
	for _, object := range []client.Object{machine, rival, node} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	stage.Manage(t, namespace, func(mgr ctrl.Manager) error {
		return new(nodelink.NodeLinkReconciler).SetupWithManager(t.Context(), mgr)
	})
	awaitEvent(t, namespace, "NodeNotLinked")
	stage.AwaitMachine(t, namespace, "m", func(m *machinev1beta1.Machine) bool { return m.Status.NodeRef == nil })
	if err := c.Delete(t.Context(), rival); err != nil {
		t.Fatal(err)
	}
	stage.AwaitMachine(t, namespace, "m", func(m *machinev1beta1.Machine) bool {
		return m.Status.NodeRef != nil && m.Status.NodeRef.UID == node.UID
	})
	machinetest.Await(t, c, node, client.ObjectKeyFromObject(node), func(node *corev1.Node) bool {
		hasTaint := false
		for _, taint := range node.Spec.Taints {
			hasTaint = hasTaint || taint.Key == "gpu"
		}
		return hasTaint && node.Labels["role"] == "web" && node.Annotations[nodelink.MachineAnnotation] == namespace+"/m"
	})
}

// awaitEvent waits until an event of a reason is told in a namespace.
func awaitEvent(t *testing.T, namespace, reason string) {
	t.Helper()
	// An event's name is not known: so each look at the namespace is a look at its events.
	key := client.ObjectKey{Name: namespace}
	machinetest.Await(t, stage.Client(t), &corev1.Namespace{}, key, func(*corev1.Namespace) bool {
		var list corev1.EventList
		err := stage.Client(t).List(t.Context(), &list, client.InNamespace(namespace), client.MatchingFields{"reason": reason})
		return err == nil && len(list.Items) > 0
	})
}
