// Package capi is the controller of Machines of cluster.x-k8s.io whose nodes are those of the cluster it runs in. It
// links a Machine to its infrastructure, its bootstrap config and its Node, and reports their state in the status; and
// it deletes Machines, phase by phase (phases.go). Finalizers, annotations, conditions and events are those
// of Cluster API's own core controller.
//
// A reconciliation never waits. It does as many steps as it can, writes the status once at its end, and is followed by
// another one when an object changes, or after the time that a step names.
//
// Start with SetupWithManager.
package capi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/machines/machineevents"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/queue"
	"github.com/runlevel/runlevel/internal/machines/remediation"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
)

// Options configure a Reconciler. The zero value works.
type Options struct {
	Concurrency int // limits how many machines are reconciled at once; 0 means 20
	// LongestWait limits the time until the next reconciliation, for tests; 0 means no limit.
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
		// A cached Machine may lack a hook: irreversible decisions require a read from the API server.
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

// bounded returns a wait, or the longest wait if it is shorter.
func (r *Reconciler) bounded(wait time.Duration) time.Duration {
	return min(wait, cmp.Or(r.options.LongestWait, wait))
}

// record records an event of a Machine, once for each change.
func (r *Reconciler) record(m *clusterv1.Machine, kind, reason, note string) {
	r.events.Record(m, machineevents.Event{Type: kind, Reason: reason, Action: "Reconcile", Note: note})
}

// missingObject is the interval at which a missing object that a Machine refers to is looked for.
const missingObject = 30 * time.Second

// A machineScope is one reconciliation of a Machine.
type machineScope struct {
	r *Reconciler
	*machineState
}

// A machineState contains the observed state of a Machine and its objects, and the status computed from it. A
// machineScope shares it with its parts, deletionScope and updateScope.
type machineState struct {
	time    time.Time // time of the reconciliation
	m       *clusterv1.Machine
	status  clusterv1.MachineStatus // the status to write
	cluster *clusterv1.Cluster      // without a UID if it does not exist

	infrastructure referencedObject
	bootstrap      referencedObject
	node           machineNode

	deletingReason, deletingText string // reason and message of the condition Deleting
	updateReason, updateText     string // reason and message of the condition Updating; empty without an update
}

// reconcile does the next steps, and returns when to reconcile again.
func (m *machineScope) reconcile(ctx context.Context) (time.Duration, error) {
	isDeleting := !m.m.DeletionTimestamp.IsZero()
	if isDeleting && !controllerutil.ContainsFinalizer(m.m, clusterv1.MachineFinalizer) {
		return 0, nil
	}
	// The finalizer comes first: a Machine must not be removed before the objects that it refers to.
	if !isDeleting {
		if err := patch.AddFinalizer(ctx, m.r.client, m.m, clusterv1.MachineFinalizer); err != nil {
			return 0, err
		}
	}
	if err := m.readCluster(ctx); err != nil {
		return 0, err
	}
	if m.setPaused() {
		return 0, m.r.writeStatus(ctx, m.machineState)
	}
	if err := m.adopt(ctx); err != nil {
		return 0, err
	}
	err := errors.Join(m.gatherReferences(ctx), m.gatherNode(ctx))
	if writeErr := m.writeSpec(ctx); writeErr != nil {
		return 0, writeErr
	}
	var after time.Duration
	if isDeleting {
		m.r.updates.known.Delete(m.m.UID)
		var deletionErr error
		after, deletionErr = (&deletionScope{r: m.r, machineState: m.machineState}).delete(ctx)
		if deletionErr != nil || !controllerutil.ContainsFinalizer(m.m, clusterv1.MachineFinalizer) {
			return 0, errors.Join(deletionErr, m.finishFailed(ctx, deletionErr))
		}
	} else {
		var updateErr error
		after, updateErr = (&updateScope{r: m.r, machineState: m.machineState}).reconcile(ctx)
		err = errors.Join(err, updateErr)
	}
	available := m.setConditions()
	if writeErr := m.r.writeStatus(ctx, m.machineState); writeErr != nil {
		return 0, writeErr
	}
	if !isDeleting && (m.infrastructure.isGone || m.bootstrap.isGone && m.m.Spec.Bootstrap.ConfigRef.IsDefined()) {
		// it may be created with another name than the Machine's, and without an owner
		after = remediation.Earliest(after, m.r.bounded(missingObject))
	}
	if isDeleting { // the phases of the deletion have reported failed reads
		err = nil
	}
	return remediation.Earliest(after, available), err
}

// finishFailed writes the status after a reconciliation has ended early, if there is a reason to report.
func (m *machineScope) finishFailed(ctx context.Context, err error) error {
	if err == nil || apierrors.IsConflict(err) {
		return nil
	}
	m.setConditions()
	return m.r.writeStatus(ctx, m.machineState)
}

// readCluster reads the Cluster of the Machine. A Machine without a Cluster is left alone. If it is being deleted, its
// deletion continues as if the Cluster were being deleted.
func (m *machineScope) readCluster(ctx context.Context) error {
	var reader client.Reader = m.r.client
	isDeleting := !m.m.DeletionTimestamp.IsZero()
	if isDeleting {
		reader = m.r.server
	}
	var err error
	m.cluster, err = contract.FindCluster(ctx, reader, m.m.Namespace, m.m.Spec.ClusterName)
	if err != nil || m.cluster != nil {
		return err
	}
	if isDeleting {
		m.cluster = &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
			Namespace: m.m.Namespace,
			Name:      m.m.Spec.ClusterName,
		}}
		return nil
	}
	note := fmt.Sprintf("the Cluster %s/%s of spec.clusterName does not exist: create it", m.m.Namespace,
		m.m.Spec.ClusterName)
	m.r.record(m.m, corev1.EventTypeWarning, "ClusterNotFound", note)
	return errors.New(note)
}

