package tombstone

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// Observe returns the state of an object. requested is the UID of the object whose delete was requested; "" if it was
// never seen.
func Observe(ctx context.Context, c *cluster.Cluster, object kinds.ID, requested types.UID) Observation {
	seen := Observation{Requested: requested}
	resource, head, err := find(ctx, c, object)
	switch {
	case errors.Is(err, cluster.ErrNotServed), apierrors.IsNotFound(err) && !isNoSuchResource(err):
		seen.State = Absent
	case err != nil:
		seen.State, seen.Why, seen.Err = Unknown, printable.Line(err.Error()), err
	case head.DeletionTimestamp != nil:
		seen.State, seen.UID = Terminating, head.UID
		seen.Since = requestedAt(head)
		seen.Finalizers = printableLines(head.Finalizers)
		seen.readContents(ctx, c, resource, object)
	case requested != "" && head.UID != requested:
		seen.State, seen.UID, seen.MadeBy = Reappeared, head.UID, creator(head)
	default:
		seen.State, seen.UID, seen.MadeBy = Present, head.UID, creator(head)
	}
	if seen.UID != "" {
		seen.Release, _ = objectmeta.Of(resource, head).OtherOwner("")
	}
	return seen
}

// find reads the metadata of an object. The cached resource of its kind may be outdated, so the kind is looked up again
// if the resource is not served.
func find(ctx context.Context, c *cluster.Cluster,
	object kinds.ID) (cluster.Resource, *metav1.PartialObjectMetadata, error) {
	resource, head, err := findOnce(ctx, c, object)
	if isNoSuchResource(err) {
		c.Forget(object.GroupKind())
		return findOnce(ctx, c, object)
	}
	return resource, head, err
}

func findOnce(ctx context.Context, c *cluster.Cluster,
	object kinds.ID) (cluster.Resource, *metav1.PartialObjectMetadata, error) {
	resource, err := c.FindOrGone(ctx, object.GroupKind())
	if err != nil {
		return resource, nil, err
	}
	if resource.Namespaced && object.Namespace == "" {
		return resource, nil, fmt.Errorf("kind %s is namespaced, and no namespace is given", object.GroupKind())
	}
	head, err := c.GetMetadata(ctx, resource, object.Namespace, object.Name)
	return resource, head, err
}

// isNoSuchResource reports whether the server does not serve the path, so that its 404 is not about the
// object.
func isNoSuchResource(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// requestedAt returns when the delete of an object was requested: its deletionTimestamp is when its grace period ends.
func requestedAt(head *metav1.PartialObjectMetadata) time.Time {
	var grace time.Duration
	if seconds := head.DeletionGracePeriodSeconds; seconds != nil {
		grace = time.Duration(*seconds) * time.Second
	}
	return head.DeletionTimestamp.Add(-grace)
}

// creator returns the field manager that created an object, and when. It is the manager of the oldest entry; of several
// in the same second, of one without a subresource.
func creator(head *metav1.PartialObjectMetadata) string {
	var oldest *metav1.ManagedFieldsEntry
	for i := range head.ManagedFields {
		entry := &head.ManagedFields[i]
		if entry.Time == nil {
			continue
		}
		if oldest == nil || entry.Time.Before(oldest.Time) ||
			entry.Time.Equal(oldest.Time) && oldest.Subresource != "" {
			oldest = entry
		}
	}
	manager := "an unknown manager"
	if oldest != nil {
		manager = printable.Line(oldest.Manager)
	}
	return fmt.Sprintf("%s at %s", manager, head.CreationTimestamp.UTC().Format(time.RFC3339))
}

func printableLines(texts []string) []string {
	lines := make([]string, len(texts))
	for i, text := range texts {
		lines[i] = printable.Line(text)
	}
	return lines
}
