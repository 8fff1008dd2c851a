package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/machinetemplate"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/replicas"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// ReplacedAnnotation is on a machine that is deleted although extensions are there, and has the reason why it is not updated in place.
const ReplacedAnnotation = "machine.runlevel.dev/replaced-because"

const (
	// permissionPause is when to look again whether the quorum guard has answered, if no change was observed before.
	permissionPause = 30 * time.Second
	// changedPause is when to look again at a control plane that has changed while the extension was asked.
	changedPause = time.Second
)

// update updates a machine in place, if the extension can make all of its changes; otherwise it deletes the machine, which is
// replaced. After an error of the extension neither is done: a replaced machine could not be restored.
//
// The order of the writes is that of Cluster API: the mark on the Machine, then its objects, then the Machine with the pending hook.
// If the controller stops in between, the next pass asks the extension again, since the template may have changed.
func (r *ControlPlaneReconciler) update(ctx context.Context, seen *planeSnapshot, m *clusterv1.Machine) error {
	reason, err := r.replacementReason(ctx, seen, seen.template(m), m)
	if err != nil {
		return fmt.Errorf("decide whether Machine %s can be updated in place: %w", m.Name, err)
	}
	if reason == "" && !rolloutrules.IsPermitted(m, r.now()) {
		return r.awaitPermission(ctx, seen, m)
	}
	// The extension may have taken its time.
	if isStill, err := r.isStillNext(ctx, seen); err != nil || !isStill {
		seen.lookAgain(changedPause)
		return err
	}
	if reason != "" {
		return r.replace(ctx, seen, m, reason)
	}
	return r.begin(ctx, seen, m)
}

// isStillNext reads the control plane once more, and reports whether its next step is the same.
func (r *ControlPlaneReconciler) isStillNext(ctx context.Context, seen *planeSnapshot) (bool, error) {
	now, err := r.read(ctx, r.live, client.ObjectKeyFromObject(seen.plane))
	if err != nil || now == nil {
		return false, err
	}
	return now.plane.Generation == seen.plane.Generation && now.remedy == nil && now.step.Action == seen.step.Action && now.step.Machine == seen.step.Machine, nil
}

// begin begins the update in place of a machine.
func (r *ControlPlaneReconciler) begin(ctx context.Context, seen *planeSnapshot, m *clusterv1.Machine) error {
	if !rolloutrules.IsUpdating(m) {
		marked := m.DeepCopy()
		metav1.SetMetaDataAnnotation(&marked.ObjectMeta, clusterv1.UpdateInProgressAnnotation, "")
		delete(marked.Annotations, ReplacedAnnotation)
		if err := patch.WithLock(ctx, r.cached, marked, m); err != nil {
			return fmt.Errorf("begin the update in place of Machine %s: %w", m.Name, err)
		}
		m = marked
	}
	begun, err := r.machines.BeginUpdate(ctx, seen.template(m), m)
	if err != nil {
		return fmt.Errorf("begin the update in place: %w", err)
	}
	r.record(seen, begun, "SuccessfulStartInPlaceUpdate", "Machine starting in-place update")
	return nil
}

// awaitPermission asks the quorum guard for permission, unless it was asked recently, and reports the answer that is missing.
func (r *ControlPlaneReconciler) awaitPermission(ctx context.Context, seen *planeSnapshot, m *clusterv1.Machine) error {
	seen.step.Waits = []string{fmt.Sprintf("Machine %s waits for the etcd quorum guard to permit its update in place", m.Name)}
	if why := m.Annotations[rolloutrules.UpdateHeldAnnotation]; why != "" {
		seen.step.Waits[0] += ": " + printable.Line(why)
	}
	seen.lookAgain(permissionPause)
	if rolloutrules.IsRequested(m, r.now()) {
		return nil
	}
	asked := m.DeepCopy()
	rolloutrules.Request(asked, r.now())
	if err := patch.WithLock(ctx, r.cached, asked, m); err != nil {
		return fmt.Errorf("ask the quorum guard about Machine %s: %w", m.Name, err)
	}
	return nil
}

func (r *ControlPlaneReconciler) hasExtensions(ctx context.Context) (bool, error) {
	var extensions runtimev1.ExtensionConfigList
	err := r.hooks.Registry.Configs.List(ctx, &extensions)
	return len(extensions.Items) > 0, err
}

