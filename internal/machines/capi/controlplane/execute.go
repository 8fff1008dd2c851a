package controlplane

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/machinetemplate"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// endPause is the time until the next look at the machines of a control plane whose Cluster was deleted.
const endPause = 5 * time.Second

// changedPause is the time until the next look at a control plane that has changed before its next step.
const changedPause = time.Second

// claim adds the finalizer, the label of the Cluster, and the Cluster as an owner. Cluster API's core decides whether
// the Cluster is the controller.
func (r *Reconciler) claim(ctx context.Context, s *Snapshot) error {
	claimed := s.plane.DeepCopy()
	metav1.SetMetaDataLabel(&claimed.ObjectMeta, clusterv1.ClusterNameLabel, s.cluster.Name)
	if s.isRemediationOver() {
		delete(claimed.Annotations, remediationInProgressAnnotation)
	}
	if err := r.Claim(ctx, s.plane, claimed, planeFinalizer, s.cluster); err != nil {
		return err
	}
	s.plane = claimed
	return nil
}

func (r *Reconciler) scaler(s *Snapshot) replicas.Scaler {
	return replicas.Scaler{Client: r.Client, Events: r.Events, Set: s.plane, Owner: ownerOf(s.plane), Requests: 1}
}

// judge writes the condition UpToDate of each machine whose objects are known. The status is computed from these
// conditions.
func (r *Reconciler) judge(ctx context.Context, s *Snapshot) error {
	for _, m := range s.Members() {
		if _, isRead := s.objects[m.Name]; !isRead {
			continue
		}
		judged, err := r.SetUpToDate(ctx, m, s.outdated[m.Name])
		s.machines[m.Name] = judged
		if err != nil {
			return err
		}
	}
	return nil
}

// propagate updates the fields of machines that can change without a new machine.
func (r *Reconciler) propagate(ctx context.Context, s *Snapshot) error {
	for name, m := range s.machines {
		template := s.template(m)
		if replicas.OwnerOf(m, s.plane.UID) != replicas.Ours || template.IsCurrent(m) {
			continue
		}
		if err := r.machines.Propagate(ctx, template, m); err != nil {
			return fmt.Errorf("update Machine %s from the template: %w", name, err)
		}
	}
	return nil
}

// removeStaleAnnotations removes annotations that no longer apply: the request to the quorum guard and its answer from
// machines that are not updated now, and the reason for a replacement from machines that are not replaced.
func (r *Reconciler) removeStaleAnnotations(ctx context.Context, s *Snapshot) error {
	for name, m := range s.machines {
		isNext := s.step.Machine == name && s.step.Action != ""
		if isNext || m.DeletionTimestamp != nil || rolloutrules.IsUpdating(m) {
			continue
		}
		tidied := m.DeepCopy()
		rolloutrules.DropRequest(tidied)
		delete(tidied.Annotations, annotation.ReplacedBecause)
		if len(tidied.Annotations) == len(m.Annotations) {
			continue
		}
		if err := patch.WithLock(ctx, r.Client, tidied, m); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove annotations of Machine %s: %w", name, err)
		}
		s.machines[name] = tidied
	}
	return nil
}

// execute adopts machines, replaces an unhealthy one, or else does the next step. A change causes another
// reconciliation.
func (r *Reconciler) execute(ctx context.Context, s *Snapshot) error {
	if len(s.adopt) > 0 {
		return replicas.SettleOwnership(ctx, r.scaler(s), replicas.Plan{Adopt: s.adopt}, s.machines)
	}
	if s.remedy != nil {
		return r.remediate(ctx, s)
	}
	switch step := s.step; step.Action {
	case CreateMachine:
		return r.create(ctx, s)
	case DeleteMachine:
		if err := r.tryReplacement(ctx, s, step.Machine); err != nil {
			return err
		}
		if isSame, err := r.readAgain(ctx, s); err != nil || !isSame {
			return err
		}
		return r.remove(ctx, s, step.Machine)
	case UpdateMachine, ContinueMachine:
		return inPlaceUpdate{r, s, s.machines[step.Machine]}.do(ctx)
	}
	return nil
}

// create creates a machine, in the failure domain with the fewest machines. If an unhealthy machine was deleted, the
// new one is its replacement.
func (r *Reconciler) create(ctx context.Context, s *Snapshot) error {
	blank := &clusterv1.Machine{}
	blank.Spec.FailureDomain = s.FailureDomain(s.Machines())
	if data, ok := s.plane.Annotations[remediationInProgressAnnotation]; ok {
		blank.Annotations = labels.Set{remediationForAnnotation: data}
	}
	template := s.template(blank)
	if err := r.machines.DeleteLeftovers(ctx, template, s.machines); err != nil {
		return err
	}
	return r.scaler(s).Create(ctx, 1, func() (string, error) {
		name, err := newName(s)
		if err != nil {
			return "", err
		}
		return name, r.machines.Create(ctx, template, name)
	})
}

// tryReplacement returns an error if the replacement of a machine can't be created. The machine is kept as long as it
// fails. A surplus machine has no replacement, and is not checked.
func (r *Reconciler) tryReplacement(ctx context.Context, s *Snapshot, name string) error {
	if countStaying(s.Machines()) > s.wanted() {
		return nil
	}
	replacement, err := newName(s)
	if err == nil {
		err = r.machines.Try(ctx, s.template(&clusterv1.Machine{}), replacement)
	}
	if err != nil {
		return fmt.Errorf("keep Machine %s, since its replacement can't be created: %w", name, err)
	}
	return nil
}

// readAgain reads a control plane once more, since calls of an extension and the admission of a replacement take time.
// readAgain reports whether the next step is still the same, and updates the snapshot if so.
func (r *Reconciler) readAgain(ctx context.Context, s *Snapshot) (bool, error) {
	now, err := r.read(ctx, r.machines.Live, client.ObjectKeyFromObject(s.plane))
	if err != nil {
		return false, err
	}
	if now == nil || now.plane.Generation != s.plane.Generation || now.step.Action != s.step.Action ||
		now.step.Machine != s.step.Machine ||
		now.remedy.machineToReplace() != s.remedy.machineToReplace() {
		s.lookAgain(changedPause)
		return false, nil
	}
	*s = *now
	return true, nil
}

func (r *Reconciler) remove(ctx context.Context, s *Snapshot, name string) error {
	return replicas.Remove(ctx, r.scaler(s), []string{name}, s.machines)
}

// newName returns a name for a new machine.
func newName(s *Snapshot) (string, error) {
	return machinetemplate.NewName(s.plane.Spec.MachineNaming.Template, s.cluster.Name, "controlPlane", s.plane.Name)
}

// end deletes the machines of a control plane, once the workers of the cluster are deleted. Then it removes the
// finalizer.
func (r *Reconciler) end(ctx context.Context, s *Snapshot) error {
	if s.cluster == nil { // without a cluster, events of machines do not reach the control plane
		s.lookAgain(endPause)
	}
	switch {
	case s.workers > 0:
		return nil
	case len(s.machines) == 0:
		return client.IgnoreNotFound(patch.RemoveFinalizer(ctx, r.Client, s.plane, planeFinalizer))
	}
	return replicas.Remove(ctx, r.scaler(s), slices.Collect(maps.Keys(s.machines)), s.machines)
}

// record records an event of a machine, and of its control plane.
func (r *Reconciler) record(s *Snapshot, m *clusterv1.Machine, reason, message string) {
	r.Events.Eventf(m, s.plane, corev1.EventTypeNormal, reason, "UpdateInPlace", "%s", message)
}
