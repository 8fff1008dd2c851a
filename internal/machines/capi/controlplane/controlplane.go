// Package controlplane creates, replaces and updates the machines of a control plane of Cluster API, by a
// RunlevelControlPlane: one after the other, and only while the others are available. It works with any provider of
// infrastructure and of bootstrap configs, and keeps Cluster API's contract of control planes. Members of etcd are the
// quorum guard's: its hook holds a deletion until a replacement votes, and it permits each update in place.
//
// Decisions are pure: step.go has the next step, uptodate.go why a machine is outdated, remediate.go which unhealthy
// machine is replaced, and conditions.go the status. It does not drain, delete or update a machine: the controller of
// Machines does.
//
// Start with SetupWithManager.
package controlplane

import (
	"cmp"
	"context"
	"errors"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/capi/machinetemplate"
	"github.com/runlevel/runlevel/internal/machines/capi/owners"
	"github.com/runlevel/runlevel/internal/machines/queue"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
)

// concurrency limits how many control planes are reconciled at once: a hanging extension delays only its own.
const concurrency = 10

const (
	// planeFinalizer holds a control plane until its machines are deleted.
	planeFinalizer = "runlevelcontrolplane.controlplane.runlevel.dev"

	fieldManager = client.FieldOwner("runlevel-controlplane")
)

// A Reconciler reconciles RunlevelControlPlanes.
type Reconciler struct {
	owners.Writer // its client reads from the cache
	machines      machinetemplate.Writer
	hooks         *runtimehook.InPlaceHooks
	now           func() time.Time
}

// SetupWithManager adds the controller of RunlevelControlPlanes to a manager.
func SetupWithManager(manager ctrl.Manager, hooks *runtimehook.InPlaceHooks) error {
	r := &Reconciler{
		Writer: owners.Writer{
			Client: manager.GetClient(),
			Events: manager.GetEventRecorder("controlplane-controller"),
		},
		machines: machinetemplate.NewWriter(manager, fieldManager),
		hooks:    hooks,
		now:      time.Now,
	}
	return ctrl.NewControllerManagedBy(manager).
		Named("runlevelcontrolplane").
		WithOptions(queue.Backoff(concurrency, queue.RetrySoon)).
		For(&v1alpha1.RunlevelControlPlane{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{},
			predicate.LabelChangedPredicate{},
		))). // its own writes of the status would defeat the backoff
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.planesOfMachine)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.planesOfCluster)).
		Complete(r)
}

// Reconcile does the next step of a control plane, and writes its status.
//
// The cache may lag behind the last writes of this controller, or of another instance. So the cache only decides
// whether a read from the API server is necessary, and the step is decided from that read.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s, err := r.read(ctx, r.Client, request.NamespacedName)
	if err == nil && s != nil && s.hasWork() {
		s, err = r.read(ctx, r.machines.Live, request.NamespacedName)
	}
	switch {
	case err != nil || s == nil:
		return ctrl.Result{}, err
	case s.IsPaused():
		return ctrl.Result{}, r.report(ctx, s, nil)
	case s.plane.DeletionTimestamp != nil:
		problem := r.end(ctx, s)
		return ctrl.Result{RequeueAfter: s.after}, r.report(ctx, s, problem)
	case s.cluster == nil:
		return ctrl.Result{}, r.report(ctx, s, nil)
	}
	if err := r.claim(ctx, s); err != nil {
		return ctrl.Result{}, r.report(ctx, s, err)
	}
	problem := errors.Join(s.unread, r.judge(ctx, s), r.propagate(ctx, s), r.removeStaleAnnotations(ctx, s),
		r.execute(ctx, s))
	problem = cmp.Or(problem, r.writeKubeconfig(ctx, s))
	return ctrl.Result{RequeueAfter: s.after}, r.report(ctx, s, problem)
}

// planesOfMachine returns the control plane of a machine's Cluster: for a worker as well, which the deletion of the
// control plane waits for.
func (r *Reconciler) planesOfMachine(ctx context.Context, object client.Object) []reconcile.Request {
	m, ok := object.(*clusterv1.Machine)
	if !ok {
		return nil
	}
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName},
		cluster); err != nil {
		return nil // the Cluster does not exist, or its creation event follows
	}
	return r.planesOfCluster(ctx, cluster)
}

// planesOfCluster returns the control plane of a Cluster.
func (r *Reconciler) planesOfCluster(_ context.Context, object client.Object) []reconcile.Request {
	cluster, ok := object.(*clusterv1.Cluster)
	if !ok || cluster.Spec.ControlPlaneRef != refTo(cluster.Spec.ControlPlaneRef.Name) {
		return nil
	}
	return []reconcile.Request{
		{NamespacedName: client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.ControlPlaneRef.Name}},
	}
}
