package aggregate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An OwnerOfMachines is a MachineSet, a MachineDeployment or a control plane.
type OwnerOfMachines interface {
	client.Object
	GetConditions() []metav1.Condition
}

// A StatusWriter writes the status of owners of machines.
type StatusWriter struct {
	Client client.StatusClient
	Events events.EventRecorder
}

// Write writes the status of an owner if it has changed, and records an event of a problem whose message no condition
// had before. It returns the problem, for a retry.
func (w StatusWriter) Write(ctx context.Context, before, after OwnerOfMachines, message string, problem error) error {
	if equality.Semantic.DeepEqual(before, after) {
		return problem
	}
	reported := meta.FindStatusCondition(before.GetConditions(), clusterv1.ScalingUpCondition)
	if message != "" && (reported == nil || !strings.HasSuffix(reported.Message, message)) {
		w.Events.Eventf(before, nil, corev1.EventTypeWarning, "ReconcileError", "Reconcile", "%s", message)
	}
	// An owner whose finalizer was removed is gone.
	if err := w.Client.Status().Patch(ctx, after, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return errors.Join(problem, fmt.Errorf("write the status of %s: %w", before.GetName(), err))
	}
	return problem
}
