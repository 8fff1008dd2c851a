package ownership

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
)

// AutoscalerKind is that of objects which say how others are scaled.
var AutoscalerKind = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}

// replicas is the field in which an object says how many of it there are.
var replicas = []string{"spec", "replicas"}

// path is that field's.
var path = fieldpath.MakePathOrDie("spec", "replicas")

// A Scaled is the objects that autoscalers scale.
type Scaled map[kinds.ID]bool

// Add takes in what an autoscaler scales.
func (s Scaled) Add(autoscaler *unstructured.Unstructured) {
	target, _, _ := unstructured.NestedStringMap(autoscaler.Object, "spec", "scaleTargetRef")
	kind := schema.FromAPIVersionAndKind(target["apiVersion"], target["kind"])
	s[kinds.ID{Group: kind.Group, Kind: kind.Kind, Namespace: autoscaler.GetNamespace(), Name: target["name"]}] = true
}

// FindScaled asks the cluster what autoscalers scale: in the whole of it if that is
// allowed, and else in some namespaces.
func FindScaled(ctx context.Context, c *cluster.Cluster, namespaces []string) (Scaled, error) {
	scaled := Scaled{}
	in, err := c.FindKind(ctx, AutoscalerKind)
	if errors.Is(err, cluster.ErrNotServed) {
		return scaled, nil
	}
	if err != nil {
		return nil, err
	}
	err = scaled.find(ctx, c, in, metav1.NamespaceAll)
	if !apierrors.IsForbidden(err) {
		return scaled, err
	}
	for _, namespace := range namespaces {
		if err := scaled.find(ctx, c, in, namespace); err != nil {
			return nil, err
		}
	}
	return scaled, nil
}

func (s Scaled) find(ctx context.Context, c *cluster.Cluster, in cluster.Resource, namespace string) error {
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

// AreReplicasOurs says whether nobody but us has said how many there are of a live object.
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
	if count, found, _ := unstructured.NestedInt64(live.Object, replicas...); found {
		_ = unstructured.SetNestedField(draft.Object, count, replicas...) // spec is a mapping: it has just been read as one
	}
}
