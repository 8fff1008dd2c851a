package operator

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/operator/automatic"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
)

// decide decides on automatic updates by the next status, and returns that status with their condition. Until there is
// a current release, the condition stays.
func (r *reconciler) decide(ctx context.Context, version *configv1.ClusterVersion, next configv1.ClusterVersionStatus,
	observed clusterversion.Observation) (automatic.Decision, configv1.ClusterVersionStatus) {
	retrieved := observed.Retrieved
	if observed.Applied == nil || retrieved == nil {
		return automatic.Decision{}, next
	}
	decided := *version
	decided.Status = next
	decision := automatic.Decide(automatic.Input{
		Version: &decided, Now: observed.Now,
		IsAnswered: retrieved.Offer != nil && retrieved.Err == nil && !retrieved.IsPending && !retrieved.IsInherited,
		Tests:      r.machine.unpassedTests(),
		Preflight:  r.preflight,
	})
	before := r.toCheck
	if r.toCheck = nil; decision.Reason == automatic.RunningPreflight || decision.Reason == automatic.FailedPreflight {
		r.toCheck = &decision.Release
	}
	if decision.Reason == automatic.FailedPreflight {
		r.machine.events.write(ctx, clusterversion.Event{
			Reason: "AutomaticPreflightFailed", IsWarning: true, Message: decision.Message,
		})
	}
	r.changesAt = retrieved.OpensAt
	if r.toCheck != nil && (before == nil || before.Image != r.toCheck.Image) {
		r.changesAt = observed.Now // the next reconcile begins the preflight
	}
	if t := decision.ChangesAt; r.changesAt.IsZero() || !t.IsZero() && t.Before(r.changesAt) {
		r.changesAt = t
	}
	return decision, clusterversion.WithAutomaticUpdates(next, observed.Now, decision.IsHeld, decision.Reason,
		decision.Message)
}

// carryOut begins tests, or changes spec.desiredUpdate by a decision. It changes nothing if the ClusterVersion has
// changed since it was read: a person may have requested an update.
func (r *reconciler) carryOut(ctx context.Context, version *configv1.ClusterVersion,
	decision automatic.Decision) (ctrl.Result, error) {
	if decision.Action == automatic.Test {
		r.machine.beginTests()
		return ctrl.Result{RequeueAfter: writesEvery}, nil
	}
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(configv1.GroupVersion.WithKind(kinds.ClusterVersion.Kind))
	object.SetName(version.Name)
	object.SetResourceVersion(version.ResourceVersion)
	if decision.Action != automatic.Withdraw {
		object.Object["spec"] = map[string]any{"desiredUpdate": map[string]any{
			"version": decision.Release.Version, "image": decision.Release.Image,
		}}
	}
	resource, err := r.cluster.FindKind(ctx, kinds.ClusterVersion)
	if err != nil {
		return ctrl.Result{}, err
	}
	// Another manager may have set the same fields to nothing, beside risks that it accepts.
	options := metav1.ApplyOptions{FieldManager: automatic.FieldManager, Force: true}
	_, err = r.cluster.In(resource, "").Apply(ctx, version.Name, object, options)
	switch {
	case apierrors.IsConflict(err): // the newer version comes with the next event
		return ctrl.Result{RequeueAfter: writesEvery / 10}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("change the update that the operator requests: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("automatic update", "action", decision.Action, "message", decision.Message)
	switch decision.Action {
	case automatic.Take:
		r.machine.events.write(ctx, clusterversion.Event{Reason: "AutomaticUpdate", Message: decision.Message})
	case automatic.RollBack:
		r.machine.events.write(ctx,
			clusterversion.Event{Reason: "AutomaticRollback", IsWarning: true, Message: decision.Message})
	}
	return ctrl.Result{RequeueAfter: writesEvery}, nil
}
