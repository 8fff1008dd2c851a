// Package capi is the controller of Machines of cluster.x-k8s.io whose nodes are those of the cluster it runs in. It
// links a Machine to its infrastructure, its bootstrap config and its Node, and reports their state in the status; and
// it deletes Machines, phase by phase (phases.go). Finalizers, annotations, conditions and events are those
// of Cluster API's own core controller.
//
// A pass never waits. It does as many steps as it can, writes the status once at its end, and is followed by another
// one when an object changes, or after the time that a step names.
//
// SetupWithManager is the call to start from.
package capi

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/machines/machineevents"
	"github.com/runlevel/runlevel/internal/machines/queue"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
)

// Options configure a Reconciler. The zero value works.
type Options struct {
	Concurrency int // how many machines are worked on at once; 20 if it is 0
	// LongestWait limits the time until the next pass, for tests; 0 means no limit.
	LongestWait time.Duration
	Now         func() time.Time // time.Now if it is nil
	// Hooks call the extensions that update Machines in place; those of the manager's cluster if it is nil.
	Hooks *runtimehook.InPlaceHooks
}

// A Reconciler is the controller of Machines.
type Reconciler struct {
	client     client.Client
	server     client.Reader // reads past the cache
	kubernetes drain.Client
	references contract.References
	watcher    *infra.Watcher
	events     machineevents.Recorder
	options    Options
	hooks      *runtimehook.InPlaceHooks
	updates    updateCalls
}

// SetupWithManager adds the controller of Machines to a manager.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if o.Concurrency == 0 {
		o.Concurrency = queue.Concurrency
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Hooks == nil {
		o.Hooks = runtimehook.NewInPlaceHooks(mgr.GetClient(), mgr.GetAPIReader())
	}
	direct, err := drain.NewClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	watcher, err := infra.NewWatcher(mgr)
	if err != nil {
		return err
	}
	r := &Reconciler{
		client: mgr.GetClient(), server: mgr.GetAPIReader(), kubernetes: direct, watcher: watcher,
		references: contract.References{Client: mgr.GetClient()},
		events:     machineevents.Recorder{Events: mgr.GetEventRecorder("machine-controller")}, options: o,
		hooks:   o.Hooks,
		updates: updateCalls{running: semaphore.NewWeighted(int64(max(1, o.Concurrency/2)))},
	}
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	watcher.Controller, err = ctrl.NewControllerManagedBy(mgr).Named("cluster-api-machine").
		For(&clusterv1.Machine{}, builder.WithPredicates(machineMatters)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.machinesOfNode),
			builder.WithPredicates(nodeMatters)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.machinesOfCluster)).
		WithOptions(queue.Options(o.Concurrency, r.overtakes(ctx))).
		Build(r)
	return err
}

// Reconcile reconciles a Machine.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	m := &clusterv1.Machine{}
	err := r.client.Get(ctx, request.NamespacedName, m)
	if apierrors.IsNotFound(err) {
		r.events.Forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err == nil && !m.DeletionTimestamp.IsZero() {
		// A cached Machine may lack a hook: what can't be undone is decided on the Machine as the API server has it.
		err = r.server.Get(ctx, request.NamespacedName, m)
	}
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	p := &machineScope{r: r, machineState: &machineState{time: r.options.Now(), m: m, status: *m.Status.DeepCopy()}}
	after, err := p.reconcile(ctx)
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: queue.ConflictPause}, nil
	case apierrors.IsNotFound(err) && !m.DeletionTimestamp.IsZero(): // it was deleted meanwhile
		return ctrl.Result{RequeueAfter: queue.ConflictPause}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// bounded returns a wait that is not longer than the longest one, if there is one.
func (r *Reconciler) bounded(wait time.Duration) time.Duration {
	return min(wait, cmp.Or(r.options.LongestWait, wait))
}

// record records an event of a Machine, once for each change.
func (r *Reconciler) record(m *clusterv1.Machine, kind, reason, note string) {
	r.events.Record(m, machineevents.Event{Type: kind, Reason: reason, Action: "Reconcile", Note: note})
}
