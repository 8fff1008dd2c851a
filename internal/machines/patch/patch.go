// Package patch writes objects of the API with a lock: a write fails with a conflict if the object has changed since it
// was read, so that it can neither undo another controller's change of a list nor miss a hook that was added meanwhile.
// The caller repeats its pass after a conflict.
//
// The package decides nothing, and retries nothing. Start with WithLock. AddFinalizer and RemoveFinalizer are writes of
// their own: the actions that a finalizer guards come after the first, and before the second.
package patch

import (
	"context"
	"fmt"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// WithLock writes the changes of an object since base, except for its status.
func WithLock(ctx context.Context, c client.Writer, object, base client.Object) error {
	return c.Patch(ctx, object, since(base))
}

// StatusWithLock writes the changes of the status of an object since base.
func StatusWithLock(ctx context.Context, c client.StatusClient, object, base client.Object) error {
	return c.Status().Patch(ctx, object, since(base))
}

// DeleteWithLock deletes an object that has not changed since it was read.
func DeleteWithLock(ctx context.Context, c client.Writer, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	return c.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
}

// AddFinalizer adds a finalizer to an object that lacks it.
func AddFinalizer(ctx context.Context, c client.Writer, object client.Object, name string) error {
	base := object.DeepCopyObject().(client.Object)
	if !controllerutil.AddFinalizer(object, name) {
		return nil
	}
	if err := WithLock(ctx, c, object, base); err != nil {
		return fmt.Errorf("add the finalizer %s: %w", name, err)
	}
	return nil
}

// RemoveFinalizer removes a finalizer from an object that has it.
func RemoveFinalizer(ctx context.Context, c client.Writer, object client.Object, name string) error {
	base := object.DeepCopyObject().(client.Object)
	if !controllerutil.RemoveFinalizer(object, name) {
		return nil
	}
	if err := WithLock(ctx, c, object, base); err != nil {
		return fmt.Errorf("remove the finalizer %s: %w", name, err)
	}
	return nil
}

func since(base client.Object) client.Patch {
	return client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
}

var lackOfRights = regexp.MustCompile(` is forbidden: User ".*" cannot \S+ (resource|path) "`)

// IsLackOfRights reports whether RBAC has refused a request: admission and quotas answer with the same reason, in other
// words.
func IsLackOfRights(err error) bool {
	return apierrors.IsForbidden(err) && lackOfRights.MatchString(err.Error())
}
