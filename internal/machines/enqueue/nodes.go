package enqueue

import (
	"context"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A NodeIndex finds Machines of machine.openshift.io by the names of their nodes, in the cache. Each controller has an index
// with a name of its own, so that it can run with or without the others.
type NodeIndex string

// Add has the cache of a manager keep the index.
func (i NodeIndex) Add(ctx context.Context, mgr ctrl.Manager) error {
	return AddIndex(ctx, mgr.GetFieldIndexer(), string(i), func(m *machinev1beta1.Machine) []string { return []string{NodeName(m)} })
}

// Machines returns the Machines of a node. They belong to the cache: they must not be changed.
func (i NodeIndex) Machines(ctx context.Context, reader client.Reader, node string) []machinev1beta1.Machine {
	var list machinev1beta1.MachineList
	if err := reader.List(ctx, &list, client.MatchingFields{string(i): node}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "find the Machine of a node", "node", node)
	}
	return list.Items
}

// NodeName returns the name of the node that a Machine has; empty if it has none.
func NodeName(machine *machinev1beta1.Machine) string {
	return ptr.Deref(machine.Status.NodeRef, corev1.ObjectReference{}).Name
}
