package cluster

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// An ObjectEvent is an event of Kubernetes about an object.
type ObjectEvent struct {
	ID        kinds.ID
	UID       types.UID
	Reason    string // a single word
	IsWarning bool
	Message   string
}

// longestMessage limits the message of an event, in bytes.
const longestMessage = 1024

// RecordEvent writes an event. The server refuses it where the object's namespace is being deleted.
func RecordEvent(ctx context.Context, c *Cluster, event ObjectEvent) error {
	reference := corev1.ObjectReference{
		Kind:      event.ID.Kind,
		Namespace: event.ID.Namespace,
		Name:      event.ID.Name,
		UID:       event.UID,
	}
	// An error means that the kind is no longer served either.
	if resource, err := c.FindKind(ctx, event.ID.GroupKind()); err == nil {
		reference.APIVersion = resource.GroupVersion().String()
		if !resource.Namespaced {
			reference.Namespace = "" // manifests of cluster-scoped objects may have one
		}
	}
	// Events of cluster-scoped objects are in the default namespace, as Kubernetes has them.
	namespace := cmp.Or(reference.Namespace, metav1.NamespaceDefault)
	kind := corev1.EventTypeNormal
	if event.IsWarning {
		kind = corev1.EventTypeWarning
	}
	now := metav1.NewTime(c.Now())
	_, err := c.Client.CoreV1().Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "runlevel-", Namespace: namespace},
		InvolvedObject: reference, Reason: event.Reason, Message: printable.Truncate(event.Message, longestMessage),
		Type:  kind,
		Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: FieldManager}, ReportingController: FieldManager,
	}, metav1.CreateOptions{})
	return err
}
