// Package healthcheck marks unhealthy Machines by the MachineHealthChecks of Cluster API: by the condition
// OwnerRemediated, for their MachineSet to replace them, or by an object that another controller remediates them by. It
// does so only while as many are unhealthy as the health check allows. It deletes no Machine: package machineset does,
// within the limits of a rollout.
//
// examine decides whether a machine is unhealthy, and when to check again. It is pure: nothing is polled.
//
// Start with SetupWithManager.
package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/queue"
	"github.com/runlevel/runlevel/internal/machines/remediation"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// concurrency limits how many health checks are reconciled at a time.
const concurrency = 10

// A Reconciler marks the unhealthy machines of Cluster API's MachineHealthChecks.
type Reconciler struct {
	client   client.Client
	server   client.Reader // reads past the cache
	recorder events.EventRecorder
}

// SetupWithManager adds the controller of MachineHealthChecks, and the index that it needs, to a manager.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := addIndex(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	r := &Reconciler{
		client: mgr.GetClient(), server: mgr.GetAPIReader(),
		recorder: mgr.GetEventRecorder("machinehealthcheck-controller"),
	}
	return ctrl.NewControllerManagedBy(mgr).Named("cluster-api-machinehealthcheck").
		WithOptions(queue.Backoff(concurrency, queue.RetrySoon)).
		For(&clusterv1.MachineHealthCheck{}).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.checksOfMachine),
			builder.WithPredicates(machineChanges)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.checksOfCluster),
			builder.WithPredicates(clusterChanges)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.checksOfNode),
			builder.WithPredicates(remediation.NodeChanges)).
		Complete(r)
}

// An examination is one examination of all machines of a health check.
type examination struct {
	check     *clusterv1.MachineHealthCheck
	cluster   *clusterv1.Cluster
	isAllowed bool                 // whether machines may be remediated
	requested remediation.Requests // remediation requests in the namespace; none without a template
	now       time.Time
}

// Reconcile examines the machines of a health check, marks the unhealthy ones, and reconciles again when the next
// timeout ends.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	check := &clusterv1.MachineHealthCheck{}
	if err := r.client.Get(ctx, request.NamespacedName, check); err != nil || check.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster, err := contract.FindCluster(ctx, r.client, check.Namespace, check.Spec.ClusterName)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case cluster == nil:
		r.recorder.Eventf(check, nil, corev1.EventTypeWarning, "ClusterNotFound", "Remediate",
			"Cluster %s does not exist: machines are checked once it does", check.Spec.ClusterName)
		return ctrl.Result{}, nil
	case contract.IsPaused(check, cluster):
		return ctrl.Result{}, r.writeStatus(ctx, check, pausedStatus(check))
	}
	if err := r.own(ctx, check, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return r.examineAll(ctx, &examination{check: check, cluster: cluster, now: time.Now()})
}

// own makes a Cluster the owner of a health check, and labels the health check with the name of the Cluster.
func (r *Reconciler) own(ctx context.Context, check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) error {
	owner := contract.ClusterOwner(cluster)
	if check.Labels[clusterv1.ClusterNameLabel] == cluster.Name && slices.Contains(check.OwnerReferences, owner) {
		return nil
	}
	before := check.DeepCopy()
	metav1.SetMetaDataLabel(&check.ObjectMeta, clusterv1.ClusterNameLabel, cluster.Name)
	check.OwnerReferences = slices.DeleteFunc(check.OwnerReferences, func(other metav1.OwnerReference) bool {
		return other.Kind == owner.Kind && other.APIVersion == owner.APIVersion && other.Name == owner.Name
	})
	check.OwnerReferences = append(check.OwnerReferences, owner)
	if err := patch.WithLock(ctx, r.client, check, before); err != nil {
		return fmt.Errorf("set Cluster %s as the owner: %w", cluster.Name, err)
	}
	return nil
}

