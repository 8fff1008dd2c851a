package ownership

import (
	"cmp"
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// autoscalerKind is that of objects which say how others are scaled.
var autoscalerKind = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}

// replicas is the field in which an object says how many of it there are.
var replicas = []string{"spec", "replicas"}

// path is that field's.
var path = fieldpath.MakePathOrDie("spec", "replicas")

// A ScaleTargets is what autoscalers scale, by autoscaler.
type ScaleTargets map[kinds.ID]kinds.ID

// Has says whether any of them scales an object.
func (s ScaleTargets) Has(id kinds.ID) bool {
	for _, target := range s {
		if target == id {
			return true
		}
	}
	return false
}

// Add takes in an object, as it is to be or as it is, if it scales another one.
func (s ScaleTargets) Add(object *unstructured.Unstructured) {
	if target, scales := kinds.ScaleTarget(object); scales {
		self := object.GroupVersionKind()
		s[kinds.ID{Group: self.Group, Kind: self.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}] = target
	}
}

// Remove forgets an autoscaler that is to go.
func (s ScaleTargets) Remove(autoscaler kinds.ID) { delete(s, autoscaler) }

// FindScaleTargets asks the cluster what autoscalers scale: in the whole of it if that is
// allowed, and else in some namespaces. What it was allowed to see is returned with the
// error if it was not allowed to see all.
func FindScaleTargets(ctx context.Context, c *cluster.Cluster, namespaces []string) (ScaleTargets, error) {
	scaled := ScaleTargets{}
	in, err := c.FindKind(ctx, autoscalerKind)
	if errors.Is(err, cluster.ErrNotServed) {
		return scaled, nil
	}
	if err != nil {
		return scaled, err
	}
	err = scaled.find(ctx, c, in, metav1.NamespaceAll)
	if !apierrors.IsForbidden(err) {
		return scaled, err
	}
	var forbidden error
	for _, namespace := range namespaces {
		err := scaled.find(ctx, c, in, namespace)
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, err
		}
		forbidden = cmp.Or(forbidden, err)
	}
	return scaled, forbidden
}

// find takes in the autoscalers of a namespace that are to stay.
func (s ScaleTargets) find(ctx context.Context, c *cluster.Cluster, in cluster.Resource, namespace string) error {
	list, err := c.Objects.Resource(in.GroupVersionResource).Namespace(namespace).List(ctx, metav1.ListOptions{})
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

// Concerns says whether it matters for an object what autoscalers scale: its manifest says
// how many of it there are, or has said so before.
func Concerns(manifest *unstructured.Unstructured, live metav1.Object) bool {
	_, found, _ := unstructured.NestedFieldNoCopy(manifest.Object, replicas...)
	return found || live != nil && Owns(live.GetManagedFields(), path)
}

// AreReplicasOurs says whether no other manager has set how many there are of a live object.
func AreReplicasOurs(live metav1.Object) bool {
	entries := live.GetManagedFields()
	return Owns(entries, path) && len(Owners(entries, path)) == 0
}

// LeaveReplicas takes out of a draft how many there are to be, unless only we have said that
// until now: then the server would take the field back to its default, which is 1. So what
// is there is said again, until an autoscaler has said it.
func LeaveReplicas(draft *unstructured.Unstructured, live *unstructured.Unstructured) {
	unstructured.RemoveNestedField(draft.Object, replicas...)
	if live == nil || !AreReplicasOurs(live) {
		return
	}
	if count, found := Replicas(live); found {
		SetReplicas(draft, count)
	}
}

// Replicas says how many there are to be of an object, if it says that.
func Replicas(object *unstructured.Unstructured) (count int64, found bool) {
	count, found, _ = unstructured.NestedInt64(object.Object, replicas...)
	return count, found
}

// SetReplicas makes a draft say how many there are to be.
func SetReplicas(draft *unstructured.Unstructured, count int64) {
	_ = unstructured.SetNestedField(draft.Object, count, replicas...) // which fails where spec is no mapping: the server will say so
}
