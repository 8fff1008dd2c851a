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
	Reason    string // in one word
	IsWarning bool
	Message   string
}

// longestMessage is how long the message of an event may be.
const longestMessage = 1024

// RecordEvent writes an event. The server refuses it where the object's namespace is being deleted.
func (c *Cluster) RecordEvent(ctx context.Context, news ObjectEvent) error {
	about := corev1.ObjectReference{Kind: news.ID.Kind, Namespace: news.ID.Namespace, Name: news.ID.Name, UID: news.UID}
	if resource, err := c.FindKind(ctx, news.ID.GroupKind()); err == nil { // else the kind is gone, too
		about.APIVersion = resource.GroupVersion().String()
		if !resource.Namespaced {
			about.Namespace = "" // which manifests may say all the same
		}
	}
	// Those of cluster-wide objects are where Kubernetes has them.
	namespace := cmp.Or(about.Namespace, metav1.NamespaceDefault)
	kind := corev1.EventTypeNormal
	if news.IsWarning {
		kind = corev1.EventTypeWarning
	}
	now := metav1.NewTime(c.Now())
	_, err := c.Client.CoreV1().Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "runlevel-", Namespace: namespace},
		InvolvedObject: about, Reason: news.Reason, Message: printable.Truncate(news.Message, longestMessage), Type: kind,
		Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: FieldManager}, ReportingController: FieldManager,
	}, metav1.CreateOptions{})
	return err
}
