package machineset

import (
	"cmp"
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

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// The field managers are those of Cluster API's own controller: each controller can change and remove the fields that the
// other has set.
const (
	fieldManager         = client.FieldOwner("capi-machineset")
	metadataFieldManager = client.FieldOwner("capi-machineset-metadata")
)

// appliedAnnotation is on each machine, and has a hash of the fields that were last applied to it and its objects. Fields
// that the template no longer has are removed by an apply without them.
const appliedAnnotation = "machine.runlevel.dev/applied-template"

// propagate updates the fields of machines that need no new machine. On a machine that is being deleted only the fields
// that affect its deletion are updated: a hook that was removed from it is not restored.
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
			return updateDeleting(ctx, r, seen.set, behind[i])
		}
		return updateMachine(ctx, r, seen.set, behind[i])
	})
	if err != nil {
		return fmt.Errorf("bring the template's changes to machines: %w", err)
	}
	return nil
}

// isCurrent reports whether a machine has all fields of the template that need no new machine.
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

// setMutable sets the fields that can change without a new machine. The timeout of the deletion of a Node has a default,
// which other writers of Machines may have set.
func setMutable(spec, template *clusterv1.MachineSpec) {
	before := spec.Deletion.NodeDeletionTimeoutSeconds
	rolloutrules.SetMutable(spec, template)
	spec.Deletion.NodeDeletionTimeoutSeconds = cmp.Or(spec.Deletion.NodeDeletionTimeoutSeconds, before)
}

// updateDeleting updates the fields that affect the deletion of a machine.
func updateDeleting(ctx context.Context, r *ClusterMachineSetReconciler, set *clusterv1.MachineSet, machine *clusterv1.Machine) error {
	changed := machine.DeepCopy()
	setMutable(&changed.Spec, &set.Spec.Template.Spec)
	return client.IgnoreNotFound(r.cached.Patch(ctx, changed, client.MergeFrom(machine)))
}

// updateMachine applies the template's changes to the objects of a machine, and then to the machine: once the machine has
// the hash, all of them are up to date.
func updateMachine(ctx context.Context, r *ClusterMachineSetReconciler, set *clusterv1.MachineSet, machine *clusterv1.Machine) error {
	for _, ref := range []clusterv1.ContractVersionedObjectReference{machine.Spec.InfrastructureRef, machine.Spec.Bootstrap.ConfigRef} {
		if !ref.IsDefined() {
			continue
		}
		if err := applyMetadata(ctx, r, set, ref); client.IgnoreNotFound(err) != nil {
			return err // the controller of Machines reports a missing object
		}
	}
	return contract.Apply(ctx, r.cached, desiredMachine(set, machine), fieldManager)
}

// desiredMachine returns the desired state of a machine. Fields that need a new machine are the machine's own.
func desiredMachine(set *clusterv1.MachineSet, machine *clusterv1.Machine) *clusterv1.Machine {
	template := set.Spec.Template.DeepCopy()
	desired := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: machine.Name, UID: machine.UID, ResourceVersion: machine.ResourceVersion,
			Labels: machineLabels(set), Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{controllerOf(set)},
			Finalizers:      []string{clusterv1.MachineFinalizer}, // a machine is never removed before its infrastructure
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

// labelValue returns a name as the value of a label: unchanged, or Cluster API's hash of it if it is too long.
func labelValue(name string) string {
	if len(validation.IsValidLabelValue(name)) == 0 {
		return name
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name)) // never fails
	return fmt.Sprintf("hash_%s_z", base64.RawURLEncoding.EncodeToString(hash.Sum(nil)))
}

// hashOf returns a hash of the fields that a set applies to its machines.
func hashOf(set *clusterv1.MachineSet) string {
	var mutable clusterv1.MachineSpec
	setMutable(&mutable, &set.Spec.Template.Spec)
	hash := fnv.New64a()
	// Maps are written with their keys in order.
	_ = json.NewEncoder(hash).Encode([]any{machineLabels(set), set.Spec.Template.Annotations, mutable})
	return fmt.Sprintf("%016x", hash.Sum64())
}

// applyMetadata applies the labels and annotations of the template to an object of a machine.
func applyMetadata(ctx context.Context, r *ClusterMachineSetReconciler, set *clusterv1.MachineSet, ref clusterv1.ContractVersionedObjectReference) error {
	found, err := r.references.Get(ctx, ref, set.Namespace)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(found.GroupVersionKind())
	object.SetNamespace(found.GetNamespace())
	object.SetName(found.GetName())
	object.SetUID(found.GetUID()) // so that it is not created again if it was deleted
	object.SetLabels(machineLabels(set))
	object.SetAnnotations(set.Spec.Template.Annotations)
	return contract.Apply(ctx, r.cached, object, metadataFieldManager)
}
