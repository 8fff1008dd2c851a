// Package healthcheck deletes Machines whose nodes are unhealthy by the MachineHealthChecks of machine.openshift.io, so
// that their MachineSet replaces them; or requests external remediation. It does so only while few are unhealthy.
//
// Start with SetupWithManager. examine decides whether a machine is unhealthy, and when to check again. It is pure:
// nothing is polled.
package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/remediation"
)

// PausedAnnotation is the annotation of a paused MachineHealthCheck.
const PausedAnnotation = "cluster.x-k8s.io/paused"

// A reconciler remediates the unhealthy machines of MachineHealthChecks.
type reconciler struct {
	client   client.Client
	server   client.Reader // reads past the cache
	recorder events.EventRecorder
}

// SetupWithManager adds the controller and the index that it needs to a manager.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := errors.Join(byNode.Add(ctx, mgr), registerMetrics()); err != nil {
		return err
	}
	r := &reconciler{
		client: mgr.GetClient(), server: mgr.GetAPIReader(),
		recorder: mgr.GetEventRecorder("machinehealthcheck-controller"),
	}
	return ctrl.NewControllerManagedBy(mgr).Named("machinehealthcheck").
		For(&machinev1beta1.MachineHealthCheck{}).
		Watches(&machinev1beta1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.checksOfMachine),
			builder.WithPredicates(machineChanges)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.checksOfNode),
			builder.WithPredicates(remediation.NodeChanges)).
		Complete(r)
}

// Reconcile examines the machines of a health check, remediates the unhealthy ones, and reconciles again when the
// next timeout ends.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	check := &machinev1beta1.MachineHealthCheck{}
	if err := r.client.Get(ctx, request.NamespacedName, check); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if _, isPaused := check.Annotations[PausedAnnotation]; isPaused || check.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	checked, err := r.checkedMachines(ctx, check)
	if err != nil {
		return ctrl.Result{}, err
	}
	now, limit := time.Now(), 0
	if limit, err = remediation.MostUnhealthy(check.Spec.MaxUnhealthy, len(checked)); err != nil {
		r.recorder.Eventf(check, nil, corev1.EventTypeWarning, "InvalidSpec", "Remediate",
			"read maxUnhealthy: %v; write a number, or a percentage such as 40%%", err)
		return ctrl.Result{}, reconcile.TerminalError(err) // retry only after a change of the spec
	}
	counted, again := remediation.Census{Machines: len(checked), Most: limit}, time.Duration(0)
	var healthy, unhealthy []checkedMachine
	for _, t := range checked {
		found := examine(t, check.Spec, now)
		again = remediation.Earliest(again, found.again)
		switch {
		case found.isHealthy:
			healthy = append(healthy, t)
		case found.unhealthy != "":
			unhealthy = append(unhealthy, t)
		}
	}
	counted.Healthy = len(healthy)
	if err := r.writeStatus(ctx, check, counted, now); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !counted.AllowsRemediation() {
		unhealthy = nil // external remediation of healthy ones is ended nevertheless
	}
	if err := r.remediateAll(ctx, check, healthy, unhealthy); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// checkedMachines returns the machines that a health check selects, with their nodes.
func (r *reconciler) checkedMachines(ctx context.Context,
	check *machinev1beta1.MachineHealthCheck) ([]checkedMachine, error) {
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("read the selector: %w", err))
	}
	var list machinev1beta1.MachineList
	err = r.client.List(ctx, &list, client.InNamespace(check.Namespace),
		client.MatchingLabelsSelector{Selector: selector},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	var checked []checkedMachine
	for i := range list.Items {
		t, err := newCheckedMachine(ctx, r.client, &list.Items[i])
		if err != nil {
			return nil, err
		}
		checked = append(checked, t)
	}
	return checked, nil
}

// newCheckedMachine reads the node of a Machine. If the reader is a cache, the node belongs to it. A node of that name
// that belongs to another Machine is ignored; one whose owner is not known is assumed to be the Machine's.
func newCheckedMachine(ctx context.Context, reader client.Reader, m *machinev1beta1.Machine) (checkedMachine, error) {
	t, name := checkedMachine{machine: m}, enqueue.NodeName(m)
	if name == "" {
		return t, nil
	}
	node := &corev1.Node{}
	switch err := reader.Get(ctx, client.ObjectKey{Name: name}, node, client.UnsafeDisableDeepCopy); {
	case err == nil && deletion.OwnershipOpenShift(node, m) != deletion.OthersNode:
		t.node = node
	case client.IgnoreNotFound(err) != nil:
		return t, fmt.Errorf("get node %s: %w", name, err)
	}
	return t, nil
}

