// Package enqueue finds what the controllers of machines have to look at when another object changes: which sets may adopt a
// Machine, for example, or whose Machine a node is. It knows no controllers: each says which of the objects that a cache has
// it means.
//
// The order in which requests are worked on is the business of package queue.
//
// Requests is the call to start from.
package enqueue

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Requests returns a request for each object of a list that is meant. A list that can't be read is told in the log. The objects belong
// to the cache: they are not to be changed.
func Requests[T client.Object](ctx context.Context, reader client.Reader, list client.ObjectList, isMeant func(T) bool, where ...client.ListOption) []reconcile.Request {
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
