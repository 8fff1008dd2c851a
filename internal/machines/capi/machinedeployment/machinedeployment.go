// Package machinedeployment rolls out the templates of Cluster API's MachineDeployments: it makes a MachineSet for each
// template, scales the sets so that machines of the new one take the place of the others, or has machines moved to the new one
// that an extension can update in place, brings to them what can change without new machines, and says of each Machine whether it is up to date. Which Machines a set makes and deletes is the
// business of the controller of MachineSets.
//
// What is to be done is decided by package rolloutplan, of what look.go has seen.
//
// SetupWithManager is the call to start from.
package machinedeployment

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/capi/contract"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
)

// A MachineDeployment whose sets are refused is tried again after retrySoon, and then after twice as long each time, up
// to retrySeldom: an administrator who makes a template waits for that.
const retrySoon, retrySeldom = 250 * time.Millisecond, time.Minute

// concurrency is how many MachineDeployments are worked on at a time.
const concurrency = 10

// A ClusterMachineDeploymentReconciler rolls out the templates of Cluster API's MachineDeployments.
type ClusterMachineDeploymentReconciler struct {
	cached     client.Client
	live       client.Reader // asks the API server
	references contract.ObjectReferences
	recorder   events.EventRecorder
	hooks      *runtimehook.InPlaceHooks
	now        func() time.Time
}

// SetupWithManager has a manager roll out all MachineDeployments that its cache has. The hooks say which machines can be updated in
// place.
func SetupWithManager(manager ctrl.Manager, hooks *runtimehook.InPlaceHooks) error {
	r := &ClusterMachineDeploymentReconciler{
		cached: manager.GetClient(), live: manager.GetAPIReader(),
		references: contract.ObjectReferences{Client: manager.GetClient()},
		recorder:   manager.GetEventRecorder("machinedeployment-controller"),
		hooks:      hooks,
		now:        time.Now,
	}
	owner := handler.EnqueueRequestForOwner(manager.GetScheme(), manager.GetRESTMapper(), &clusterv1.MachineDeployment{},
		handler.OnlyControllerOwner())
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retrySoon, retrySeldom)
	return ctrl.NewControllerManagedBy(manager).
		Named("cluster-api-machinedeployment").
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency, RateLimiter: backoff}).
		For(&clusterv1.MachineDeployment{}).
		Watches(&clusterv1.MachineSet{}, owner).
		Watches(&clusterv1.MachineSet{}, handler.EnqueueRequestsFromMapFunc(r.deploymentsOfOrphan)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(deploymentOfMachine)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.deploymentsOfCluster), builder.WithPredicates(contract.ClusterPauses)).
		Watches(&runtimev1.ExtensionConfig{}, handler.EnqueueRequestsFromMapFunc(r.allDeployments)).
		Complete(r)
}

// Reconcile does the next steps of a MachineDeployment's rollout, and writes its status.
//
// The cache may lag behind what this controller and that of MachineSets did a moment ago. So the cache only says that
// something may be to be done; what that is follows from a look at the API server.
func (r *ClusterMachineDeploymentReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	suffix := rand.String(randomLength)
	seen, err := r.see(ctx, r.cached, request.NamespacedName, suffix)
	if err == nil && seen != nil && seen.isIncomplete() {
		seen, err = r.see(ctx, r.live, request.NamespacedName, suffix)
	}
	switch {
	case err != nil || seen == nil:
		return ctrl.Result{}, err
	case seen.isPaused():
		return ctrl.Result{}, r.report(ctx, seen, nil)
	case seen.deployment.DeletionTimestamp != nil:
		problem := r.end(ctx, seen)
		return ctrl.Result{}, r.report(ctx, seen, problem)
	}
	if err := r.claim(ctx, seen); err != nil {
		return ctrl.Result{}, err
	}
	problem := errors.Join(seen.undecided, r.execute(ctx, seen), r.judge(ctx, seen))
	return ctrl.Result{RequeueAfter: seen.untilRollout()}, r.report(ctx, seen, problem)
}
