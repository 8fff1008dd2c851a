// Package openshift is the controller of Machines of machine.openshift.io. It creates the infrastructure of a machine
// and reports its progress; and it deletes machines, phase by phase (phases.go): lifecycle hooks, draining,
// infrastructure, Node.
//
// A pass never waits. It does as many steps as it can, and is followed by another one when an object changes, or after
// the time that a step names.
//
// Start with SetupWithManager.
package openshift

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/machines/machineevents"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/queue"
)

// Options configure a reconciler. The zero value works.
type Options struct {
	Concurrency int // limits how many machines are reconciled at once; 0 means 20
	// Infrastructure creates and deletes the infrastructure of machines; nil means infra.Objects.
	Infrastructure Infrastructure
	// LongestWait limits the time until the next pass, for tests; 0 means no limit.
	LongestWait time.Duration
	Now         func() time.Time // time.Now if it is nil
}

// Infrastructure has the methods of infra.Objects that the controller calls, so that a test can have a script
// instead.
type Infrastructure interface {
	Get(ctx context.Context, m infra.Machine) (infra.Instance, error)
	Create(ctx context.Context, m infra.Machine) (infra.Instance, error)
	Delete(ctx context.Context, m infra.Machine) (infra.Instance, error)
}

// A reconciler is the controller of Machines.
type reconciler struct {
	client         client.Client
	server         client.Reader // reads past the cache
	kubernetes     drain.Client
	infrastructure Infrastructure
	events         machineevents.Recorder
	options        Options
	memory         sync.Map // facts about Machines that no object has, by the Machines' names
	// cordoning is held while a node of the control plane is cordoned, so that they are cordoned one after the other.
	cordoning sync.Mutex
}

// SetupWithManager adds the controller of Machines to a manager.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if o.Concurrency == 0 {
		o.Concurrency = queue.Concurrency
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	direct, err := drain.NewClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	r := &reconciler{
		client: mgr.GetClient(), server: mgr.GetAPIReader(), kubernetes: direct, infrastructure: o.Infrastructure,
		events: machineevents.Recorder{Events: mgr.GetEventRecorder("machine-controller")}, options: o,
	}
	if err := errors.Join(nodeIndex.Add(ctx, mgr), registerMetrics()); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("machine").
		Watches(&machinev1beta1.Machine{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.machinesOfNode),
			builder.WithPredicates(nodeMatters)).
		WithOptions(queue.Options(o.Concurrency, r.overtakes(ctx)))
	if r.infrastructure != nil {
		return b.Complete(r)
	}
	objects, err := infra.NewObjects(mgr)
	if err != nil {
		return err
	}
	r.infrastructure = objects
	objects.Watcher.Controller, err = b.Build(r)
	return err
}

// Reconcile reconciles a Machine.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	m := &machinev1beta1.Machine{}
	err := r.client.Get(ctx, request.NamespacedName, m)
	if apierrors.IsNotFound(err) {
		r.memory.Delete(request.NamespacedName)
		r.events.Forget(request.NamespacedName)
		forgetFailures(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get the Machine: %w", err)
	}
	result, err := r.reconcile(ctx, m)
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: queue.ConflictPause}, nil
	case apierrors.IsNotFound(err): // it was deleted meanwhile
		return ctrl.Result{}, nil
	}
	return result, err
}

func (r *reconciler) reconcile(ctx context.Context, m *machinev1beta1.Machine) (ctrl.Result, error) {
	if m.DeletionTimestamp.IsZero() {
		return r.reconcileLive(ctx, m)
	}
	// A cached Machine may lack a hook, or the record of its drain: irreversible decisions require a read from the API
	// server.
	if err := r.server.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
		return ctrl.Result{}, err
	}
	if !controllerutil.ContainsFinalizer(m, machinev1beta1.MachineFinalizer) {
		return ctrl.Result{}, nil
	}
	return r.reconcileDeletion(ctx, m)
}

// writeStatus writes a status if it differs. It fails with a conflict if the Machine has changed since it was read.
func (r *reconciler) writeStatus(ctx context.Context, m *machinev1beta1.Machine,
	next machinev1beta1.MachineStatus) error {
	if !statusDiffers(m.Status, next) {
		return nil
	}
	base, before := m.DeepCopy(), ptr.Deref(m.Status.Phase, "")
	now := conditions.Time(r.options.Now())
	next.LastUpdated = &now
	m.Status = next
	if err := patch.StatusWithLock(ctx, r.client, m, base); err != nil {
		return fmt.Errorf("write the status of the Machine: %w", err)
	}
	r.countPhase(m, before)
	return nil
}