// setPaused sets the condition Paused, and reports whether the Machine is paused.
func (m *machineScope) setPaused() bool {
	var causes []string
	if ptr.Deref(m.cluster.Spec.Paused, false) {
		causes = append(causes, "Cluster spec.paused is set to true")
	}
	if metav1.HasAnnotation(m.m.ObjectMeta, clusterv1.PausedAnnotation) {
		causes = append(causes, "Machine has the cluster.x-k8s.io/paused annotation")
	}
	condition := newCondition(clusterv1.PausedCondition, metav1.ConditionFalse, clusterv1.NotPausedReason, "")
	if len(causes) > 0 {
		condition = newCondition(clusterv1.PausedCondition, metav1.ConditionTrue, clusterv1.PausedReason,
			strings.Join(causes, ", "))
	}
	m.set(condition)
	return len(causes) > 0
}

// adopt sets the label of its Cluster on the Machine, and the Cluster as its owner if it is a stand-alone Machine.
func (m *machineScope) adopt(ctx context.Context) error {
	base := m.m.DeepCopy()
	metav1.SetMetaDataLabel(&m.m.ObjectMeta, clusterv1.ClusterNameLabel, m.m.Spec.ClusterName)
	if isStandAlone(m.m) && m.cluster.UID != "" {
		m.m.OwnerReferences = append(m.m.OwnerReferences, contract.ClusterOwner(m.cluster))
	}
	return m.r.patch(ctx, m.m, base, "give the Machine its owner and its labels")
}

// isStandAlone reports whether a Machine belongs to no MachineSet, pool or control plane, and is not owned by a Cluster
// yet.
func isStandAlone(m *clusterv1.Machine) bool {
	for _, label := range []string{clusterv1.MachineSetNameLabel, clusterv1.MachinePoolNameLabel,
		clusterv1.MachineControlPlaneNameLabel} {
		if _, ok := m.Labels[label]; ok {
			return false
		}
	}
	for _, owner := range m.OwnerReferences {
		if contract.IsOwnerOfKind(owner, "Cluster") {
			return false
		}
	}
	return metav1.GetControllerOf(m) == nil
}

// patch writes the changes of a Machine, except for its status.
func (r *Reconciler) patch(ctx context.Context, m, base *clusterv1.Machine, what string) error {
	if same(base.ObjectMeta, m.ObjectMeta) && same(base.Spec, m.Spec) {
		return nil
	}
	if err := patch.WithLock(ctx, r.client, m, base); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// writeStatus writes the status, if it has changed. The write fails if the Machine has changed since it was read: other
// controllers have conditions in the same list.
func (r *Reconciler) writeStatus(ctx context.Context, f *machineState) error {
	if same(f.m.Status, f.status) {
		return nil
	}
	base := f.m.DeepCopy()
	f.m.Status = *f.status.DeepCopy()
	if err := patch.StatusWithLock(ctx, r.client, f.m, base); err != nil {
		return fmt.Errorf("write the status of the Machine: %w", err)
	}
	f.status = *f.m.Status.DeepCopy()
	return nil
}
