package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/runlevel/runlevel/internal/machines/capi/machinetemplate"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// endPause is when to look again for the machines of a control plane whose Cluster is gone.
const endPause = 5 * time.Second

// changedPause is when to look again at a control plane that has changed before its next step.
const changedPause = time.Second

// claim adds the finalizer, and what connects the control plane with its Cluster.
func (r *ControlPlaneReconciler) claim(ctx context.Context, seen *planeSnapshot) error {
	claimed := seen.plane.DeepCopy()
	controllerutil.AddFinalizer(claimed, planeFinalizer)
	metav1.SetMetaDataLabel(&claimed.ObjectMeta, clusterv1.ClusterNameLabel, seen.cluster.Name)
	if owner := contract.ClusterOwner(seen.cluster); !slices.ContainsFunc(claimed.OwnerReferences,
		func(o metav1.OwnerReference) bool {
			return o.UID == owner.UID
		}) {
		// Cluster API's core decides whether it is the controller
		claimed.OwnerReferences = append(claimed.OwnerReferences, owner)
	}
	if seen.isRemediationOver() {
		delete(claimed.Annotations, remediationInProgressAnnotation)
	}
	if equality.Semantic.DeepEqual(seen.plane.ObjectMeta, claimed.ObjectMeta) {
		return nil
	}
	if err := patch.WithLock(ctx, r.cached, claimed, seen.plane); err != nil {
		return fmt.Errorf("claim RunlevelControlPlane %s: %w", seen.plane.Name, err)
	}
	seen.plane = claimed
	return nil
}

func (r *ControlPlaneReconciler) scaler(seen *planeSnapshot) replicas.Scaler {
	return replicas.Scaler{
		Client:   r.cached,
		Events:   r.recorder,
		Set:      seen.plane,
		Owner:    ownerOf(seen.plane),
		Requests: 1,
	}
}

// propagate updates the fields of machines that need no new machine.
func (r *ControlPlaneReconciler) propagate(ctx context.Context, seen *planeSnapshot) error {
	for name, m := range seen.machines {
		template := seen.template(m)
		if replicas.OwnerOf(m, seen.plane.UID) != replicas.Ours || template.IsCurrent(m) {
			continue
		}
		if err := r.machines.Propagate(ctx, template, m); err != nil {
			return fmt.Errorf("bring the template's changes to Machine %s: %w", name, err)
		}
	}
	return nil
}

// tidy removes annotations that are of no use any more: the request to the quorum guard, and its answer, of a machine
// that is not to be updated now, and why one is replaced that is not.
func (r *ControlPlaneReconciler) tidy(ctx context.Context, seen *planeSnapshot) error {
	for name, m := range seen.machines {
		isNext := seen.step.Machine == name && seen.step.Action != ""
		if isNext || m.DeletionTimestamp != nil || rolloutrules.IsUpdating(m) {
			continue
		}
		tidied := m.DeepCopy()
		rolloutrules.DropRequest(tidied)
		delete(tidied.Annotations, ReplacedAnnotation)
		if len(tidied.Annotations) == len(m.Annotations) {
			continue
		}
		if err := patch.WithLock(ctx, r.cached, tidied, m); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove annotations of Machine %s: %w", name, err)
		}
		seen.machines[name] = tidied
	}
	return nil
}

// execute adopts machines, replaces an unhealthy one, or else does the next step. A change causes another pass.
func (r *ControlPlaneReconciler) execute(ctx context.Context, seen *planeSnapshot) error {
	if len(seen.adopt) > 0 {
		return replicas.SettleOwnership(ctx, r.scaler(seen), replicas.ReplicaPlan{Adopt: seen.adopt}, seen.machines)
	}
	if seen.remedy != nil {
		return r.remediate(ctx, seen)
	}
	switch step := seen.step; step.Action {
	case CreateMachine:
		return r.create(ctx, seen)
	case DeleteMachine:
		if err := r.tryReplacement(ctx, seen, step.Machine); err != nil {
			return err
		}
		if isSame, err := r.readAgain(ctx, seen); err != nil || !isSame {
			return err
		}
		return r.remove(ctx, seen, step.Machine)
	case UpdateMachine, ContinueMachine:
		return planeUpdate{r, seen, seen.machines[step.Machine]}.do(ctx)
	}
	return nil
}

