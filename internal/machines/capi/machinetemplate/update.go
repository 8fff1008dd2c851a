package machinetemplate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
)

// Propagate writes the fields of the template that can change without a new machine. On a terminating machine, it only
// writes fields that affect the deletion, so that it does not restore a hook that was removed.
func (w Writer) Propagate(ctx context.Context, t Template, machine *clusterv1.Machine) error {
	if machine.DeletionTimestamp != nil {
		changed := machine.DeepCopy()
		setMutable(&changed.Spec, &t.Spec)
		return client.IgnoreNotFound(w.Client.Patch(ctx, changed, client.MergeFrom(machine)))
	}
	// The machine is written last: once it has the hash, all of its objects are up to date.
	for _, ref := range []contract.Reference{machine.Spec.InfrastructureRef,
		machine.Spec.Bootstrap.ConfigRef} {
		if !ref.IsDefined() {
			continue
		}
		if err := w.applyMetadata(ctx, t, ref); client.IgnoreNotFound(err) != nil {
			return err // the controller of Machines reports a missing object
		}
	}
	return w.apply(ctx, t.desired(machine))
}

func (w Writer) apply(ctx context.Context, machine *clusterv1.Machine) error {
	return contract.Apply(ctx, w.Client, machine, w.Manager)
}

// applyMetadata applies the labels and annotations of the template to an object of a machine.
func (w Writer) applyMetadata(ctx context.Context, t Template, ref contract.Reference) error {
	found, err := w.References.Get(ctx, ref, t.Namespace)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(found.GroupVersionKind())
	object.SetNamespace(found.GetNamespace())
	object.SetName(found.GetName())
	object.SetUID(found.GetUID()) // so that it is not created again if it was deleted
	object.SetLabels(t.Labels)
	object.SetAnnotations(t.Annotations)
	return contract.Apply(ctx, w.Client, object, w.MetadataManager)
}

// BeginUpdate writes the desired state of an update in place, and triggers the update. The Machine is written last:
// until then, all of the writes are repeated.
func (w Writer) BeginUpdate(ctx context.Context, t Template, machine *clusterv1.Machine) (*clusterv1.Machine, error) {
	has := machine.Spec
	if err := w.updateReferenced(ctx, t, has.InfrastructureRef, t.Spec.InfrastructureRef); err != nil {
		return nil, err
	}
	if has.Bootstrap.ConfigRef.IsDefined() {
		if err := w.updateReferenced(ctx, t, has.Bootstrap.ConfigRef, t.Spec.Bootstrap.ConfigRef); err != nil {
			return nil, err
		}
	}
	begun, err := w.trigger(ctx, t, machine)
	for range triggerRetries {
		if !apierrors.IsConflict(err) {
			break
		}
		begun, err = w.trigger(ctx, t, machine)
	}
	if err != nil {
		return nil, fmt.Errorf("write Machine %s: %w", machine.Name, err)
	}
	return begun, nil
}

// triggerRetries limits how often the write that triggers an update is repeated after a conflict.
const triggerRetries = 4

// trigger triggers the update of a Machine. The Machine is read again, since its mark and its objects have other
// controllers write its status. It is a conflict if its spec, its owner or its mark has changed, or if it is being
// deleted.
func (w Writer) trigger(ctx context.Context, t Template, marked *clusterv1.Machine) (*clusterv1.Machine, error) {
	machine := &clusterv1.Machine{}
	if err := w.Live.Get(ctx, client.ObjectKeyFromObject(marked), machine); err != nil {
		return nil, err
	}
	isSame := machine.UID == marked.UID && machine.Generation == marked.Generation &&
		rolloutrules.IsUpdating(machine) == rolloutrules.IsUpdating(marked)
	if !isSame || !machine.DeletionTimestamp.IsZero() ||
		!metav1.IsControlledBy(machine, &metav1.ObjectMeta{UID: t.Owner.UID}) {
		return nil, apierrors.NewConflict(clusterv1.GroupVersion.WithResource("machines").GroupResource(), machine.Name,
			errors.New("the Machine has changed"))
	}
	begun := t.Updated(machine)
	delete(begun.Annotations, clusterv1.PendingAcknowledgeMoveAnnotation)
	rolloutrules.DropRequest(begun)
	begun.Annotations[clusterv1.UpdateInProgressAnnotation] = ""
	begun.Annotations[runtimev1.PendingHooksAnnotation] = withHook(begun.Annotations[runtimev1.PendingHooksAnnotation],
		runtimehook.UpdateMachine)
	return begun, patch.WithLock(ctx, w.Client, begun, machine)
}

// Updated returns a machine with the fields of the template that an update in place can change.
func (t Template) Updated(machine *clusterv1.Machine) *clusterv1.Machine {
	updated := machine.DeepCopy()
	updated.Spec.Version, updated.Spec.FailureDomain = t.Spec.Version, t.Spec.FailureDomain
	if !machine.Spec.Bootstrap.ConfigRef.IsDefined() {
		updated.Spec.Bootstrap.DataSecretName = t.Spec.Bootstrap.DataSecretName
	}
	return updated
}

// updateReferenced applies a template to the infrastructure or the bootstrap config of a machine.
func (w Writer) updateReferenced(ctx context.Context, t Template, ref, template contract.Reference) error {
	object, err := w.References.Get(ctx, ref, t.Namespace)
	if err != nil {
		return err
	}
	_, err = w.References.Update(ctx, object, template, t.cloneForUpdate(ref.Name, w.Manager))
	return err
}

// IsTriggered reports whether the whole desired state of an update in place was written, so that it can run. While a
// Machine is moved to another set, a pending hook belongs to an earlier update.
func IsTriggered(m *clusterv1.Machine) bool {
	return !rolloutrules.IsArriving(m) &&
		slices.Contains(rolloutrules.Names(m.Annotations[runtimev1.PendingHooksAnnotation]), runtimehook.UpdateMachine)
}

// withHook adds a hook to the pending ones.
func withHook(pending, hook string) string {
	hooks := rolloutrules.Names(pending)
	if !slices.Contains(hooks, hook) {
		hooks = append(hooks, hook)
	}
	slices.Sort(hooks)
	return strings.Join(hooks, ",")
}

// Preview returns the infrastructure or the bootstrap config of a machine with the changes of an update in place.
func (w Writer) Preview(ctx context.Context, t Template, object *contract.Object,
	template contract.Reference,
) (*unstructured.Unstructured, error) {
	return w.References.Update(ctx, object, template, t.cloneForUpdate(object.GetName(), w.Manager), client.DryRunAll)
}

// cloneForUpdate describes an object of a machine during its update in place.
func (t Template) cloneForUpdate(name string, manager client.FieldOwner) contract.Clone {
	wanted := t.clone(name, manager)
	wanted.Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: ""}
	return wanted
}
