// Package owners contains the common parts of the owners of Cluster API's Machines: MachineSets, MachineDeployments and
// RunlevelControlPlanes. It has the conditions that summarize their machines (conditions.go), the condition UpToDate of
// a machine, the remediation of a machine that a health check has marked (remedy.go), and the writes by which an owner
// is claimed and its status is reported. Conditions have the types, reasons and messages of Cluster API's own
// controllers.
//
// The package decides neither the number of machines, nor which one is created or deleted: each controller does.
//
// Start with Summary.
package owners

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/patch"
)

// An Owner is a MachineSet, a MachineDeployment or a control plane.
type Owner interface {
	client.Object
	GetConditions() []metav1.Condition
	SetConditions([]metav1.Condition)
}

// Set sets conditions of an owner, which have been observed for its current generation.
func Set(owner Owner, conditions ...metav1.Condition) {
	all := owner.GetConditions()
	for _, condition := range conditions {
		condition.ObservedGeneration = owner.GetGeneration()
		meta.SetStatusCondition(&all, condition)
	}
	owner.SetConditions(all)
}

// A Writer writes owners of machines, and the conditions of their machines.
type Writer struct {
	Client client.Client
	Events events.EventRecorder
}

// WriteStatus writes the status of an owner if it has changed, and records an event for a message that was in no
// condition before. It returns the problem of the reconciliation, so that the queue retries.
func (w Writer) WriteStatus(ctx context.Context, before, after Owner, message string, problem error) error {
	if equality.Semantic.DeepEqual(before, after) {
		return problem
	}
	reported := meta.FindStatusCondition(before.GetConditions(), clusterv1.ScalingUpCondition)
	if message != "" && (reported == nil || !strings.HasSuffix(reported.Message, message)) {
		w.Events.Eventf(before, nil, corev1.EventTypeWarning, "ReconcileError", "Reconcile", "%s", message)
	}
	// An owner whose finalizer was removed no longer exists.
	if err := w.Client.Status().Patch(ctx, after, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return errors.Join(problem, fmt.Errorf("write the status of %s: %w", before.GetName(), err))
	}
	return problem
}

// Claim writes an owner with a finalizer and further changes of its metadata, unless nothing changes. The Cluster
// becomes an owner of the object; it is nil if the object has another owner.
func (w Writer) Claim(ctx context.Context, before, claimed Owner, finalizer string, cluster *clusterv1.Cluster) error {
	controllerutil.AddFinalizer(claimed, finalizer)
	if cluster != nil {
		owner := contract.ClusterOwner(cluster)
		isOwner := func(other metav1.OwnerReference) bool { return other.UID == owner.UID }
		if references := claimed.GetOwnerReferences(); !slices.ContainsFunc(references, isOwner) {
			claimed.SetOwnerReferences(append(references, owner))
		}
	}
	if equality.Semantic.DeepEqual(before, claimed) {
		return nil
	}
	if err := patch.WithLock(ctx, w.Client, claimed, before); err != nil {
		return fmt.Errorf("claim %s: %w", before.GetName(), err)
	}
	return nil
}

// SetReplicas writes spec.replicas of an owner that does not have it: the scale subresource, and autoscalers, read it
// from there.
func (w Writer) SetReplicas(ctx context.Context, before, changed Owner) error {
	if err := patch.WithLock(ctx, w.Client, changed, before); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("set spec.replicas of %s: %w", before.GetName(), err)
	}
	return nil
}

// SetUpToDate writes the condition UpToDate of a machine, and returns the machine with the condition. missing has the
// reasons why the machine is outdated. A machine that has changed meanwhile causes another reconciliation.
func (w Writer) SetUpToDate(ctx context.Context, machine *clusterv1.Machine, missing []string) (
	*clusterv1.Machine, error,
) {
	judged := machine.DeepCopy()
	meta.SetStatusCondition(&judged.Status.Conditions, UpToDate(machine, missing))
	if equality.Semantic.DeepEqual(machine.Status.Conditions, judged.Status.Conditions) {
		return machine, nil
	}
	err := patch.StatusWithLock(ctx, w.Client, judged, machine)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return judged, fmt.Errorf("write the status of Machine %s: %w", machine.Name, err)
	}
	return judged, nil
}
