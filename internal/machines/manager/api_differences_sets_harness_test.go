package manager_test

import (
	"fmt"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
)

// set is a set of one machine that a pre-drain hook holds, with the template that it needs.
func (a *apiSide) set() []client.Object {
	if !a.isClusterAPI {
		return []client.Object{newSet(a.name, 1, hooksOf("Migrate", ""))}
	}
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: a.name}
	labels := map[string]string{"set": a.name}
	set := &clusterv1.MachineSet{ObjectMeta: meta}
	set.Spec = clusterv1.MachineSetSpec{
		ClusterName: clusterName, Replicas: ptr.To[int32](1), Selector: metav1.LabelSelector{MatchLabels: labels},
	}
	set.Spec.Template.Labels = labels
	set.Spec.Template.Annotations = map[string]string{clusterv1.PreDrainDeleteHookAnnotationPrefix +
		"/Migrate": "owner"}
	set.Spec.Template.Spec = newClusterAPIMachine("").Spec
	set.Spec.Template.Spec.InfrastructureRef.Kind = "KwokMachineTemplate"
	set.Spec.Template.Spec.InfrastructureRef.Name = a.name
	return []client.Object{&v1alpha1.KwokMachineTemplate{ObjectMeta: meta}, set}
}

// ofSet returns the machines of the set.
func (a *apiSide) ofSet() []*machineState {
	a.t.Helper()
	var list []*machineState
	for _, m := range a.states() {
		if m.Labels["set"] == a.setName {
			list = append(list, m)
		}
	}
	return list
}

// deleteOfSet deletes the machine of the set, which its hook holds.
func (a *apiSide) deleteOfSet() {
	a.t.Helper()
	a.setName = a.name
	for _, object := range a.set() {
		a.must(a.Create(a.t.Context(), object))
	}
	var first *machineState
	a.await(func() string {
		list := a.ofSet()
		if len(list) == 1 && list[0].phase == machinev1beta1.PhaseRunning {
			first = list[0]
		}
		return unless(first != nil, "set %s has no machine that runs", a.setName)
	})
	a.name = first.Name
	a.deleteIt()
	a.awaitHeld(waitsForPreDrain)
}

func (a *apiSide) machinesOfSet() string {
	a.t.Helper()
	return fmt.Sprintf("machines: %d", len(a.ofSet()))
}
