package ownership

import (
	"context"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// replicas is the field with the number of replicas.
var replicas = []string{"spec", "replicas"}

// path is the path of replicas.
var path = fieldpath.MakePathOrDie("spec", "replicas")

// A ScaleTargets contains the targets of autoscalers, keyed by autoscaler.
type ScaleTargets map[kinds.ID]kinds.ID

// Has reports whether an autoscaler scales an object.
func (s ScaleTargets) Has(id kinds.ID) bool {
	for _, target := range s {
		if target == id {
			return true
		}
	}
	return false
}

// Add adds the target of an object, desired or live, if it is an autoscaler.
func (s ScaleTargets) Add(object *unstructured.Unstructured) {
	if target, scales := kinds.ScaleTarget(object); scales {
		s[kinds.IDOf(object)] = target
	}
}

// FindScaleTargets lists the autoscalers: in the whole cluster if it is allowed, and otherwise in some namespaces. If
// not all could be listed, it returns the others with the error.
func FindScaleTargets(ctx context.Context, c *cluster.Cluster, namespaces []string) (ScaleTargets, error) {
	scaled := ScaleTargets{}
	resource, err := c.FindKind(ctx, kinds.HorizontalPodAutoscaler)
	if errors.Is(err, cluster.ErrNotServed) {
		return scaled, nil
	}
	if err != nil {
		return scaled, err
	}
	err = scaled.find(ctx, c, resource, metav1.NamespaceAll)
	if !apierrors.IsForbidden(err) {
		return scaled, err
	}
	var forbidden error
	for _, namespace := range namespaces {
		err := scaled.find(ctx, c, resource, namespace)
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, err
		}
		if forbidden == nil {
			forbidden = err
		}
	}
	return scaled, forbidden
}

// find adds the autoscalers of a namespace that are not being deleted.
func (s ScaleTargets) find(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, namespace string) error {
	list, err := c.Objects.Resource(resource.GroupVersionResource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if list.Items[i].GetDeletionTimestamp() == nil {
			s.Add(&list.Items[i])
		}
	}
	return nil
}

// HasReplicas reports whether autoscalers matter for an object: its manifest sets
// its replicas, or has set them before.
func HasReplicas(manifest *unstructured.Unstructured, live metav1.Object) bool {
	_, found, _ := unstructured.NestedFieldNoCopy(manifest.Object, replicas...)
	return found || live != nil && Owns(live.GetManagedFields(), path)
}

// AreReplicasOurs reports whether only we own the replicas of a live object.
func AreReplicasOurs(live metav1.Object) bool {
	entries := live.GetManagedFields()
	return Owns(entries, path) && len(Owners(entries, path)) == 0
}

// WasScaled reports whether another manager has set the replicas of a live object by its scale.
func WasScaled(live metav1.Object) bool {
	return live != nil && slices.ContainsFunc(Owners(live.GetManagedFields(), path), func(owner string) bool {
		return strings.HasSuffix(owner, "/scale")
	})
}

// OmitReplicas removes the replicas from a draft. If only we own them,
// the server would reset the field to its default, which is 1. So the
// live number is applied again, until an autoscaler has set the field.
func OmitReplicas(draft *unstructured.Unstructured, live *unstructured.Unstructured) {
	unstructured.RemoveNestedField(draft.Object, replicas...)
	if live == nil || !AreReplicasOurs(live) {
		return
	}
	if count, found := Replicas(live); found {
		SetReplicas(draft, count)
	}
}

// Replicas returns spec.replicas of an object, if it is set.
func Replicas(object *unstructured.Unstructured) (count int64, found bool) {
	count, found, _ = unstructured.NestedInt64(object.Object, replicas...)
	return count, found
}

// SetReplicas sets spec.replicas of a draft.
func SetReplicas(draft *unstructured.Unstructured, count int64) {
	// The server refuses a spec that is not a mapping.
	_ = unstructured.SetNestedField(draft.Object, count, replicas...)
}
