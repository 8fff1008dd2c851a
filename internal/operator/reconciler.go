package operator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/config/clusteroperator/v1helpers"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// clusterVersionMeta is the metadata of the ClusterVersion that the operator reconciles.
var clusterVersionMeta = metav1.ObjectMeta{Name: "version"}

// The minimum times between two reconciles and between two writes of the status; and how often pending deletes, and
// everything else, are read without an event.
const (
	reconcileEvery = 200 * time.Millisecond
	writesEvery    = 2 * time.Second
	deletesEvery   = 10 * time.Second
	readsEvery     = 5 * time.Minute
)

// A reconciler sets the input of the state machine from the ClusterVersion, and writes the progress into its status.
type reconciler struct {
	client  client.Client
	cluster *cluster.Cluster
	options Options
	machine *stateMachine

	// The following fields are the controller's one worker's.
	reconciledAt time.Time
	writtenAt    time.Time             // the status
	readAt       time.Time             // the record
	record       *record.Record        // the last one that could be read
	deletes      []precondition.Delete // its pending ones
	unread       error                 // why the record could not be read at readAt
	changesAt    time.Time             // when the status changes without an event; zero if no time is known
	// the release whose preflight automatic updates wait for, and its state; nil if there is none
	toCheck   *configv1.Release
	preflight *clusterversion.Preflight
}

// register adds the controller to a manager.
func (r *reconciler) register(m ctrl.Manager) error {
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: clusterVersionMeta.Name}}}
	})
	return ctrl.NewControllerManagedBy(m).
		For(&configv1.ClusterVersion{}).
		Watches(&configv1.ClusterOperator{}, enqueue).
		Watches(&corev1.ConfigMap{}, enqueue).
		WatchesRawSource(source.Channel(r.machine.outputChanged, &handler.EnqueueRequestForObject{})).
		Complete(r)
}

// Reconcile sets the input of the state machine from the ClusterVersion, and computes the status. A replica that does
// not hold the lock makes no changes.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !r.machine.holds() {
		return ctrl.Result{RequeueAfter: writesEvery}, nil
	}
	if pause := reconcileEvery - time.Since(r.reconciledAt); pause > 0 {
		return ctrl.Result{RequeueAfter: pause}, nil
	}
	r.reconciledAt = time.Now()
	defer r.machine.health.enter("reconciling the ClusterVersion")()
	var version configv1.ClusterVersion
	err := r.client.Get(ctx, request.NamespacedName, &version)
	switch {
	case apierrors.IsNotFound(err) && request.Name == clusterVersionMeta.Name:
		return ctrl.Result{}, r.create(ctx)
	case err != nil:
		return ctrl.Result{}, client.IgnoreNotFound(err)
	case request.Name != clusterVersionMeta.Name:
		return ctrl.Result{}, r.refuse(ctx, &version)
	case version.DeletionTimestamp != nil:
		return ctrl.Result{}, nil // the operator recreates it after its deletion
	}
	r.machine.events.setClusterVersion(&version)
	return r.reconcile(ctx, &version)
}

// reconcile sets the input of the state machine from the ClusterVersion, and writes the status.
func (r *reconciler) reconcile(ctx context.Context, version *configv1.ClusterVersion) (ctrl.Result, error) {
	recorded, deletes, unread := r.readRecord(ctx)
	current := r.machine.currentRelease()
	switch {
	case unread == nil:
	case cluster.IsOutage(unread):
		return ctrl.Result{}, unread
	default:
		r.machine.events.write(ctx, clusterversion.RecordUnread(unread))
		if r.record == nil || current == nil {
			return r.writeUnread(ctx, version, unread)
		} // otherwise the current release stays in place
	}
	inputs := targetInputs{record: recorded, own: r.options.Payload, toCheck: r.toCheck}
	if current != nil {
		inputs.current = current.release.target
	}
	inputs.confirm(version)
	completed := version.DeepCopy()
	if inputs.isConfirmed {
		completed.Status.History = inputs.historyOf(version)
	}
	observed, err := r.observe(ctx, completed, inputs, deletes)
	switch {
	case err != nil && (cluster.IsOutage(err) || current != nil):
		return ctrl.Result{}, err
	case err != nil:
		return r.writeUnread(ctx, version, err)
	}
	if unread != nil && observed.Applied != nil {
		observed.Applied.Problems = append(observed.Applied.Problems,
			clusterversion.ReleaseProblem{Wait: apply.Wait{For: unread.Error(), Reason: reason.Of(unread)}})
	}
	decision, next := r.decide(ctx, version, clusterversion.Next(completed.Status, observed), observed)
	if observed.Retrieved != nil {
		r.machine.reporter.follow(version, next, recorded.ReportID, observed.Now)
	}
	if decision.Action != "" && unread == nil && equality.Semantic.DeepEqual(version.Status, next) {
		return r.carryOut(ctx, version, decision)
	}
	mayChange := len(deletes) > 0 || unread != nil // no watch shows these changes
	return r.write(ctx, version, next, mayChange)
}

