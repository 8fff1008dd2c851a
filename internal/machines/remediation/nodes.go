package remediation

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// NodeChanges passes changes of conditions and of the fields that identify the owner of a Node, but no heartbeats.
var NodeChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return before.UID != now.UID || before.Spec.ProviderID != now.Spec.ProviderID ||
		deletion.OwnerOfNode(before) != deletion.OwnerOfNode(now) || !maps.Equal(statesOf(before), statesOf(now))
}}

// A state is the status of a condition, and since when it has it.
type state struct {
	status corev1.ConditionStatus
	since  int64
}

func statesOf(node *corev1.Node) map[corev1.NodeConditionType]state {
	all := map[corev1.NodeConditionType]state{}
	for _, c := range node.Status.Conditions {
		all[c.Type] = state{c.Status, c.LastTransitionTime.Unix()}
	}
	return all
}
