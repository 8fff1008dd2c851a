// Package machineset maintains the replicas of Cluster API's MachineSets: it creates Machines, with their
// infrastructure and bootstrap config, from a set's templates, deletes surplus Machines, adopts and releases Machines
// by their labels, updates fields that need no new Machines, and counts them in the set's status. In an update in
// place, a set moves Machines to another one, which begins their update. A Machine marked as unhealthy is deleted and
// replaced. The controller of Machines executes the deletion of a Machine, with drains and hooks; a Machine is a
// replica of its set as long as it exists.
//
// Package replicas decides what to do, from the snapshot of snapshot.go.
//
// SetupWithManager is the call to start from.
package machineset

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

	"github.com/runlevel/runlevel/internal/machines/capi/machinetemplate"
	"github.com/runlevel/runlevel/internal/machines/capi/owners"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/machines/queue"
)

const (
	concurrency = 10 // MachineSets that are worked on at a time
	requests    = 20 // machines of one MachineSet that are created, changed or deleted at a time
)

// Options configure the controller of MachineSets. The zero value works.
type Options struct {
	RetrySoon time.Duration // pause before the first retry; a quarter of a second if it is 0
}

// A Reconciler maintains the machines of Cluster API's MachineSets.
type Reconciler struct {
	owners.Writer // its client reads from the cache
	machines      machinetemplate.Writer
	now           func() time.Time
	templates     *infra.Watcher // of templates that are missing
}

// SetupWithManager adds the controller of MachineSets to a manager.
func SetupWithManager(manager ctrl.Manager, o Options) error {
	templates, err := infra.NewWatcher(manager)
	if err != nil {
		return err
	}
	r := &Reconciler{
		Writer: owners.Writer{
			Client: manager.GetClient(),
			Events: manager.GetEventRecorder("machineset-controller"),
		},
		machines:  machinetemplate.NewWriter(manager, fieldManager),
		now:       time.Now,
		templates: templates,
	}
	sets := func(matches func(*clusterv1.MachineSet, client.Object) bool) handler.EventHandler {
		return enqueue.Matching(r.Client, &clusterv1.MachineSetList{}, matches)
	}
	owner := handler.EnqueueRequestForOwner(manager.GetScheme(), manager.GetRESTMapper(), &clusterv1.MachineSet{},
		handler.OnlyControllerOwner())
	templates.Controller, err = ctrl.NewControllerManagedBy(manager).
		Named("cluster-api-machineset").
		WithOptions(queue.Backoff(concurrency, cmp.Or(o.RetrySoon, queue.RetrySoon))).
		For(&clusterv1.MachineSet{}).
		Watches(&clusterv1.Machine{}, owner).
		Watches(&clusterv1.Machine{}, sets(mayAdopt)).
		Watches(&clusterv1.MachineDeployment{}, sets(isOfDeployment),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&clusterv1.Cluster{}, sets(isOfCluster), builder.WithPredicates(contract.ClusterPauses)).
		Build(r)
	return err
}

// Reconcile creates, changes or deletes the machines of a MachineSet, and writes its status.
//
// The cache may lag behind the last writes of this controller, or of another instance, and behind an annotation that
// selects a machine for deletion. So the cache only decides whether a read from the API server is necessary, and the
// plan is computed from that read.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s, err := r.readSnapshot(ctx, r.Client, request.NamespacedName)
	if err == nil && s != nil && s.hasWork() {
		s, err = r.readSnapshot(ctx, r.machines.Live, request.NamespacedName)
	}
	switch {
	case err != nil || s == nil:
		return ctrl.Result{}, err
	case s.isPaused():
		return ctrl.Result{}, r.report(ctx, s, nil)
	case s.set.DeletionTimestamp != nil:
		problem := r.end(ctx, s)
		return ctrl.Result{}, r.report(ctx, s, problem)
	case s.unset != nil:
		changed := s.set.DeepCopy()
		changed.Spec.Replicas = s.unset
		return ctrl.Result{}, r.SetReplicas(ctx, s.set, changed) // which causes another reconciliation
	}
	if err := r.claim(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	isChanged, problem := r.remediate(ctx, s)
	if !isChanged { // a change causes another reconciliation
		problem = errors.Join(problem, r.propagate(ctx, s), r.beginUpdates(ctx, s), r.execute(ctx, s))
	}
	return ctrl.Result{}, r.report(ctx, s, problem)
}
