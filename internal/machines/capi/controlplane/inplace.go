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
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/text/printable"
)

const (
	// maxOfReason is the longest reason in bytes: an event has one, and a condition those of several machines.
	maxOfReason = 900
	// permissionPause is the interval at which the answer of the quorum guard is read, if no change is observed before.
	permissionPause = 30 * time.Second
)

// kubeadmConfig is the kind of Cluster API's bootstrap configs.
var kubeadmConfig = schema.GroupKind{Group: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig"}

// An inPlaceUpdate is the step that updates a machine in place, or replaces it.
type inPlaceUpdate struct {
	r *Reconciler
	s *Snapshot
	m *clusterv1.Machine
}

// do updates the machine in place if an extension can do all changes. Otherwise it deletes the machine, which is
// replaced. After an error of the extension it does neither: a replaced machine could not be restored.
//
// The order of the writes is that of Cluster API: the mark on the Machine, its objects, then the Machine with the
// pending hook. If the controller stops in between, the next reconciliation asks the extension again, since the
// template may have changed.
func (u inPlaceUpdate) do(ctx context.Context) error {
	if now := u.r.now(); rolloutrules.IsRequested(u.m, now) && !rolloutrules.IsPermitted(u.m, now) {
		return u.awaitPermission(ctx)
	}
	reason, err := u.replacementReason(ctx)
	if err != nil {
		return fmt.Errorf("decide whether Machine %s can be updated in place: %w", u.m.Name, err)
	}
	if reason != "" {
		if err := u.r.tryReplacement(ctx, u.s, u.m.Name); err != nil {
			return err
		}
	}
	if isSame, err := u.r.readAgain(ctx, u.s); err != nil || !isSame {
		return err
	}
	u.m = u.s.machines[u.m.Name]
	switch {
	case reason != "":
		return u.replace(ctx, reason)
	case !rolloutrules.IsPermitted(u.m, u.r.now()):
		return u.awaitPermission(ctx)
	}
	return u.begin(ctx)
}

// begin begins the update.
func (u inPlaceUpdate) begin(ctx context.Context) error {
	m := u.m
	if !rolloutrules.IsUpdating(m) {
		marked := m.DeepCopy()
		metav1.SetMetaDataAnnotation(&marked.ObjectMeta, clusterv1.UpdateInProgressAnnotation, "")
		delete(marked.Annotations, annotation.ReplacedBecause)
		if err := patch.WithLock(ctx, u.r.Client, marked, m); err != nil {
			return fmt.Errorf("begin the update in place of Machine %s: %w", m.Name, err)
		}
		m = marked
	}
	begun, err := u.r.machines.BeginUpdate(ctx, u.s.template(m), m)
	if err != nil {
		return fmt.Errorf("begin the update in place: %w", err)
	}
	u.r.record(u.s, begun, "SuccessfulStartInPlaceUpdate", "Machine starting in-place update")
	return nil
}

// awaitPermission asks the quorum guard for permission, unless a recent request exists, and reports the wait for its
// answer.
func (u inPlaceUpdate) awaitPermission(ctx context.Context) error {
	waits := fmt.Sprintf("Machine %s waits for the etcd quorum guard to permit its update in place", u.m.Name)
	if reason := u.m.Annotations[annotation.UpdateHeld]; reason != "" {
		waits += ": " + printable.Truncate(printable.Line(reason), maxOfReason)
	}
	u.s.step.Waits = []string{waits}
	u.s.lookAgain(permissionPause)
	now := u.r.now()
	if rolloutrules.IsRequested(u.m, now) {
		return nil
	}
	asked := u.m.DeepCopy()
	rolloutrules.Request(asked, now)
	if err := patch.WithLock(ctx, u.r.Client, asked, u.m); err != nil {
		return fmt.Errorf("ask the quorum guard about Machine %s: %w", u.m.Name, err)
	}
	return nil
}

// replacementReason returns why the machine can't be updated in place. It is empty if the extension can do all changes.
func (u inPlaceUpdate) replacementReason(ctx context.Context) (string, error) {
	if reason := u.s.RuledOut(u.m); reason != "" {
		return reason, nil
	}
	objects, template := u.s.objects[u.m.Name], u.s.plane.Spec.MachineTemplate.Spec
	infrastructure, reason, err := u.preview(ctx, objects.Infrastructure, template.InfrastructureRef)
	if reason != "" || err != nil {
		return reason, err
	}
	bootstrap, reason, err := u.preview(ctx, objects.Bootstrap, template.Bootstrap.ConfigRef)
	if reason != "" || err != nil {
		return reason, err
	}
	decision, err := u.r.hooks.CanUpdateMachine(ctx, u.s.Request(u.m, infrastructure, bootstrap))
	if err != nil || decision.CanUpdate {
		return "", err
	}
	return strings.Join(decision.Reasons, "; "), nil
}

// preview returns an object with the changes of the update, but without its mark, or the reason why the API server
// refuses the changes for any user. The object has the defaults of the API server, so that defaults do not count as
// changes.
func (u inPlaceUpdate) preview(ctx context.Context, object *contract.Object,
	template contract.Reference) (*unstructured.Unstructured, string, error) {
	if object == nil {
		return nil, "", nil
	}
	desired, err := u.r.machines.Preview(ctx, u.s.template(u.m), object, template)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && !patch.IsLackOfRights(err) {
		return nil, printable.Line(err.Error()), nil
	}
	if err != nil {
		return nil, "", err
	}
	unstructured.RemoveNestedField(desired.Object, "metadata", "annotations", clusterv1.UpdateInProgressAnnotation)
	return desired, "", nil
}

// replace deletes a machine that can't be updated in place. Where there are extensions, the reason is recorded.
func (u inPlaceUpdate) replace(ctx context.Context, reason string) error {
	reason = printable.Truncate(reason, maxOfReason)
	var extensions runtimev1.ExtensionConfigList
	if err := u.r.hooks.Registry.Configs.List(ctx, &extensions); err != nil {
		return err
	}
	if len(extensions.Items) > 0 {
		noted := u.m.DeepCopy()
		metav1.SetMetaDataAnnotation(&noted.ObjectMeta, annotation.ReplacedBecause, reason)
		rolloutrules.DropRequest(noted)
		if err := patch.WithLock(ctx, u.r.Client, noted, u.m); err != nil {
			return fmt.Errorf("record why Machine %s is replaced: %w", u.m.Name, err)
		}
		u.s.machines[u.m.Name] = noted
		u.r.record(u.s, noted, "Replaced", "Replaced, not updated in place: "+reason)
	}
	return u.r.remove(ctx, u.s, u.m.Name)
}

// RuledOut returns why a machine can't be updated in place, whatever an extension answers. It is empty if an extension
// must be called.
func (s *Snapshot) RuledOut(m *clusterv1.Machine) string {
	config, objects, t := m.Spec.Bootstrap.ConfigRef, s.objects[m.Name], s.plane.Spec.MachineTemplate.Spec
	switch {
	case objects.Infrastructure == nil:
		return fmt.Sprintf("%s %s does not exist", m.Spec.InfrastructureRef.Kind, m.Spec.InfrastructureRef.Name)
	case config.IsDefined() != t.Bootstrap.ConfigRef.IsDefined():
		return "spec.machineTemplate.spec.bootstrap.configRef is added or removed"
	case config.IsDefined() && objects.Bootstrap == nil:
		return fmt.Sprintf("%s %s does not exist", config.Kind, config.Name)
	}
	return cmp.Or(ofAnotherKind(objects.Infrastructure, t.InfrastructureRef),
		ofAnotherKind(objects.Bootstrap, t.Bootstrap.ConfigRef))
}

func ofAnotherKind(object *contract.Object, template contract.Reference) string {
	if object == nil || object.GetKind()+
		clusterv1.TemplateSuffix == template.Kind && object.GroupVersionKind().Group == template.APIGroup {
		return ""
	}
	return fmt.Sprintf("%s %s is of another kind than %s", object.GetKind(), object.GetName(), template.Kind)
}

// Request returns the question to an extension whether a machine can be updated in place. Infrastructure and bootstrap
// are the wanted ones. As in Cluster API, their current state has the labels and annotations of the wanted one: these
// need no update.
func (s *Snapshot) Request(m *clusterv1.Machine, infrastructure, bootstrap *unstructured.Unstructured,
) *hooksv1.CanUpdateMachineRequest {
	objects := s.objects[m.Name]
	return &hooksv1.CanUpdateMachineRequest{
		Current: runtimehook.NewMachineObjects(m,
			withMetadataOf(unstructuredOf(objects.Infrastructure), infrastructure),
			withMetadataOf(withoutDiscovery(unstructuredOf(objects.Bootstrap)), bootstrap)),
		Desired: runtimehook.NewMachineObjects(s.template(m).Updated(m), infrastructure, withoutDiscovery(bootstrap)),
	}
}

// withMetadataOf returns an object with the labels and annotations of another one.
func withMetadataOf(object, other *unstructured.Unstructured) *unstructured.Unstructured {
	if object == nil || other == nil {
		return object
	}
	object = object.DeepCopy()
	object.SetLabels(other.GetLabels())
	object.SetAnnotations(other.GetAnnotations())
	return object
}

// withoutDiscovery returns a bootstrap config without the fields that kubeadm needs to join a cluster: they contain a
// token, and a joined machine does not need them. A KubeadmControlPlane does not send them to extensions either.
func withoutDiscovery(bootstrap *unstructured.Unstructured) *unstructured.Unstructured {
	if bootstrap == nil || bootstrap.GroupVersionKind().GroupKind() != kubeadmConfig {
		return bootstrap
	}
	bootstrap = bootstrap.DeepCopy()
	unstructured.RemoveNestedField(bootstrap.Object, "spec", "joinConfiguration", "discovery")
	return bootstrap
}

func unstructuredOf(object *contract.Object) *unstructured.Unstructured {
	if object == nil {
		return nil
	}
	return object.Unstructured
}
