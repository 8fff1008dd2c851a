package machineset

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/contract"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// The field managers are those of Cluster API's own controller: what it has set, this one can change and remove, and
// the other way round.
const (
	fieldManager         = client.FieldOwner("capi-machineset")
	metadataFieldManager = client.FieldOwner("capi-machineset-metadata")
)

// appliedAnnotation is on each machine, and has a hash of what was last brought to it and to what belongs to it. What
// the template no longer has is removed from a machine only by being applied without it.
const appliedAnnotation = "machine.runlevel.dev/applied-template"

// propagate brings to machines what can change without new ones. A machine that is being deleted gets only what its
// deletion goes by: a hook that was removed from it does not come back.
func (r *ClusterMachineSetReconciler) propagate(ctx context.Context, seen *clusterSetSnapshot) error {
	if seen.invalid != "" {
		return nil
	}
	var behind []*clusterv1.Machine
	for _, m := range seen.replicas {
		machine := seen.machines[m.Name]
		if m.Owner == replicas.Ours && m.IsSelected && !isCurrent(seen.set, machine) {
			behind = append(behind, machine)
		}
	}
	_, err := replicas.InParallel(len(behind), requests, func(i int) error {
		if behind[i].DeletionTimestamp != nil {
			return r.updateDeleting(ctx, seen.set, behind[i])
		}
		return r.updateMachine(ctx, seen.set, behind[i])
	})
	if err != nil {
		return fmt.Errorf("bring the template's changes to machines: %w", err)
	}
	return nil
}

// isCurrent says whether a machine has all of the template that needs no new machine.
func isCurrent(set *clusterv1.MachineSet, machine *clusterv1.Machine) bool {
	changed := machine.DeepCopy()
	setMutable(&changed.Spec, &set.Spec.Template.Spec)
	if !equality.Semantic.DeepEqual(changed.Spec, machine.Spec) {
		return false
	}
	return machine.DeletionTimestamp != nil ||
		labels.Set(machineLabels(set)).AsSelectorPreValidated().Matches(labels.Set(machine.Labels)) &&
			labels.Set(set.Spec.Template.Annotations).AsSelectorPreValidated().Matches(labels.Set(machine.Annotations)) &&
			machine.Annotations[appliedAnnotation] == hashOf(set)
}

// setMutable sets the fields that can change without a new machine. How long a Node may take to be deleted has a default,
// which whatever writes Machines may have set.
func setMutable(spec, template *clusterv1.MachineSpec) {
	before := spec.Deletion.NodeDeletionTimeoutSeconds
	spec.ReadinessGates = template.ReadinessGates
	spec.Deletion = template.Deletion
	if spec.Deletion.NodeDeletionTimeoutSeconds == nil {
		spec.Deletion.NodeDeletionTimeoutSeconds = before
	}
	spec.MinReadySeconds = template.MinReadySeconds
	spec.Taints = template.Taints
}

// updateDeleting changes what the deletion of a machine goes by.
func (r *ClusterMachineSetReconciler) updateDeleting(ctx context.Context, set *clusterv1.MachineSet, machine *clusterv1.Machine) error {
	changed := machine.DeepCopy()
	setMutable(&changed.Spec, &set.Spec.Template.Spec)
	return client.IgnoreNotFound(r.cached.Patch(ctx, changed, client.MergeFrom(machine)))
}

// updateMachine brings the template's changes to what belongs to a machine, and then to the machine: once that has the
// hash, all have it.
func (r *ClusterMachineSetReconciler) updateMachine(ctx context.Context, set *clusterv1.MachineSet, machine *clusterv1.Machine) error {
	for _, ref := range []clusterv1.ContractVersionedObjectReference{machine.Spec.InfrastructureRef, machine.Spec.Bootstrap.ConfigRef} {
		if !ref.IsDefined() {
			continue
		}
		if err := r.applyMetadata(ctx, set, ref); client.IgnoreNotFound(err) != nil {
			return err // what is gone, the controller of Machines tells of
		}
	}
	return contract.Apply(ctx, r.cached, desiredMachine(set, machine), fieldManager)
}

// desiredMachine returns a machine as the template wants it. What needs a new machine is as the machine has it.
func desiredMachine(set *clusterv1.MachineSet, machine *clusterv1.Machine) *clusterv1.Machine {
	template := set.Spec.Template.DeepCopy()
	desired := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: machine.Name, UID: machine.UID, ResourceVersion: machine.ResourceVersion,
			Labels: machineLabels(set), Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{controllerOf(set)},
			Finalizers:      []string{clusterv1.MachineFinalizer}, // a machine never goes without its infrastructure
		},
		Spec: template.Spec,
	}
	maps.Copy(desired.Annotations, template.Annotations)
	desired.Annotations[appliedAnnotation] = hashOf(set)
	desired.Spec.ClusterName = set.Spec.ClusterName
	desired.Spec.Bootstrap = machine.Spec.Bootstrap
	desired.Spec.InfrastructureRef = machine.Spec.InfrastructureRef
	desired.Spec.Version, desired.Spec.FailureDomain = machine.Spec.Version, machine.Spec.FailureDomain
	return desired
}

// machineLabels returns the labels of a set's machines.
func machineLabels(set *clusterv1.MachineSet) map[string]string {
	own := map[string]string{clusterv1.ClusterNameLabel: set.Spec.ClusterName, clusterv1.MachineSetNameLabel: labelValue(set.Name)}
	if name, ok := set.Labels[clusterv1.MachineDeploymentNameLabel]; ok {
		own[clusterv1.MachineDeploymentNameLabel] = name
	}
	return labels.Merge(set.Spec.Template.Labels, own)
}

// labelValue returns a name as the value of a label: as it is, or a hash where it is too long, as Cluster API has it.
func labelValue(name string) string {
	if len(validation.IsValidLabelValue(name)) == 0 {
		return name
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name)) // never fails
	return fmt.Sprintf("hash_%s_z", base64.RawURLEncoding.EncodeToString(hash.Sum(nil)))
}

// hashOf returns a hash of what a set brings to its machines.
func hashOf(set *clusterv1.MachineSet) string {
	var mutable clusterv1.MachineSpec
	setMutable(&mutable, &set.Spec.Template.Spec)
	hash := fnv.New64a()
	// Maps are written with their keys in order.
	_ = json.NewEncoder(hash).Encode([]any{machineLabels(set), set.Spec.Template.Annotations, mutable})
	return fmt.Sprintf("%016x", hash.Sum64())
}

// applyMetadata brings labels and annotations of the template to what belongs to a machine.
func (r *ClusterMachineSetReconciler) applyMetadata(ctx context.Context, set *clusterv1.MachineSet, ref clusterv1.ContractVersionedObjectReference) error {
	found, err := r.references.Get(ctx, ref, set.Namespace)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(found.GroupVersionKind())
	object.SetNamespace(found.GetNamespace())
	object.SetName(found.GetName())
	object.SetUID(found.GetUID()) // so that it is not made if it is gone
	object.SetLabels(machineLabels(set))
	object.SetAnnotations(set.Spec.Template.Annotations)
	return contract.Apply(ctx, r.cached, object, metadataFieldManager)
}
