package setup

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// stays reports whether an uninstall keeps an object: definitions and namespaces hold the release and its record.
func stays(object *unstructured.Unstructured) bool {
	kind := object.GroupVersionKind().GroupKind()
	return kind == kinds.CustomResourceDefinition || kind == kinds.Namespace
}

// Uninstall deletes the objects in the opposite order of Install. It waits until each is deleted, for up to timeout.
func (i *Installer) Uninstall(ctx context.Context, timeout time.Duration) error {
	monitoring, err := i.monitoring(ctx)
	if err != nil {
		return err
	}
	objects := append(install.Objects(), monitoring...)
	slices.Reverse(objects)
	for _, item := range objects {
		if !stays(item) {
			err = i.remove(ctx, item, timeout)
		}
		if err != nil {
			return err
		}
	}
	staying := slices.DeleteFunc(objects, func(item *unstructured.Unstructured) bool { return !stays(item) })
	for _, item := range append([]*unstructured.Unstructured{settingsObject()}, staying...) {
		if err := i.noteStays(ctx, item); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes an object, and waits until the API server has removed it. A Deployment is deleted after its pods:
// until then they may release the Lease, and a release with the Deployment can't create it again.
func (i *Installer) remove(ctx context.Context, item *unstructured.Unstructured, timeout time.Duration) error {
	id := idOf(item)
	resource, err := i.Cluster.Find(ctx, item.GroupVersionKind())
	if err != nil {
		return err
	}
	objects := i.Cluster.In(resource, id.Namespace)
	head, err := i.Cluster.GetMetadata(ctx, resource, id.Namespace, id.Name)
	if err == nil {
		options := metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &head.UID},
			PropagationPolicy: new(metav1.DeletePropagationForeground),
		}
		if i.IsDryRun {
			options.DryRun = []string{metav1.DryRunAll}
		}
		err = objects.Delete(ctx, id.Name, options)
	}
	switch {
	case apierrors.IsNotFound(err):
		i.note(id, object.Absent, "")
		return nil
	case err != nil:
		return fmt.Errorf("delete %s: %w", id, err)
	}
	if !i.IsDryRun {
		waiting, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it is still there after %s", timeout))
		defer cancel()
		if _, err := objectwatch.Await(waiting, objects, id.Name, func(seen *unstructured.Unstructured) bool {
			return seen == nil || seen.GetUID() != head.UID
		}); err != nil {
			return fmt.Errorf("delete %s: %w", id, err)
		}
	}
	i.note(id, object.Deleted, "")
	return nil
}

// noteStays reports an object that stays.
func (i *Installer) noteStays(ctx context.Context, item *unstructured.Unstructured) error {
	id := idOf(item)
	resource, err := i.Cluster.Find(ctx, item.GroupVersionKind())
	if err != nil {
		return err
	}
	_, err = i.Cluster.GetMetadata(ctx, resource, id.Namespace, id.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get %s: %w", id, err)
	}
	i.note(id, object.Left, "")
	return nil
}