// writeStatus writes the status, if it changes, and records an event when remediation becomes restricted.
func (r *reconciler) writeStatus(ctx context.Context, check *machinev1beta1.MachineHealthCheck,
	c remediation.Census, now time.Time) error {
	next := nextStatus(check, c, now)
	if equality.Semantic.DeepEqual(check.Status, next) {
		return nil
	}
	before := check.DeepCopy()
	wasRestricted := isRestricted(check.Status)
	check.Status = next
	if err := r.client.Status().Patch(ctx, check, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	if isRestricted(next) && !wasRestricted {
		r.recorder.Eventf(check, nil, corev1.EventTypeWarning, "RemediationRestricted", "Remediate",
			"Remediation restricted due to exceeded number of unhealthy machines (total: %d, unhealthy: %d, "+
				"maxUnhealthy: %v)",
			c.Machines, c.Unhealthy(), check.Spec.MaxUnhealthy)
	}
	return nil
}

// writeProblem writes whether external remediation can be requested.
func (r *reconciler) writeProblem(ctx context.Context, check *machinev1beta1.MachineHealthCheck,
	problem error) error {
	before := check.DeepCopy()
	check.Status.Conditions = withProblem(check.Status.Conditions, problem, time.Now())
	if equality.Semantic.DeepEqual(before.Status, check.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, check, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// remediateAll ends the external remediation of healthy machines, and remediates each unhealthy machine.
func (r *reconciler) remediateAll(
	ctx context.Context, check *machinev1beta1.MachineHealthCheck, healthy, unhealthy []checkedMachine,
) error {
	requested, problem := r.remediations(ctx, check)
	if problem == nil {
		problem = errors.Join(r.endRemediations(ctx, requested, healthy),
			r.remediateEach(ctx, check, requested, unhealthy))
	}
	return errors.Join(problem, r.writeProblem(ctx, check, problem))
}

// remediateEach remediates machines, each independently of the others, except for those with a remediation object.
func (r *reconciler) remediateEach(
	ctx context.Context, check *machinev1beta1.MachineHealthCheck, requested remediation.Requests,
	unhealthy []checkedMachine,
) error {
	var problems []error
	for _, t := range unhealthy {
		if t.machine.DeletionTimestamp != nil || requested[t.machine.Name] != nil {
			continue
		}
		machine, reason, err := r.confirm(ctx, check, t.machine)
		if err == nil && reason != "" {
			err = r.remediate(ctx, check, machine, reason)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("remediate Machine %s: %w", t.machine.Name, err))
		}
	}
	return errors.Join(problems...)
}

// confirm reads a Machine past the cache, and returns it with the reason why it is unhealthy; empty if it is not, or no
// longer. The caches of Machines and of nodes are filled one after the other: a new node may be missing in either.
func (r *reconciler) confirm(
	ctx context.Context, check *machinev1beta1.MachineHealthCheck, seen *machinev1beta1.Machine,
) (*machinev1beta1.Machine, string, error) {
	machine := &machinev1beta1.Machine{}
	err := r.server.Get(ctx, client.ObjectKeyFromObject(seen), machine)
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("get it: %w", err)
	}
	if machine.UID != seen.UID || machine.DeletionTimestamp != nil {
		return nil, "", nil
	}
	now, err := newCheckedMachine(ctx, r.server, machine)
	if err != nil {
		return nil, "", err
	}
	return machine, examine(now, check.Spec, time.Now()).unhealthy, nil
}

// byNode is the index that Machines are found by, in the cache.
const byNode enqueue.NodeIndex = "healthcheck.nodeName"

// machineChanges passes changes that may make a machine healthy or unhealthy, or have it selected.
var machineChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*machinev1beta1.Machine), e.ObjectNew.(*machinev1beta1.Machine)
	return before.UID != now.UID || before.Generation != now.Generation ||
		!maps.Equal(before.Labels, now.Labels) || !maps.Equal(before.Annotations, now.Annotations) ||
		!equality.Semantic.DeepEqual(before.OwnerReferences, now.OwnerReferences) ||
		!equality.Semantic.DeepEqual(before.Status.NodeRef, now.Status.NodeRef) ||
		!equality.Semantic.DeepEqual(before.Status.Phase, now.Status.Phase) ||
		now.Status.NodeRef == nil && !before.Status.LastUpdated.Equal(now.Status.LastUpdated)
}}

// checksOfMachine returns the health checks that select a Machine.
func (r *reconciler) checksOfMachine(ctx context.Context, m client.Object) []reconcile.Request {
	return enqueue.Requests(ctx, r.client, &machinev1beta1.MachineHealthCheckList{},
		func(check *machinev1beta1.MachineHealthCheck) bool {
			selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
			return err == nil && selector.Matches(labels.Set(m.GetLabels()))
		}, client.InNamespace(m.GetNamespace()))
}

// checksOfNode returns the health checks that select the Machine of a node.
func (r *reconciler) checksOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	var found []reconcile.Request
	for _, m := range byNode.Machines(ctx, r.client, node.GetName()) {
		found = append(found, r.checksOfMachine(ctx, &m)...)
	}
	return found
}
