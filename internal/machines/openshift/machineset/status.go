package machineset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// A readiness is the condition Ready of a node.
type readiness struct {
	isReady bool
	since   time.Time
}

// A member is what the status counts of a machine.
type member struct {
	isFullyLabeled bool // has all labels of the template
	node           readiness
}

// A tally is how many machines a set has.
type tally struct {
	replicas, fullyLabeled, ready, available int32
	// after is when the next machine becomes available; zero if there is none.
	after time.Duration
}

// count counts members; a ready machine is available once it was ready for minReady.
func count(members []member, minReady time.Duration, now time.Time) tally {
	result := tally{replicas: int32(len(members))}
	for _, m := range members {
		if m.isFullyLabeled {
			result.fullyLabeled++
		}
		if !m.node.isReady {
			continue
		}
		result.ready++
		switch left := m.node.since.Add(minReady).Sub(now); {
		case minReady == 0, left <= 0 && !m.node.since.IsZero():
			result.available++
		case !m.node.since.IsZero() && (result.after == 0 || left < result.after):
			result.after = left
		}
	}
	return result
}

// report writes the status, and records an event of a problem that was not reported before.
func (r *MachineSetReconciler) report(ctx context.Context, seen *setSnapshot, problem error) (ctrl.Result, error) {
	counted, err := r.tallyOf(ctx, seen)
	if err != nil {
		return ctrl.Result{}, err
	}
	changed := seen.set.DeepCopy()
	changed.Status = newStatus(seen, counted, problem)
	if message := ptr.Deref(changed.Status.ErrorMessage, ""); message != "" && message != ptr.Deref(seen.set.Status.ErrorMessage, "") {
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
	return ctrl.Result{RequeueAfter: counted.after}, problem
}

// tallyOf counts the machines of the snapshot, by the current state of their nodes.
func (r *MachineSetReconciler) tallyOf(ctx context.Context, seen *setSnapshot) (tally, error) {
	template := labels.Set(seen.set.Spec.Template.Labels).AsSelectorPreValidated()
	var members []member
	for _, replica := range seen.replicas {
		if !replica.isCounted() {
			continue
		}
		machine := seen.machines[replica.Name]
		m := member{isFullyLabeled: template.Matches(labels.Set(machine.Labels))}
		if name := enqueue.NodeName(machine); name != "" {
			var node corev1.Node
			err := r.cached.Get(ctx, client.ObjectKey{Name: name}, &node, client.UnsafeDisableDeepCopy)
			if client.IgnoreNotFound(err) != nil {
				return tally{}, fmt.Errorf("read node %s: %w", name, err)
			}
			m.node = readinessOf(&node)
		}
		members = append(members, m)
	}
	return count(members, time.Duration(seen.set.Spec.MinReadySeconds)*time.Second, r.now()), nil
}

// newStatus returns the status of a set. An invalid set keeps its counts, since its machines are not known.
func newStatus(seen *setSnapshot, counted tally, problem error) machinev1beta1.MachineSetStatus {
	status := *seen.set.Status.DeepCopy()
	status.ObservedGeneration = seen.set.Generation
	status.ErrorReason, status.ErrorMessage = nil, nil
	if seen.invalid != "" {
		status.ErrorReason = ptr.To(machinev1beta1.InvalidConfigurationMachineSetError)
		status.ErrorMessage = ptr.To(seen.invalid)
		return status
	}
	if message := messageOf(problem); message != "" {
		status.ErrorMessage = ptr.To(message)
	}
	status.Replicas, status.FullyLabeledReplicas = counted.replicas, counted.fullyLabeled
	status.ReadyReplicas, status.AvailableReplicas = counted.ready, counted.available
	return status
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
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return readiness{isReady: condition.Status == corev1.ConditionTrue, since: condition.LastTransitionTime.Time}
		}
	}
	return readiness{}
}