// examineAll examines all machines, writes the status of the health check, and then marks the machines.
func (r *Reconciler) examineAll(ctx context.Context, p *examination) (ctrl.Result, error) {
	targets, err := r.targets(ctx, p)
	if err == nil {
		err = validate(p.check)
	}
	if errors.As(err, new(*invalidCheck)) { // retry only after a change of the spec
		r.recorder.Eventf(p.check, nil, corev1.EventTypeWarning, reasonInvalidSpec, "Remediate", "%v", err)
		return ctrl.Result{}, r.writeStatus(ctx, p.check, invalidStatus(p.check, err))
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	verdicts, again := make([]verdict, len(targets)), time.Duration(0)
	census := newCensus(p.check, len(targets))
	for i, t := range targets {
		verdicts[i] = examine(t, p)
		again = remediation.Earliest(again, verdicts[i].again)
		if verdicts[i].isHealthy {
			census.Healthy++
		}
	}
	p.isAllowed = census.AllowsRemediation()
	if err := r.writeStatus(ctx, p.check, newCheckStatus(p.check, census, targets)); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.markAll(ctx, p, targets, verdicts); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// targets returns the machines that a health check selects, with their nodes: neither paused ones, nor those that are
// not to be remediated.
func (r *Reconciler) targets(ctx context.Context, p *examination) ([]target, error) {
	selector, err := selectorOf(p.check)
	if err != nil {
		return nil, err
	}
	var list clusterv1.MachineList
	err = r.client.List(ctx, &list, client.InNamespace(p.check.Namespace),
		client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	var targets []target
	for i := range list.Items {
		m := &list.Items[i]
		if m.Spec.ClusterName != p.check.Spec.ClusterName || contract.IsPaused(m, nil) ||
			metav1.HasAnnotation(m.ObjectMeta, clusterv1.MachineSkipRemediationAnnotation) {
			continue
		}
		t, err := newTarget(ctx, r.client, m)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// newTarget reads the Node of a Machine. If the reader is a cache, the Node belongs to it. A Node of that name that
// belongs to another Machine is ignored; one whose owner is not known is assumed to be the Machine's.
func newTarget(ctx context.Context, reader client.Reader, m *clusterv1.Machine) (target, error) {
	t, node := target{machine: m}, &corev1.Node{}
	if !m.Status.NodeRef.IsDefined() {
		return t, nil
	}
	switch err := reader.Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, node, client.UnsafeDisableDeepCopy); {
	case err == nil && deletion.OwnershipClusterAPI(node, m) != deletion.OthersNode:
		t.node = node
	case client.IgnoreNotFound(err) != nil:
		return t, fmt.Errorf("get node %s: %w", m.Status.NodeRef.Name, err)
	}
	return t, nil
}

// createRequest creates the object by which another controller remediates a machine. It has the machine's name, so that
// there is at most one. It returns the reason and message of the machine's condition ExternallyRemediated.
func (r *Reconciler) createRequest(
	ctx context.Context, ref clusterv1.MachineHealthCheckRemediationTemplateReference, m *clusterv1.Machine,
) (reason, message string, err error) {
	template := &unstructured.Unstructured{}
	template.SetGroupVersionKind(ref.GroupVersionKind())
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: ref.Name}, template); err != nil {
		message := fmt.Sprintf("Error retrieving remediation template %s %s/%s", ref.Kind, m.Namespace, ref.Name)
		return clusterv1.MachineExternallyRemediatedRemediationTemplateNotFoundReason, message,
			fmt.Errorf("get %s %s: %w", ref.Kind, ref.Name, err)
	}
	request := contract.CloneOf(template, contract.Clone{
		Namespace: m.Namespace, Name: m.Name, ClusterName: m.Spec.ClusterName,
		Owner: &metav1.OwnerReference{
			APIVersion: clusterv1.GroupVersion.String(),
			Kind:       "Machine",
			Name:       m.Name,
			UID:        m.UID,
		},
	})
	if err := r.client.Create(ctx, request); err != nil && !apierrors.IsAlreadyExists(err) {
		message := fmt.Sprintf("Error creating %s %s/%s: %s", request.GetKind(), m.Namespace, m.Name,
			printable.Line(err.Error()))
		return clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason, message,
			fmt.Errorf("create %s %s: %w", request.GetKind(), m.Name, err)
	}
	return clusterv1.MachineExternallyRemediatedWaitingForRemediationReason, "", nil
}

// byNode is the index of the cache that finds Machines by the names of their Nodes. The controller of Machines has one
// of its own, so that each can run without the other.
const byNode = "clusterapi.healthcheck.nodeName"

func addIndex(ctx context.Context, indexer client.FieldIndexer) error {
	return enqueue.AddIndex(ctx, indexer, byNode, func(m *clusterv1.Machine) []string {
		return []string{m.Status.NodeRef.Name}
	})
}

// machineChanges passes changes that affect whether a machine is healthy, or selected.
var machineChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
	return before.UID != now.UID || before.Generation != now.Generation ||
		!maps.Equal(before.Labels, now.Labels) || !maps.Equal(before.Annotations, now.Annotations) ||
		before.Status.NodeRef != now.Status.NodeRef ||
		!equality.Semantic.DeepEqual(before.Status.Conditions, now.Status.Conditions)
}}

