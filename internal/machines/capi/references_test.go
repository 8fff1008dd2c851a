package capi_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The controller may delete MachineSets. An account that may only create and delete Machines must not make it do so.
func TestAMachineThatRefersToAMachineSetDoesNotOwnIt(t *testing.T) {
	s := newScene(t)
	set := &clusterv1.MachineSet{ObjectMeta: s.Meta("set"), Spec: clusterv1.MachineSetSpec{
		ClusterName: "c", Replicas: ptr.To[int32](0),
		Selector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
	}}
	set.Spec.Template.Labels, set.Spec.Template.Spec = map[string]string{"a": "b"}, s.machine("").Spec
	set.Spec.Template.Spec.InfrastructureRef.Name = "any"
	s.MustCreate(set)
	m := s.machine("m1")
	m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: clusterv1.GroupVersion.Group,
		Kind:     "MachineSet",
		Name:     "set",
	}
	s.addInfrastructure("m1")
	s.MustCreate(m)
	s.await("m1", func(m *clusterv1.Machine) bool {
		return meta.IsStatusConditionPresentAndEqual(m.Status.Conditions,
			clusterv1.MachineBootstrapConfigReadyCondition, metav1.ConditionUnknown)
	})
	s.MustDelete(m)
	s.AwaitGone(m)
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil || set.DeletionTimestamp != nil ||
		len(set.OwnerReferences) > 0 {
		t.Errorf("MachineSet: got %+v, error %v; want no owner and no deletion", set.ObjectMeta, err)
	}
}
