package deletion_test

import (
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// The annotations of nodes.
const (
	openShifts          = deletion.OpenShiftMachineAnnotation
	clusterAPIs         = clusterv1.MachineAnnotation
	clusterAPINamespace = clusterv1.ClusterNamespaceAnnotation
)

func aNode(providerID string, annotations map[string]string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "new", Annotations: annotations},
		Spec:       corev1.NodeSpec{ProviderID: providerID},
	}
}

func TestOwnershipOpenShift(t *testing.T) {
	for name, test := range map[string]struct {
		known       types.UID // the UID that the Machine knows
		annotations map[string]string
		providerID  string // providerID of the node; the Machine's is "p"
		want        deletion.NodeOwnership
	}{
		"its own": {"new", map[string]string{openShifts: "shop/b"}, "",
			deletion.OwnNode},
		"another host without a providerID": {"old", nil, "", deletion.UnknownNode},
		"another host":                      {"old", nil, "q", deletion.OthersNode},
		"its host, which has joined again":  {"old", nil, "p", deletion.OwnNode},
		"one that was linked to it": {"old", map[string]string{openShifts: "shop/a"}, "",
			deletion.OwnNode},
		"another Machine's": {"old", map[string]string{openShifts: "shop/b"}, "p", deletion.OthersNode},
		"another namespace's": {"old", map[string]string{openShifts: "mall/a"}, "p",
			deletion.OthersNode},
		"a Machine's of Cluster API":         {"old", map[string]string{clusterAPIs: "a"}, "p", deletion.OthersNode},
		"one of which it knows the name":     {"", nil, "", deletion.OwnNode},
		"one of that name, and another host": {"", nil, "q", deletion.OthersNode},
		"one of that name, and another " +
			"Machine's": {"", map[string]string{openShifts: "shop/b"}, "", deletion.OthersNode},
	} {
		t.Run(name, func(t *testing.T) {
			id := "p"
			m := &machinev1beta1.Machine{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"},
				Spec:       machinev1beta1.MachineSpec{ProviderID: &id},
			}
			m.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: "n", UID: test.known}
			if got := deletion.OwnershipOpenShift(aNode(test.providerID, test.annotations), m); got != test.want {
				t.Errorf("it is %s, want %s", got, test.want)
			}
		})
	}
}

func TestOwnershipClusterAPI(t *testing.T) {
	named := func(namespace, name string) map[string]string {
		return map[string]string{clusterAPINamespace: namespace, clusterAPIs: name}
	}
	for name, test := range map[string]struct {
		annotations map[string]string
		providerID  string // providerID of the node; the Machine's is "p"
		want        deletion.NodeOwnership
	}{
		"its own":                           {named("shop", "a"), "p", deletion.OwnNode},
		"its host, which has joined again":  {nil, "p", deletion.OwnNode},
		"another host without a providerID": {nil, "", deletion.UnknownNode},
		"another host":                      {nil, "q", deletion.OthersNode},
		"one that was linked to it":         {named("shop", "a"), "", deletion.OwnNode},
		"another Machine's":                 {named("shop", "b"), "p", deletion.OthersNode},
		"another namespace's":               {named("mall", "a"), "p", deletion.OthersNode},
		"a Machine's of OpenShift":          {map[string]string{openShifts: "shop/a"}, "p", deletion.OthersNode},
		"one of both APIs": {
			map[string]string{openShifts: "shop/a", clusterAPINamespace: "shop", clusterAPIs: "a"}, "p",
			deletion.OthersNode,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &clusterv1.Machine{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"},
				Spec:       clusterv1.MachineSpec{ProviderID: "p"},
			}
			if got := deletion.OwnershipClusterAPI(aNode(test.providerID, test.annotations), m); got != test.want {
				t.Errorf("it is %s, want %s", got, test.want)
			}
		})
	}
}
