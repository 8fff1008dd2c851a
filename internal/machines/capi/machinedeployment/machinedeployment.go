// Package machinedeployment rolls out the templates of Cluster API's MachineDeployments: it creates a MachineSet for
// each template, scales the sets so that machines of the new one replace the others, or has machines moved to the new
// one that an extension can update in place, updates fields that need no new machines, and sets the condition UpToDate
// of each Machine. The controller of MachineSets creates and deletes the Machines of a set.
//
// Package rolloutplan decides what to do, from the snapshot of snapshot.go.
//
// Start with SetupWithManager.
package machinedeployment

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/capi/owners"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/queue"
	"github.com/runlevel/runlevel/internal/machines/replicas"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
)

// concurrency limits how many MachineDeployments are reconciled at a time.
const concurrency = 10

// A Reconciler rolls out the templates of Cluster API's MachineDeployments.
type Reconciler struct {
	owners.Writer // its client reads from the cache
	live          client.Reader
	references    contract.References
	hooks         *runtimehook.InPlaceHooks
	now           func() time.Time
}

// SetupWithManager adds the controller of MachineDeployments to a manager. The hooks decide which machines can be
// updated in place.
func SetupWithManager(manager ctrl.Manager, hooks *runtimehook.InPlaceHooks) error {
	recorder := manager.GetEventRecorder("machinedeployment-controller")
	r := &Reconciler{
		Writer:     owners.Writer{Client: manager.GetClient(), Events: recorder},
		live:       manager.GetAPIReader(),
		references: contract.References{Client: manager.GetClient()},
		hooks:      hooks,
		now:        time.Now,
	}
	deployments := func(matches func(*clusterv1.MachineDeployment, client.Object) bool) handler.EventHandler {
		return enqueue.Matching(r.Client, &clusterv1.MachineDeploymentList{}, matches)
	}
	owner := handler.EnqueueRequestForOwner(manager.GetScheme(), manager.GetRESTMapper(),
		&clusterv1.MachineDeployment{},
		handler.OnlyControllerOwner())
	return ctrl.NewControllerManagedBy(manager).
		Named("cluster-api-machinedeployment").
		WithOptions(queue.Backoff(concurrency, queue.RetrySoon)).
		For(&clusterv1.MachineDeployment{}).
		Watches(&clusterv1.MachineSet{}, owner).
		Watches(&clusterv1.MachineSet{}, deployments(mayAdopt)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(deploymentOfMachine)).
		Watches(&clusterv1.Cluster{}, deployments(isOfCluster), builder.WithPredicates(contract.ClusterPauses)).
		Watches(&runtimev1.ExtensionConfig{}, deployments(mayUpdateInPlace)).
		Complete(r)
}

// Reconcile does the next steps of a MachineDeployment's rollout, and writes its status.
//
// The cache may lag behind the last writes of this controller and of the controller of MachineSets. So the cache only
// decides whether there may be something to do; the plan is made from a read of the API server.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	suffix := rand.String(randomLength)
	s, err := r.takeSnapshot(ctx, r.Client, request.NamespacedName, suffix)
	if err == nil && s != nil && s.hasWork() {
		s, err = r.takeSnapshot(ctx, r.live, request.NamespacedName, suffix)
	}
	switch {
	case err != nil || s == nil:
		return ctrl.Result{}, err
	case s.isPaused():
		return ctrl.Result{}, r.report(ctx, s, nil)
	case s.deployment.DeletionTimestamp != nil:
		problem := r.end(ctx, s)
		return ctrl.Result{}, r.report(ctx, s, problem)
	case s.unset != nil:
		before, changed := s.deployment.DeepCopy(), s.deployment.DeepCopy()
		before.Spec.Replicas, changed.Spec.Replicas = nil, s.unset // the snapshot has a default
		return ctrl.Result{}, r.SetReplicas(ctx, before, changed)  // which causes another reconciliation
	}
	if err := r.claim(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	problem := errors.Join(s.undecided, r.execute(ctx, s), r.judge(ctx, s))
	return ctrl.Result{RequeueAfter: s.untilRollout()}, r.report(ctx, s, problem)
}

// deploymentOfMachine returns the deployment of a machine, by the label that the controller of MachineSets sets.
func deploymentOfMachine(_ context.Context, machine client.Object) []reconcile.Request {
	name, ok := machine.GetLabels()[clusterv1.MachineDeploymentNameLabel]
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: machine.GetNamespace(), Name: name}}}
}

// mayAdopt reports whether a deployment may adopt a set.
func mayAdopt(d *clusterv1.MachineDeployment, set client.Object) bool {
	if metav1.GetControllerOfNoCopy(set) != nil {
		return false
	}
	selector, err := replicas.SelectorOf(&d.Spec.Selector, d.Spec.Template.Labels)
	return err == nil && selector.Matches(labels.Set(set.GetLabels()))
}

func isOfCluster(d *clusterv1.MachineDeployment, cluster client.Object) bool {
	return d.Spec.ClusterName == cluster.GetName()
}

// mayUpdateInPlace is true for each deployment: a change of an extension may unblock its rollout.
func mayUpdateInPlace(*clusterv1.MachineDeployment, client.Object) bool { return true }
