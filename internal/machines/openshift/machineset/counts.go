package machineset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// A readiness is the condition Ready of a node.
type readiness struct {
	isReady bool
	since   time.Time
}

// A member contains the facts about a machine that the status counts.
type member struct {
	isFullyLabeled bool // has all labels of the template
	node           readiness
}

// count sets the counts of a status. A ready machine is available once it was ready for minReady; after is when the
// next one becomes available, or zero.
func count(status *machinev1beta1.MachineSetStatus, members []member, minReady time.Duration,
	now time.Time) (after time.Duration) {
	status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas = int32(len(members)),
		0, 0, 0
	for _, m := range members {
		if m.isFullyLabeled {
			status.FullyLabeledReplicas++
		}
		if !m.node.isReady {
			continue
		}
		status.ReadyReplicas++
		switch remaining := m.node.since.Add(minReady).Sub(now); {
		case minReady == 0, remaining <= 0 && !m.node.since.IsZero():
			status.AvailableReplicas++
		case !m.node.since.IsZero() && (after == 0 || remaining < after):
			after = remaining
		}
	}
	return after
}

// report writes the status, and records an event of a problem that was not reported before.
func (r *reconciler) report(ctx context.Context, seen *setSnapshot, problem error) (ctrl.Result, error) {
	members, err := r.members(ctx, seen)
	if err != nil {
		return ctrl.Result{}, err
	}
	changed := seen.set.DeepCopy()
	after := setStatus(&changed.Status, seen, members, problem, r.now())
	if message := ptr.Deref(changed.Status.ErrorMessage, ""); message != "" &&
		message != ptr.Deref(seen.set.Status.ErrorMessage, "") {
		r.recorder.Eventf(seen.set, nil, corev1.EventTypeWarning, "ReconcileError", "Reconcile", "%s", message)
	}
	if !equality.Semantic.DeepEqual(seen.set.Status, changed.Status) {
		if err := r.cached.Status().Patch(ctx, changed, client.MergeFrom(seen.set)); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("write the status of MachineSet %s: %w", seen.set.Name, err)
		}
	}
	if seen.invalid == "" {
		problem = errors.Join(problem, r.publishSelector(ctx, changed))
	}
	return ctrl.Result{RequeueAfter: after}, problem
}

// members returns the replicas of the snapshot, with the current state of their nodes.
func (r *reconciler) members(ctx context.Context, seen *setSnapshot) ([]member, error) {
	template := labels.Set(seen.set.Spec.Template.Labels).AsSelectorPreValidated()
	var members []member
	for _, replica := range seen.replicas {
		if !isCounted(replica) {
			continue
		}
		machine := seen.machines[replica.Name]
		m := member{isFullyLabeled: template.Matches(labels.Set(machine.Labels))}
		if name := enqueue.NodeName(machine); name != "" {
			var node corev1.Node
			err := r.cached.Get(ctx, client.ObjectKey{Name: name}, &node, client.UnsafeDisableDeepCopy)
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("read node %s: %w", name, err)
			}
			m.node = readinessOf(&node)
		}
		members = append(members, m)
	}
	return members, nil
}

// setStatus sets the status of a set. An invalid set keeps its counts, since its machines are not known.
func setStatus(status *machinev1beta1.MachineSetStatus, seen *setSnapshot, members []member, problem error,
	now time.Time) (after time.Duration) {
	status.ObservedGeneration, status.ErrorReason, status.ErrorMessage = seen.set.Generation, nil, nil
	if seen.invalid != "" {
		status.ErrorReason, status.ErrorMessage = ptr.To(machinev1beta1.InvalidConfigurationMachineSetError),
			&seen.invalid
		return 0
	}
	if message := messageOf(problem); message != "" {
		status.ErrorMessage = &message
	}
	return count(status, members, time.Duration(seen.set.Spec.MinReadySeconds)*time.Second, now)
}

// messageOf returns the message of a problem, in the same words each time, though a refused machine gets another name
// with each request.
func messageOf(problem error) string {
	message := replicas.MessageOf(problem)
	var refused *apierrors.StatusError
	if errors.As(problem, &refused) && refused.ErrStatus.Details != nil && refused.ErrStatus.Details.Name != "" {
		message = strings.ReplaceAll(message, fmt.Sprintf("%q ", refused.ErrStatus.Details.Name), "")
	}
	return message
}

func readinessOf(node *corev1.Node) readiness {
	ready := conditions.NodeReady(node)
	return readiness{isReady: ready.Status == corev1.ConditionTrue, since: ready.LastTransitionTime.Time}
}

// publishSelector writes the selector of a set into status.labelSelector, which its scale subresource uses, if it is
// missing there. The module's type has no such field, so neither has the cached set: the field is read from the API
// server, once for each version of the set.
func (r *reconciler) publishSelector(ctx context.Context, set *machinev1beta1.MachineSet) error {
	if seen, _ := r.published.Load(client.ObjectKeyFromObject(set)); seen == set.ResourceVersion {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
	if err != nil {
		return fmt.Errorf("read the selector of MachineSet %s: %w", set.Name, err)
	}
	sets := unstructured.UnstructuredList{}
	sets.SetGroupVersionKind(machinev1beta1.SchemeGroupVersion.WithKind("MachineSetList"))
	named := client.MatchingFields{metav1.ObjectNameField: set.Name}
	if err := r.live.List(ctx, &sets, client.InNamespace(set.Namespace), named); err != nil {
		return fmt.Errorf("read the status of MachineSet %s: %w", set.Name, err)
	}
	if len(sets.Items) == 0 {
		return nil // it was deleted meanwhile
	}
	live := &sets.Items[0]
	if written, _, _ := unstructured.NestedString(live.Object, "status",
		"labelSelector"); written != selector.String() {
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"labelSelector": selector.String()}})
		if err != nil {
			return err
		}
		if err := r.cached.Status().Patch(ctx, live, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return client.IgnoreNotFound(fmt.Errorf("write the selector of MachineSet %s: %w", set.Name, err))
		}
	}
	r.published.Store(client.ObjectKeyFromObject(set), live.GetResourceVersion())
	return nil
}