// clusterChanges passes the beginning and the end of a pause, and changes of conditions: machines are not unhealthy
// while their Cluster starts.
var clusterChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*clusterv1.Cluster), e.ObjectNew.(*clusterv1.Cluster)
	return before.UID != now.UID || before.Generation != now.Generation ||
		!equality.Semantic.DeepEqual(before.Status.Conditions, now.Status.Conditions)
}}

// checksOfMachine returns the health checks that select a Machine.
func (r *Reconciler) checksOfMachine(ctx context.Context, machine client.Object) []reconcile.Request {
	return r.checks(ctx, machine.GetNamespace(), func(check *clusterv1.MachineHealthCheck) bool {
		selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
		return err == nil && selector.Matches(labels.Set(machine.GetLabels()))
	})
}

// checksOfCluster returns the health checks of a Cluster.
func (r *Reconciler) checksOfCluster(ctx context.Context, cluster client.Object) []reconcile.Request {
	return r.checks(ctx, cluster.GetNamespace(), func(check *clusterv1.MachineHealthCheck) bool {
		return check.Spec.ClusterName == cluster.GetName()
	})
}

// checksOfNode returns the health checks that select the Machines of a Node.
func (r *Reconciler) checksOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	var machines clusterv1.MachineList
	if err := r.client.List(ctx, &machines, client.MatchingFields{byNode: node.GetName()},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the index exists, and the cache does not fail
	}
	var found []reconcile.Request
	for i := range machines.Items {
		found = append(found, r.checksOfMachine(ctx, &machines.Items[i])...)
	}
	return found
}

func (r *Reconciler) checks(ctx context.Context, namespace string,
	isMeant func(*clusterv1.MachineHealthCheck) bool) []reconcile.Request {
	return enqueue.Requests(ctx, r.client, &clusterv1.MachineHealthCheckList{}, isMeant, client.InNamespace(namespace))
}

// An invalidCheck is a mistake in the spec of a health check. No machine is examined until the spec changes.
type invalidCheck struct{ error }

func (i *invalidCheck) Unwrap() error { return i.error }

// selectorOf returns the selector of a health check. An empty one would select all machines, so it is invalid.
func selectorOf(check *clusterv1.MachineHealthCheck) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	if err == nil && selector.Empty() {
		err = errors.New("it is empty: write labels of the machines to check")
	}
	if err != nil {
		return nil, &invalidCheck{fmt.Errorf("spec.selector: %w", err)}
	}
	return selector, nil
}

// validate returns an error if the range of unhealthy machines can't be read.
func validate(check *clusterv1.MachineHealthCheck) error {
	_, _, err := unhealthyRange(check, 0)
	return err
}

// unhealthyRange returns how many machines must be unhealthy, and how many may be, for remediation.
func unhealthyRange(check *clusterv1.MachineHealthCheck, machines int) (least, most int, err error) {
	trigger := check.Spec.Remediation.TriggerIf
	if trigger.UnhealthyInRange != "" {
		if _, err = fmt.Sscanf(trigger.UnhealthyInRange, "[%d-%d]", &least, &most); err == nil && most < least {
			err = errors.New("the second number is less than the first")
		}
		if err != nil {
			return 0, 0,
				&invalidCheck{fmt.Errorf("spec.remediation.triggerIf.unhealthyInRange is %s: write a range such as "+
					"[1-3]: %w", trigger.UnhealthyInRange, err)}
		}
		return least, most, nil
	}
	if most, err = remediation.MostUnhealthy(trigger.UnhealthyLessThanOrEqualTo, machines); err != nil {
		return 0, 0,
			&invalidCheck{fmt.Errorf("spec.remediation.triggerIf.unhealthyLessThanOrEqualTo: write a number, or a "+
				"percentage such as 40%%: %w", err)}
	}
	return 0, most, nil
}
