package tombstone

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
)

// What is told of a delete, as the reason of an event of Kubernetes.
type What string

// What there is to tell.
const (
	Requested        What = "DeleteRequested"
	StillTerminating What = "StillTerminating"
	Gone             What = "Deleted"
	BackAgain        What = "Reappeared"
)

// News are of an object that is to go, or has gone.
type News struct {
	ID      kinds.ID
	UID     types.UID
	What    What
	Message string
}

// Announce writes an event of Kubernetes. It can't be written where the object's namespace
// goes, too.
func (n News) Announce(ctx context.Context, c *cluster.Cluster) error {
	about := corev1.ObjectReference{Kind: n.ID.Kind, Namespace: n.ID.Namespace, Name: n.ID.Name, UID: n.UID}
	if resource, err := c.FindKind(ctx, n.ID.GroupKind()); err == nil { // else the kind is gone, too
		about.APIVersion = resource.GroupVersion().String()
		if !resource.Namespaced {
			about.Namespace = "" // which manifests may say all the same
		}
	}
	// Those of cluster-wide objects are where Kubernetes has them.
	namespace := cmp.Or(about.Namespace, metav1.NamespaceDefault)
	kind := corev1.EventTypeNormal
	if n.What == StillTerminating || n.What == BackAgain {
		kind = corev1.EventTypeWarning
	}
	now := metav1.NewTime(c.Now())
	_, err := c.Client.CoreV1().Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "runlevel-", Namespace: namespace},
		InvolvedObject: about, Reason: string(n.What), Message: n.Message, Type: kind,
		Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: cluster.FieldManager}, ReportingController: cluster.FieldManager,
	}, metav1.CreateOptions{})
	return err
}