// create creates a machine, in the failure domain with the fewest. It is the replacement of an unhealthy machine if one
// was deleted.
func (r *ControlPlaneReconciler) create(ctx context.Context, seen *planeSnapshot) error {
	blank := &clusterv1.Machine{}
	blank.Spec.FailureDomain = failureDomainFor(seen.domains(), seen.facts())
	if data, ok := seen.plane.Annotations[remediationInProgressAnnotation]; ok {
		blank.Annotations = labels.Set{remediationForAnnotation: data}
	}
	template := seen.template(blank)
	if err := r.machines.DeleteLeftovers(ctx, template, seen.machines); err != nil {
		return err
	}
	return r.scaler(seen).Create(ctx, 1, func() (string, error) {
		name, err := newName(seen)
		if err != nil {
			return "", err
		}
		return name, r.machines.Create(ctx, template, name)
	})
}

// tryReplacement returns why the machine that would replace another can't be created: while that is so, the other one
// is not deleted. A machine that is not replaced needs no such check.
func (r *ControlPlaneReconciler) tryReplacement(ctx context.Context, seen *planeSnapshot, name string) error {
	if countStaying(seen.facts()) > seen.wanted() {
		return nil
	}
	replacement, err := newName(seen)
	if err == nil {
		err = r.machines.Try(ctx, seen.template(&clusterv1.Machine{}), replacement)
	}
	if err != nil {
		return fmt.Errorf("keep Machine %s, since its replacement can't be created: %w", name, err)
	}
	return nil
}

// readAgain reads a control plane once more, after an extension or the admission of a replacement may have taken its
// time, and reports whether the same is to be done. If so, the snapshot becomes the new one.
func (r *ControlPlaneReconciler) readAgain(ctx context.Context, seen *planeSnapshot) (bool, error) {
	now, err := r.read(ctx, r.live, client.ObjectKeyFromObject(seen.plane))
	if err != nil {
		return false, err
	}
	if now == nil || now.plane.Generation != seen.plane.Generation || now.step.Action != seen.step.Action ||
		now.step.Machine != seen.step.Machine ||
		now.remedy.replaced() != seen.remedy.replaced() {
		seen.lookAgain(changedPause)
		return false, nil
	}
	*seen = *now
	return true, nil
}

func (r *ControlPlaneReconciler) remove(ctx context.Context, seen *planeSnapshot, name string) error {
	return replicas.Remove(ctx, r.scaler(seen), []string{name}, seen.machines)
}

// newName returns a name for a new machine.
func newName(seen *planeSnapshot) (string, error) {
	return machinetemplate.NewName(seen.plane.Spec.MachineNaming.Template, seen.cluster.Name, "controlPlane",
		seen.plane.Name)
}

// end deletes the machines of a control plane that is being deleted, after the workers of the cluster are gone, and
// then lets the control plane go.
func (r *ControlPlaneReconciler) end(ctx context.Context, seen *planeSnapshot) error {
	if seen.cluster == nil { // by which events of machines lead to the control plane
		seen.lookAgain(endPause)
	}
	switch {
	case seen.workers > 0:
		return nil
	case len(seen.machines) == 0:
		return client.IgnoreNotFound(patch.RemoveFinalizer(ctx, r.cached, seen.plane, planeFinalizer))
	}
	var names []string
	for name, m := range seen.machines {
		if m.DeletionTimestamp == nil {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return replicas.Remove(ctx, r.scaler(seen), names, seen.machines)
}

// record records an event of a machine, and of its control plane.
func (r *ControlPlaneReconciler) record(seen *planeSnapshot, m *clusterv1.Machine, reason, message string) {
	r.recorder.Eventf(m, seen.plane, corev1.EventTypeNormal, reason, "UpdateInPlace", "%s", message)
}
