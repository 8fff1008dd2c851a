package healthcheck

import (
	"context"
	"maps"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/enqueue"
)

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
