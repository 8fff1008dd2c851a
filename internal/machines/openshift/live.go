package openshift

import (
	"context"
	"errors"
	"fmt"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/machines/machineevents"
	"github.com/runlevel/runlevel/internal/machines/patch"
)

// The annotation of a machine that failed.
const (
	instanceStateAnnotation = "machine.openshift.io/instance-state"
	unknownInstanceState    = "Unknown"
)

// reconcileLive creates the infrastructure of a machine, and reports the progress.
func (r *reconciler) reconcileLive(ctx context.Context, m *machinev1beta1.Machine) (ctrl.Result, error) {
	// The finalizer comes first: a machine must not be removed before its infrastructure.
	if err := patch.AddFinalizer(ctx, r.client, m, machinev1beta1.MachineFinalizer); err != nil {
		return ctrl.Result{}, err
	}
	if m.Spec.ProviderSpec.Value == nil {
		r.events.Record(m, machineevents.Event{
			Type: corev1.EventTypeWarning, Reason: "FailedValidate", Action: "Validate",
			Note: fmt.Sprintf("%s: machine validation failed: spec.providerSpec.value must be set", m.Name),
		})
		status := *m.Status.DeepCopy()
		hookConditions(m, &status, r.options.Now())
		return ctrl.Result{}, r.writeStatus(ctx, m, status)
	}
	observed := observation{}
	if ptr.Deref(m.Status.Phase, "") != machinev1beta1.PhaseFailed {
		observed = r.observe(ctx, m)
	}
	if err := r.writeProviderID(ctx, m, observed.instance); err != nil {
		return ctrl.Result{}, err
	}
	next := liveStatus(m, observed, r.options.Now())
	if ptr.Deref(next.Phase, "") == machinev1beta1.PhaseFailed {
		if err := r.markFailed(ctx, m); err != nil {
			return ctrl.Result{}, err
		}
		next = liveStatus(m, observed, r.options.Now())
	}
	if err := r.writeStatus(ctx, m, next); err != nil {
		return ctrl.Result{}, err
	}
	return r.afterObservation(m, observed)
}

// observe reads the infrastructure of a machine, and creates it if it was never provisioned.
func (r *reconciler) observe(ctx context.Context, m *machinev1beta1.Machine) observation {
	wanted, err := machineForInfra(m)
	var instance infra.Instance
	if err == nil {
		instance, err = r.infrastructure.Get(ctx, wanted)
	}
	if err == nil && !instance.Exists && !isProvisioned(m) {
		instance, err = r.infrastructure.Create(ctx, wanted)
	}
	if isProvisioned(m) {
		countFailure(failedUpdates, m, err)
	} else {
		countFailure(failedCreates, m, err)
	}
	return observation{instance: instance, err: err}
}

// afterObservation returns when to reconcile again. Infrastructure without a problem is watched.
func (r *reconciler) afterObservation(m *machinev1beta1.Machine, observed observation) (ctrl.Result, error) {
	var retry *infra.RetryError
	var invalid *infra.InvalidError
	switch {
	case errors.As(observed.err, &retry):
		return ctrl.Result{RequeueAfter: r.bounded(retry.After)}, nil
	case errors.As(observed.err, &invalid) && !isProvisioned(m):
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, observed.err
}

// writeProviderID writes the ID of the instance into the Machine.
func (r *reconciler) writeProviderID(ctx context.Context, m *machinev1beta1.Machine,
	instance infra.Instance) error {
	if !instance.IsProvisioned || ptr.Deref(m.Spec.ProviderID, "") == instance.ProviderID {
		return nil
	}
	base := m.DeepCopy()
	m.Spec.ProviderID = &instance.ProviderID
	if err := r.client.Patch(ctx, m, client.MergeFrom(base)); err != nil {
		return fmt.Errorf("write the providerID of the Machine: %w", err)
	}
	return nil
}

// markFailed sets the annotation of a failed machine: the state of its instance is unknown.
func (r *reconciler) markFailed(ctx context.Context, m *machinev1beta1.Machine) error {
	if m.Annotations[instanceStateAnnotation] == unknownInstanceState {
		return nil
	}
	base := m.DeepCopy()
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, instanceStateAnnotation, unknownInstanceState)
	if err := r.client.Patch(ctx, m, client.MergeFrom(base)); err != nil {
		return fmt.Errorf("annotate the failed Machine: %w", err)
	}
	return nil
}
