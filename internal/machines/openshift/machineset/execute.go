package machineset

import (
	"context"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// execute executes a plan.
func (r *reconciler) execute(ctx context.Context, seen *setSnapshot, p replicas.Plan) error {
	scaler := replicas.Scaler{
		Client: r.cached, Events: r.recorder, Set: seen.set, Owner: controllerOf(seen.set), Requests: requests,
	}
	if err := replicas.SettleOwnership(ctx, scaler, p, seen.machines); err != nil {
		return err
	}
	if p.Create > 0 {
		return scaler.Create(ctx, p.Create, func() (string, error) {
			machine := newMachine(seen.set)
			err := r.cached.Create(ctx, machine)
			return machine.Name, err
		})
	}
	if len(p.Remove) > 0 {
		return replicas.Remove(ctx, scaler, p.Remove, seen.machines)
	}
	return nil
}

// newMachine returns a machine from the set's template. The API server generates its name.
func newMachine(set *machinev1beta1.MachineSet) *machinev1beta1.Machine {
	template := set.Spec.Template.DeepCopy()
	return &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       set.Namespace,
			GenerateName:    set.Name + "-",
			Labels:          template.Labels,
			Annotations:     template.Annotations,
			OwnerReferences: []metav1.OwnerReference{controllerOf(set)},
		},
		Spec: template.Spec,
	}
}

func controllerOf(set *machinev1beta1.MachineSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(set, machinev1beta1.SchemeGroupVersion.WithKind("MachineSet"))
}
