// Package machineset maintains the replicas of the MachineSets of machine.openshift.io: it creates machines from a
// set's template, deletes surplus machines, adopts and releases machines by their labels, and counts them in the
// set's status. The controller of Machines executes the deletion of a Machine, with drains and lifecycle hooks.
//
// Package replicas decides what to do, and priority.go which machine is deleted first. Both are pure: they get the
// observed state, and return values.
//
// Start with SetupWithManager.
package machineset

import (
	"context"
	"sync"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/queue"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

const (
	concurrency = 10 // MachineSets that are reconciled at a time
	requests    = 20 // machines of one MachineSet that are created or deleted at a time
)

// A reconciler maintains the machines of MachineSets.
type reconciler struct {
	cached   client.Client
	live     client.Reader // reads from the API server
	recorder events.EventRecorder
	now      func() time.Time
	// published has the resourceVersions at which the selectors of MachineSets were found in their status, by the sets'
	// names.
	published sync.Map
}

// SetupWithManager adds the controller of MachineSets to a manager.
func SetupWithManager(ctx context.Context, manager ctrl.Manager) error {
	r := &reconciler{
		cached: manager.GetClient(), live: manager.GetAPIReader(),
		recorder: manager.GetEventRecorder("machineset-controller"), now: time.Now,
	}
	if err := byNode.Add(ctx, manager); err != nil {
		return err
	}
	owner := handler.EnqueueRequestForOwner(manager.GetScheme(), manager.GetRESTMapper(), &machinev1beta1.MachineSet{},
		handler.OnlyControllerOwner())
	return ctrl.NewControllerManagedBy(manager).
		Named("machineset").
		WithOptions(queue.Backoff(concurrency, queue.RetrySoon)).
		For(&machinev1beta1.MachineSet{}).
		Watches(&machinev1beta1.Machine{}, owner, builder.WithPredicates(machineChanges)).
		Watches(&machinev1beta1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.setsOfOrphan),
			builder.WithPredicates(machineChanges)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.setsOfNode),
			builder.WithPredicates(readinessChanges)).
		Complete(r)
}

// Reconcile creates missing machines of a MachineSet, deletes surplus ones, and writes its status.
//
// The cache may lag behind the last writes of this or another instance of the controller, and behind an annotation that
// selects a machine for deletion. So the cache only decides whether there may be something to do; the plan is based on
// a read of the API server.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	seen, err := readSnapshot(ctx, r.cached, request.NamespacedName)
	if err == nil && seen.isManaged() && !seen.plan(r.now()).IsEmpty() {
		seen, err = readSnapshot(ctx, r.live, request.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if !seen.isManaged() {
		r.published.Delete(request.NamespacedName)
		return ctrl.Result{}, nil // the garbage collector deletes its machines, or releases them
	}
	problem := r.execute(ctx, seen, seen.plan(r.now()))
	return r.report(ctx, seen, problem)
}

// byNode is the index that machines are found by, in the cache.
const byNode enqueue.NodeIndex = "machineset: status.nodeRef.name"

// machineChanges passes changes that can affect the replicas of a set. Those of the priority are read when a set has a
// surplus.
var machineChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, isMachine := e.ObjectOld.(*machinev1beta1.Machine)
	after, ok := e.ObjectNew.(*machinev1beta1.Machine)
	return !isMachine || !ok ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) ||
		enqueue.NodeName(before) != enqueue.NodeName(after)
}}

// readinessChanges drops the heartbeats of nodes.
var readinessChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, isNode := e.ObjectOld.(*corev1.Node)
	after, ok := e.ObjectNew.(*corev1.Node)
	return !isNode || !ok || readinessOf(before) != readinessOf(after)
}}

// setsOfOrphan returns the sets that may adopt a machine.
func (r *reconciler) setsOfOrphan(ctx context.Context, machine client.Object) []reconcile.Request {
	if metav1.GetControllerOfNoCopy(machine) != nil {
		return nil
	}
	return enqueue.Requests(ctx, r.cached, &machinev1beta1.MachineSetList{}, func(set *machinev1beta1.MachineSet) bool {
		selector, err := replicas.SelectorOf(&set.Spec.Selector, set.Spec.Template.Labels)
		return err == nil && selector.Matches(labels.Set(machine.GetLabels()))
	}, client.InNamespace(machine.GetNamespace()))
}

// setsOfNode returns the set of a node's machine.
func (r *reconciler) setsOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	var found []reconcile.Request
	for _, machine := range byNode.Machines(ctx, r.cached, node.GetName()) {
		if owner := metav1.GetControllerOfNoCopy(&machine); owner != nil {
			found = append(found,
				reconcile.Request{NamespacedName: client.ObjectKey{Namespace: machine.Namespace, Name: owner.Name}})
		}
	}
	return found
}

// execute executes a plan.
func (r *reconciler) execute(ctx context.Context, seen *setSnapshot, p replicas.Plan) error {
	scaler := replicas.Scaler{
		Client: r.cached, Events: r.recorder, Set: seen.set, Owner: controllerOf(seen.set), Requests: requests,
	}
	if err := replicas.SettleOwnership(ctx, scaler, p, seen.machines); err != nil {
		return err
	}
	if p.Create > 0 {
		return scaler.Create(ctx, p.Create, func() (string, error) {
			machine := newMachine(seen.set)
			err := r.cached.Create(ctx, machine)
			return machine.Name, err
		})
	}
	if len(p.Remove) > 0 {
		return replicas.Remove(ctx, scaler, p.Remove, seen.machines)
	}
	return nil
}

// newMachine returns a machine from the set's template. The API server generates its name.
func newMachine(set *machinev1beta1.MachineSet) *machinev1beta1.Machine {
	template := set.Spec.Template.DeepCopy()
	return &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       set.Namespace,
			GenerateName:    set.Name + "-",
			Labels:          template.Labels,
			Annotations:     template.Annotations,
			OwnerReferences: []metav1.OwnerReference{controllerOf(set)},
		},
		Spec: template.Spec,
	}
}

func controllerOf(set *machinev1beta1.MachineSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(set, machinev1beta1.SchemeGroupVersion.WithKind("MachineSet"))
}