// replacementReason returns why a machine can't be updated in place; empty if the extension can make all of its changes.
func (r *ControlPlaneReconciler) replacementReason(ctx context.Context, seen *planeSnapshot, t machinetemplate.MachineTemplate, m *clusterv1.Machine) (string, error) {
	objects := seen.objects[m.Name]
	if reason := ruledOut(t, m, objects); reason != "" {
		return reason, nil
	}
	infrastructure, reason, err := r.preview(ctx, objects.Infrastructure, t, t.Spec.InfrastructureRef)
	if reason != "" || err != nil {
		return reason, err
	}
	bootstrap, reason, err := r.preview(ctx, objects.Bootstrap, t, t.Spec.Bootstrap.ConfigRef)
	if reason != "" || err != nil {
		return reason, err
	}
	decision, err := r.hooks.CanUpdateMachine(ctx, newRequest(t, m, objects, infrastructure, bootstrap))
	if err != nil || decision.CanUpdate {
		return "", err
	}
	return strings.Join(decision.Reasons, "; "), nil
}

// ruledOut returns why a machine can't be updated in place, whatever an extension answers; empty if it has to be asked.
func ruledOut(t machinetemplate.MachineTemplate, m *clusterv1.Machine, objects MachineObjects) string {
	switch {
	case objects.Infrastructure == nil:
		return fmt.Sprintf("%s %s is gone", m.Spec.InfrastructureRef.Kind, m.Spec.InfrastructureRef.Name)
	case m.Spec.Bootstrap.ConfigRef.IsDefined() != t.Spec.Bootstrap.ConfigRef.IsDefined():
		return "spec.machineTemplate.spec.bootstrap.configRef is added or removed"
	case m.Spec.Bootstrap.ConfigRef.IsDefined() && objects.Bootstrap == nil:
		return fmt.Sprintf("%s %s is gone", m.Spec.Bootstrap.ConfigRef.Kind, m.Spec.Bootstrap.ConfigRef.Name)
	}
	return cmp.Or(ofAnotherKind(objects.Infrastructure, t.Spec.InfrastructureRef), ofAnotherKind(objects.Bootstrap, t.Spec.Bootstrap.ConfigRef))
}

func ofAnotherKind(object *contract.ReferencedObject, template clusterv1.ContractVersionedObjectReference) string {
	if object == nil || object.GetKind()+clusterv1.TemplateSuffix == template.Kind && object.GroupVersionKind().Group == template.APIGroup {
		return ""
	}
	return fmt.Sprintf("%s %s is of another kind than %s", object.GetKind(), object.GetName(), template.Kind)
}

// newRequest returns the question to an extension whether a machine can be updated in place. Infrastructure and bootstrap are as they
// are to be.
func newRequest(t machinetemplate.MachineTemplate, m *clusterv1.Machine, objects MachineObjects, infrastructure, bootstrap *unstructured.Unstructured) *hooksv1.CanUpdateMachineRequest {
	return &hooksv1.CanUpdateMachineRequest{
		Current: runtimehook.NewMachineObjects(m, unstructuredOf(objects.Infrastructure), unstructuredOf(objects.Bootstrap)),
		Desired: runtimehook.NewMachineObjects(t.Updated(m), infrastructure, bootstrap),
	}
}

// preview returns an object as an update in place would make it, without the mark of one, or why the API server does not allow that.
// Its defaults are in it, so that they are no changes.
func (r *ControlPlaneReconciler) preview(ctx context.Context, object *contract.ReferencedObject, t machinetemplate.MachineTemplate,
	template clusterv1.ContractVersionedObjectReference,
) (*unstructured.Unstructured, string, error) {
	if object == nil {
		return nil, "", nil
	}
	desired, err := r.machines.Preview(ctx, t, object, template)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return nil, printable.Line(err.Error()), nil
	}
	if err != nil {
		return nil, "", err
	}
	unstructured.RemoveNestedField(desired.Object, "metadata", "annotations", clusterv1.UpdateInProgressAnnotation)
	return desired, "", nil
}

func unstructuredOf(object *contract.ReferencedObject) *unstructured.Unstructured {
	if object == nil {
		return nil
	}
	return object.Unstructured
}

// replace deletes a machine that can't be updated in place. Where there are extensions, the reason is recorded.
func (r *ControlPlaneReconciler) replace(ctx context.Context, seen *planeSnapshot, m *clusterv1.Machine, reason string) error {
	hasExtensions, err := r.hasExtensions(ctx)
	if err != nil {
		return err
	}
	if hasExtensions {
		noted := m.DeepCopy()
		metav1.SetMetaDataAnnotation(&noted.ObjectMeta, ReplacedAnnotation, reason)
		rolloutrules.DropRequest(noted)
		if err := patch.WithLock(ctx, r.cached, noted, m); err != nil {
			return fmt.Errorf("record why Machine %s is replaced: %w", m.Name, err)
		}
		r.record(seen, noted, "Replaced", "Replaced, not updated in place: "+reason)
	}
	return replicas.Remove(ctx, r.scaler(seen), []string{m.Name}, seen.machines)
}