// machineForInfra returns a Machine for the provider of infrastructure.
func machineForInfra(m *machinev1beta1.Machine) (infra.Machine, error) {
	template, err := infra.ParseTemplate(m.Spec.ProviderSpec.Value)
	return infra.Machine{
		NamespacedName: client.ObjectKeyFromObject(m), UID: m.UID, Labels: m.Labels, Template: template,
	}, err
}

// overtakes returns the function by which the queue decides whether the machine of a request precedes others. It reads
// the cache. ctx ends the wait for an empty cache.
func (r *reconciler) overtakes(ctx context.Context) func(ctrl.Request) bool {
	return func(request ctrl.Request) bool {
		m := &machinev1beta1.Machine{}
		return r.client.Get(ctx, request.NamespacedName, m) == nil && !m.DeletionTimestamp.IsZero() && isEnding(m)
	}
}

// isEnding reports whether no hook and no pod holds a machine being deleted, or its last pre-drain hook was
// just removed, so that the condition still reports it. A machine does not overtake while its node is drained: checking
// the same pods again must not delay the drains of other nodes.
func isEnding(m *machinev1beta1.Machine) bool {
	stage, _ := deletion.StageOpenShift(m)
	isHeld := conditions.Find(m.Status.Conditions,
		machinev1beta1.MachineDrainable).Reason == machinev1beta1.MachineHookPresent
	return stage == deletion.Terminating || stage == deletion.Draining && isHeld
}

// nodeIndex finds machines by the names of their nodes.
const nodeIndex enqueue.NodeIndex = "deletion.nodeRef"

// nodeMatters passes the changes of nodes that affect a deletion, but no heartbeats.
var nodeMatters = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, isNode := e.ObjectOld.(*corev1.Node)
		after, areNodes := e.ObjectNew.(*corev1.Node)
		return isNode && areNodes && (before.Spec.Unschedulable != after.Spec.Unschedulable ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero())
	},
}

// machinesOfNode returns the machines that are being deleted and have a node.
func (r *reconciler) machinesOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	isDeleting := func(m *machinev1beta1.Machine) bool { return !m.DeletionTimestamp.IsZero() }
	return enqueue.Requests(ctx, r.client, &machinev1beta1.MachineList{}, isDeleting,
		client.MatchingFields{string(nodeIndex): node.GetName()})
}

// othersCordoned returns the other nodes of the control plane that are cordoned.
func (r *reconciler) othersCordoned(ctx context.Context, name string) ([]string, error) {
	var nodes corev1.NodeList
	if err := r.server.List(ctx, &nodes, client.MatchingFields{"spec.unschedulable": "true"}); err != nil {
		return nil, fmt.Errorf("list the nodes that take no pods: %w", err)
	}
	var names []string
	for _, node := range nodes.Items {
		if node.Name != name && deletion.IsControlPlane(&node) {
			names = append(names, node.Name)
		}
	}
	return names, nil
}

// machineMemory is the state of one machine that need not survive a restart: backoffs, and the progress of its drain.
// One pass at a time uses it.
type machineMemory struct {
	uid   types.UID
	drain drainProgress
	// drainUntil is the time of the next eviction: an earlier pass must not evict pods.
	drainUntil time.Time
	// cordonedPods are the pods of the first listing after the cordon; nil before that listing.
	cordonedPods sets.Set[types.UID]
	problem      string // error of deleting the infrastructure
	askUntil     time.Time
}

func (r *reconciler) memoryOf(m *machinev1beta1.Machine) *machineMemory {
	key := client.ObjectKeyFromObject(m)
	memory, _ := r.memory.LoadOrStore(key, &machineMemory{uid: m.UID})
	if memory.(*machineMemory).uid != m.UID {
		memory = &machineMemory{uid: m.UID}
		r.memory.Store(key, memory)
	}
	return memory.(*machineMemory)
}

// bounded limits a wait to the longest one, if it is set.
func (r *reconciler) bounded(wait time.Duration) time.Duration {
	return min(wait, cmp.Or(r.options.LongestWait, wait))
}
