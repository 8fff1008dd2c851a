package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// roleLabel is the label that names the role of a machine.
const roleLabel = "machine.openshift.io/cluster-api-machine-role"

// execute adopts machines, and deletes and creates those of the plan.
func (r *Reconciler) execute(ctx context.Context, s *Snapshot) error {
	for _, name := range s.Adopt {
		if err := r.adopt(ctx, s, s.objects[name]); err != nil {
			return fmt.Errorf("adopt machine %s: %w", name, err)
		}
	}
	for _, name := range s.Delete {
		if err := patch.DeleteWithLock(ctx, r.cached, s.objects[name]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete machine %s: %w", name, err)
		}
		r.recorder.Eventf(s.set, s.objects[name], corev1.EventTypeNormal, "Deleted", "Delete", "deleted machine: %s",
			name)
	}
	for _, index := range s.Create {
		machine, err := s.NewMachine(index, rand.String(5))
		if err == nil {
			err = r.cached.Create(ctx, machine)
		}
		if err != nil {
			return fmt.Errorf("create a machine for index %d: %w", index, err)
		}
		// The machine is named twice: of two events of the same objects, only the first is kept, with a count.
		r.recorder.Eventf(s.set, machine, corev1.EventTypeNormal, "Created", "Create", "created machine: %s",
			machine.Name)
	}
	return nil
}

// adopt makes the set the owner of a machine, and records the index of one whose name does not have it.
func (r *Reconciler) adopt(ctx context.Context, s *Snapshot, machine *machinev1beta1.Machine) error {
	adopted := s.Adopted(machine)
	s.objects[machine.Name] = adopted
	return client.IgnoreNotFound(patch.WithLock(ctx, r.cached, adopted, machine))
}

// Adopted returns a machine with the set as its owner.
func (s *Snapshot) Adopted(machine *machinev1beta1.Machine) *machinev1beta1.Machine {
	adopted := machine.DeepCopy()
	adopted.OwnerReferences = append(adopted.OwnerReferences, controllerOf(s.set))
	if _, ok := numberIn(machine.Name); !ok {
		SetIndex(adopted, s.indexes[machine.Name])
	}
	return adopted
}

// SetIndex records the index of a machine whose name does not have it.
func SetIndex(machine *machinev1beta1.Machine, index int) {
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, annotation.ControlPlaneIndex, strconv.Itoa(index))
}

// NewMachine returns a machine of an index, from the template.
func (s *Snapshot) NewMachine(index int, suffix string) (*machinev1beta1.Machine, error) {
	template := s.set.Spec.Template.OpenShiftMachineV1Beta1Machine.DeepCopy()
	prefix := s.set.Spec.MachineNamePrefix
	if prefix == "" {
		prefix = template.ObjectMeta.Labels[machinev1beta1.MachineClusterIDLabel] + "-" +
			template.ObjectMeta.Labels[roleLabel]
	}
	value, err := json.Marshal(s.template.wanted(s.domain(index)))
	if err != nil {
		return nil, fmt.Errorf("write providerSpec.value: %w", err)
	}
	template.Spec.ProviderSpec.Value = &runtime.RawExtension{Raw: value}
	return &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.set.Namespace, Name: fmt.Sprintf("%s-%s-%d", prefix, suffix, index),
			Labels: template.ObjectMeta.Labels, Annotations: template.ObjectMeta.Annotations,
			OwnerReferences: []metav1.OwnerReference{controllerOf(s.set)},
		},
		Spec: template.Spec,
	}, nil
}

func controllerOf(set *machinev1.ControlPlaneMachineSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(set, machinev1.GroupVersion.WithKind("ControlPlaneMachineSet"))
}

// release removes the set as the owner of its machines, so that they stay, and then removes its finalizer.
func (r *Reconciler) release(ctx context.Context, s *Snapshot) error {
	var ours []string
	for name, m := range s.objects {
		if replicas.OwnerOf(m, s.set.UID) == replicas.Ours {
			ours = append(ours, name)
		}
	}
	scaler := replicas.Scaler{Client: r.cached, Events: r.recorder, Set: s.set, Owner: controllerOf(s.set)}
	if err := replicas.SettleOwnership(ctx, scaler, replicas.Plan{Release: ours}, s.objects); err != nil {
		return err
	}
	return client.IgnoreNotFound(patch.RemoveFinalizer(ctx, r.cached, s.set, setFinalizer))
}

// report writes the status of a set.
func (r *Reconciler) report(ctx context.Context, s *Snapshot, failure error) error {
	changed := s.set.DeepCopy()
	changed.Status.ObservedGeneration = s.set.Generation
	if s.Problem.Reason != invalidConfiguration { // its machines are not known
		countReplicas(&changed.Status, s.slots)
	}
	setConditions(&changed.Status, int32(s.wanted()), s.Problem, s.Waits, replicas.MessageOf(failure))
	if equality.Semantic.DeepEqual(s.set.Status, changed.Status) {
		return nil
	}
	if err := r.cached.Status().Patch(ctx, changed, client.MergeFrom(s.set)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of ControlPlaneMachineSet %s: %w", s.set.Name, err)
	}
	return nil
}
