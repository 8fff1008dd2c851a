package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// Get reads an object of any kind. The error is ErrNotServed if the cluster does not serve the kind.
func (c *Cluster) Get(ctx context.Context, id kinds.ID) (*unstructured.Unstructured, error) {
	resource, err := c.FindKind(ctx, id.GroupKind())
	if err != nil {
		return nil, err
	}
	return c.In(resource, id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
}

// List reads the objects of any kind in a namespace, or in all if it is "", by a selector of labels. The error is
// ErrNotServed if the cluster does not serve the kind.
func (c *Cluster) List(ctx context.Context, kind schema.GroupKind, namespace,
	selector string) ([]unstructured.Unstructured, error) {
	resource, err := c.FindKind(ctx, kind)
	if err != nil {
		return nil, err
	}
	found, err := c.In(resource, namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return found.Items, nil
}