// writeUnread writes into the status that the operator can't read the record, or settings of the cluster. Without them,
// there is no target.
func (r *reconciler) writeUnread(ctx context.Context, version *configv1.ClusterVersion,
	unread error) (ctrl.Result, error) {
	observed := clusterversion.Observation{
		Now: r.cluster.Now(), Generation: version.Generation, Overrides: version.Spec.Overrides,
		Acceptance: clusterversion.Acceptance{
			Release:      version.Status.Desired,
			Architecture: architecture,
			Phase:        clusterversion.Retrieving,
			Err:          unread,
		},
	}
	if result, err := r.write(ctx, version, clusterversion.Next(version.Status, observed), false); err != nil {
		return result, err
	}
	return ctrl.Result{RequeueAfter: writesEvery}, nil
}

// observe sets the input of the state machine, and returns the observed state.
func (r *reconciler) observe(
	ctx context.Context, version *configv1.ClusterVersion, inputs targetInputs, deletes []precondition.Delete,
) (observed clusterversion.Observation, err error) {
	var operators configv1.ClusterOperatorList
	if err := r.client.List(ctx, &operators); err != nil {
		return observed, fmt.Errorf("list ClusterOperators: %w", err)
	}
	chosen, invalid := choose(version, inputs)
	settings, err := r.machine.settings.read(ctx)
	if err != nil {
		return observed, err
	}
	for _, t := range []*target{chosen, chosen.Before, chosen.Preflight} {
		if t != nil {
			t.configure(settings, r.options.Features, version)
		}
	}
	gates, err := r.pendingAcks(ctx, chosen.Previous)
	if err != nil {
		return observed, err
	}
	observed = clusterversion.Observation{
		Now:           r.cluster.Now(),
		Generation:    version.Generation,
		Invalid:       append(invalid, invalidID(version)...),
		Overrides:     version.Spec.Overrides,
		Gates:         gates,
		Operators:     operators.Items,
		AcceptedRisks: acceptedRiskNames(version.Spec),
		Monitoring:    r.machine.prometheus.Follow(clusterversion.Queries(r.machine.updates.last())),
	}
	if m := observed.Monitoring; m != nil && !m.HasAlerts {
		m.Earlier = clusterversion.EarlierAlerts(version.Status)
	}
	out := r.machine.set(machineInput{target: chosen, record: inputs.record, deletes: deletes, observed: observed})
	observed.Acceptance, observed.Applied = out.Acceptance, out.Applied
	if r.preflight = nil; chosen.IsAutomatic {
		r.preflight = out.Preflight
	} else {
		observed.Preflight = out.Preflight
	}
	observed.Retrieved = r.machine.updates.follow(version, observed.Applied)
	if observed.Retrieved != nil {
		_, problem := r.machine.reporter.url(version)
		observed.Retrieved.Problem = cmp.Or(observed.Retrieved.Problem, problem)
	}
	if observed.Applied != nil && len(observed.Applied.MissingOperators) > 0 {
		if err := ensureDefinitions(ctx, r.cluster); err != nil {
			return observed, fmt.Errorf("create the definitions again: %w", err)
		}
	}
	return observed, nil
}

// readRecord returns the record of the release, and its pending deletes, which outlive a restart and a change of the
// leader. While it can't read the record, it returns those of the last time, and the error.
func (r *reconciler) readRecord(ctx context.Context) (*record.Record, []precondition.Delete, error) {
	if r.record != nil && time.Since(r.readAt) < writesEvery {
		return r.record, r.deletes, r.unread
	}
	read, _, err := record.NewStore(r.cluster.Client, r.options.Namespace, payload.DefaultName).Load(ctx)
	r.readAt, r.unread = time.Now(), err
	if err != nil {
		return r.record, r.deletes, err
	}
	r.record, r.deletes = read, nil
	for _, item := range precondition.ObserveDeletes(ctx, r.cluster, read.Tombstones) {
		if item.Seen.State != tombstone.Absent && item.WasSent() {
			r.deletes = append(r.deletes, item)
		}
	}
	return r.record, r.deletes, nil
}

