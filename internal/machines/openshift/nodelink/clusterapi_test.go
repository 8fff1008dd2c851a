package nodelink_test

import (
	"fmt"
	"slices"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi"
	"github.com/runlevel/runlevel/internal/machines/openshift/nodelink"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// advice is the end of the refusals of both controllers.
const advice = "and %s has one Machine: delete one of both, and the annotation %s of the %s if that was the other one"

// The Node of a Machine of Cluster API is not linked to a Machine of OpenShift until a user follows the advice of the
// refusal.
func TestANodeOfClusterAPIIsNotLinked(t *testing.T) {
	s := newRivals(t)
	s.manageClusterAPI()
	machinetest.Await(s, s, s.clusterAPI, client.ObjectKeyFromObject(s.clusterAPI), func(m *clusterv1.Machine) bool {
		return m.Status.NodeRef.Name == s.node.Name
	})
	s.manageOpenShift() // after the link, so that its cache has it
	s.awaitEvent(fmt.Sprintf("node %s is not linked, it belongs to Machine m of cluster.x-k8s.io, "+advice,
		s.node.Name, "a node", "cluster.x-k8s.io/machine", "node"))
	if m := s.AwaitMachine("m", func(*machinev1beta1.Machine) bool {
		return true
	}); m.Status.NodeRef != nil {
		t.Errorf("status.nodeRef: got %+v, want none", m.Status.NodeRef)
	}
	s.MustDelete(s.clusterAPI)
	s.AwaitGone(s.clusterAPI)
	s.removeAnnotation("cluster.x-k8s.io/machine")
	s.AwaitMachine("m", func(m *machinev1beta1.Machine) bool {
		return m.Status.NodeRef != nil && m.Status.NodeRef.UID == s.node.UID
	})
}

// The Node of a Machine of OpenShift is not linked to a Machine of Cluster API until a user follows the advice of the
// refusal.
func TestANodeOfOpenShiftIsNotLinked(t *testing.T) {
	s := newRivals(t)
	stop := s.manageOpenShift()
	machinetest.Await(s, s, s.node, client.ObjectKeyFromObject(s.node), func(n *corev1.Node) bool {
		return n.Annotations[nodelink.MachineAnnotation] != ""
	})
	s.manageClusterAPI()
	want := fmt.Sprintf("the Node %s belongs to Machine %s/m of machine.openshift.io, "+advice,
		s.node.Name, s.Namespace, "a Node", nodelink.MachineAnnotation, "Node")
	seen := machinetest.Await(s, s, s.clusterAPI, client.ObjectKeyFromObject(s.clusterAPI),
		func(m *clusterv1.Machine) bool {
			healthy := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineNodeHealthyCondition)
			return healthy != nil && healthy.Message == want
		})
	if seen.Status.NodeRef.Name != "" {
		t.Errorf("status.nodeRef: got %+v, want none", seen.Status.NodeRef)
	}
	s.MustDelete(s.openShift)
	stop() // the controller may not have seen yet that the Machine is deleted, and would restore the annotation
	s.removeAnnotation(nodelink.MachineAnnotation)
	machinetest.Await(s, s, s.clusterAPI, client.ObjectKeyFromObject(s.clusterAPI), func(m *clusterv1.Machine) bool {
		return m.Status.NodeRef.Name == s.node.Name
	})
}

// rivals are a Machine of each API, and a node with the providerID of both.
type rivals struct {
	*machinetest.Fixture
	node       *corev1.Node
	openShift  *machinev1beta1.Machine
	clusterAPI *clusterv1.Machine
}

func newRivals(t *testing.T) *rivals {
	t.Helper()
	s := &rivals{Fixture: shared.NewFixture(t)}
	id := "test://" + s.Namespace
	object := s.Meta("m")
	infrastructure := clusterv1.ContractVersionedObjectReference{
		APIGroup: "infrastructure.runlevel.dev",
		Kind:     "ExternalMachine",
		Name:     "m",
	}
	s.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}, Spec: corev1.NodeSpec{ProviderID: id}}
	s.openShift = &machinev1beta1.Machine{ObjectMeta: object, Spec: machinev1beta1.MachineSpec{ProviderID: &id}}
	s.clusterAPI = &clusterv1.Machine{ObjectMeta: object, Spec: clusterv1.MachineSpec{
		ClusterName: "m", ProviderID: id, InfrastructureRef: infrastructure,
		Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("data")},
	}}
	cluster := &clusterv1.Cluster{ObjectMeta: object, Spec: clusterv1.ClusterSpec{InfrastructureRef: infrastructure}}
	s.MustCreate(s.node, cluster, s.openShift, s.clusterAPI)
	s.DeleteAfterwards(s.node)
	return s
}

func (r *rivals) manageClusterAPI() {
	r.Manage(func(mgr ctrl.Manager) error {
		return capi.SetupWithManager(r.Context(), mgr, capi.Options{})
	})
}

func (r *rivals) manageOpenShift() (stop func()) {
	return manage(r.Fixture)
}

// removeAnnotation takes an annotation off the node.
func (r *rivals) removeAnnotation(key string) {
	r.Helper()
	r.MustPatch(r.node, `{"metadata":{"annotations":{%q:null}}}`, key)
}

// awaitEvent waits for the event of the Machine of OpenShift that returns why its node is not linked.
func (r *rivals) awaitEvent(note string) {
	r.Helper()
	r.Eventually("an event of Machine m: "+note, func() bool {
		return slices.ContainsFunc(r.Events("m", "NodeNotLinked"), func(e eventsv1.Event) bool {
			return e.Note == note
		})
	})
}
