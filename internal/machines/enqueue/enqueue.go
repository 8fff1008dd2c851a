// Package enqueue finds the objects that the controllers of machines have to reconcile when another object changes: the
// sets that may adopt a Machine, for example, or the Machine of a node. It knows no controllers: each passes a function
// that selects objects of the cache.
//
// The order in which requests are worked on is the business of package queue.
//
// Start with Requests.
package enqueue

import (
	"context"
	"fmt"
	"slices"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Requests returns a request for each object of a list that matches. A failed list is logged. The objects belong to the
// cache: they must not be changed.
func Requests[T client.Object](ctx context.Context, reader client.Reader, list client.ObjectList, isMeant func(T) bool,
	where ...client.ListOption) []reconcile.Request {
	if err := reader.List(ctx, list, append(where, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, fmt.Sprintf("read a %T to see which a change concerns", list))
	}
	var found []reconcile.Request
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if object, ok := item.(T); ok && isMeant(object) {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
		return nil
	})
	return found
}

// Matching returns a handler of changed objects that reconciles the objects of a list that match them. The objects of
// the list are in the namespace of the changed object, or in any if that has none.
func Matching[T client.Object](
	reader client.Reader, list client.ObjectList, matches func(object T, changed client.Object) bool,
) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, changed client.Object) []reconcile.Request {
		read := list.DeepCopyObject().(client.ObjectList)
		isMeant := func(object T) bool { return matches(object, changed) }
		return Requests(ctx, reader, read, isMeant, client.InNamespace(changed.GetNamespace()))
	})
}

// AddIndex makes a cache find objects of a type by the values that a function returns, except for the empty one.
func AddIndex[T any, P interface {
	*T
	client.Object
}](ctx context.Context, indexer client.FieldIndexer, field string, values func(P) []string) error {
	err := indexer.IndexField(ctx, P(new(T)), field, func(object client.Object) []string {
		return slices.DeleteFunc(values(object.(P)), func(value string) bool { return value == "" })
	})
	if err != nil {
		return fmt.Errorf("index %T by %s: %w", new(T), field, err)
	}
	return nil
}

// A NodeIndex finds Machines of machine.openshift.io by the names of their nodes, in the cache. Each controller has an
// index with a name of its own, so that it can run with or without the others.
type NodeIndex string

// Add makes the cache of a manager keep the index.
func (i NodeIndex) Add(ctx context.Context, mgr ctrl.Manager) error {
	return AddIndex(ctx, mgr.GetFieldIndexer(), string(i), func(m *machinev1beta1.Machine) []string {
		return []string{NodeName(m)}
	})
}

// Machines returns the Machines of a node. They belong to the cache: they must not be changed.
func (i NodeIndex) Machines(ctx context.Context, reader client.Reader, node string) []machinev1beta1.Machine {
	var list machinev1beta1.MachineList
	if err := reader.List(ctx, &list, client.MatchingFields{string(i): node},
		client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "find the Machine of a node", "node", node)
	}
	return list.Items
}

// NodeName returns the name of the node that a Machine has; empty if it has none.
func NodeName(machine *machinev1beta1.Machine) string {
	return ptr.Deref(machine.Status.NodeRef, corev1.ObjectReference{}).Name
}