// write writes the status if it has changed. A change soon after another one waits.
func (r *reconciler) write(
	ctx context.Context, version *configv1.ClusterVersion, next configv1.ClusterVersionStatus, mayChange bool,
) (ctrl.Result, error) {
	if equality.Semantic.DeepEqual(version.Status, next) {
		return ctrl.Result{RequeueAfter: r.requeueAfter(mayChange)}, nil
	}
	if pause := writesEvery - time.Since(r.writtenAt); pause > 0 {
		return ctrl.Result{RequeueAfter: pause}, nil
	}
	if err := r.writeStatus(ctx, version, next); err != nil {
		if apierrors.IsConflict(err) { // the newer version comes with the next event
			return ctrl.Result{RequeueAfter: writesEvery / 10}, nil
		}
		return ctrl.Result{}, fmt.Errorf("write the status of the ClusterVersion: %w", err)
	}
	r.writtenAt = time.Now()
	return ctrl.Result{RequeueAfter: r.requeueAfter(mayChange)}, nil
}

// requeueAfter returns the time until the next reconcile without an event. After a reconcile that has not read the
// record follows one that does: the change that triggered it may be in the record.
func (r *reconciler) requeueAfter(mayChange bool) time.Duration {
	pause := readsEvery
	switch {
	case r.readAt.Before(r.reconciledAt):
		pause = max(reconcileEvery, writesEvery-time.Since(r.readAt))
	case mayChange:
		pause = deletesEvery
	}
	if !r.changesAt.IsZero() {
		pause = min(pause, max(reconcileEvery, r.changesAt.Sub(r.cluster.Now())))
	}
	return pause
}

// writeStatus writes the status of a ClusterVersion, unless it has changed since it was read: a former leader
// overwrites nothing. It sends no other fields: those of the spec may be newer than the definition.
func (r *reconciler) writeStatus(ctx context.Context, read client.Object, next configv1.ClusterVersionStatus) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&configv1.ClusterVersion{Status: next})
	if err != nil {
		return err
	}
	changed := &unstructured.Unstructured{Object: map[string]any{"status": object["status"]}}
	changed.SetGroupVersionKind(configv1.GroupVersion.WithKind(kinds.ClusterVersion.Kind))
	changed.SetName(read.GetName())
	changed.SetResourceVersion(read.GetResourceVersion())
	return r.client.Status().Update(ctx, changed)
}

// refuse sets the condition Invalid of a ClusterVersion with another name.
func (r *reconciler) refuse(ctx context.Context, version *configv1.ClusterVersion) error {
	const only = `only the ClusterVersion named "version" counts: delete this one`
	existing := v1helpers.FindStatusCondition(version.Status.Conditions, clusterversion.Invalid)
	if existing != nil && existing.Message == only {
		return nil
	}
	next := version.Status
	next.Conditions = []configv1.ClusterOperatorStatusCondition{{
		Type: clusterversion.Invalid, Status: configv1.ConditionTrue, Reason: "NameNotVersion", Message: only,
		LastTransitionTime: metav1.NewTime(r.cluster.Now()),
	}}
	return client.IgnoreNotFound(r.writeStatus(ctx, version, next))
}

// onlyGates selects the ConfigMaps that the operator watches: those of admin gates and of their
// acknowledgements. Their namespaces need not exist.
func onlyGates() cache.ByObject {
	only := cache.ByObject{Namespaces: map[string]cache.Config{}}
	for _, namespacedName := range []types.NamespacedName{precondition.AdminGates, precondition.AdminAcks} {
		only.Namespaces[namespacedName.Namespace] = cache.Config{
			FieldSelector: fields.OneTermEqualSelector("metadata.name", namespacedName.Name),
		}
	}
	return only
}

// pendingAcks returns the admin gates of a version that no administrator has acknowledged. Before a version is
// complete, there is none to update from.
func (r *reconciler) pendingAcks(ctx context.Context, version string) ([]precondition.AdminGate, error) {
	if version == "" {
		return nil, nil
	}
	var gates, acks corev1.ConfigMap
	for name, found := range map[types.NamespacedName]*corev1.ConfigMap{precondition.AdminGates: &gates,
		precondition.AdminAcks: &acks} {
		if err := r.client.Get(ctx, name, found); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read ConfigMap %s: %w", name, err)
		}
	}
	return precondition.PendingAcks(gates.Data, acks.Data, version), nil
}
