package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/kinds"
)

// FindOrGone is FindKind for those to whom it matters that a kind is gone for good, and
// its objects with it. ErrNotServed then means that no definition has the kind and no
// aggregated API serves its group. What can't be asked for is not gone.
func (c *Cluster) FindOrGone(ctx context.Context, kind schema.GroupKind) (Resource, error) {
	found, err := c.FindKind(ctx, kind)
	if !errors.Is(err, ErrNotServed) {
		return found, err
	}
	c.Refresh() // what is known may be old
	if found, err = c.FindKind(ctx, kind); !errors.Is(err, ErrNotServed) {
		return found, err
	}
	if held, holdsErr := c.heldBy(ctx, kind); holdsErr != nil {
		return Resource{}, fmt.Errorf("it is not known whether kind %s is gone: %w", kind, holdsErr)
	} else if held != "" {
		return Resource{}, fmt.Errorf("kind %s is not served now, but %s has it", kind, held)
	}
	return Resource{}, err
}

// heldBy names the definition or the aggregated API that a kind is of, although it is
// not served.
func (c *Cluster) heldBy(ctx context.Context, kind schema.GroupKind) (string, error) {
	definitions, err := c.FindKind(ctx, kinds.CustomResourceDefinition)
	if err != nil {
		return "", err
	}
	heads, err := c.Metadata.Resource(definitions.GroupVersionResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for i := range heads.Items {
		name := heads.Items[i].Name // which is plural.group
		if _, group, _ := strings.Cut(name, "."); group != kind.Group {
			continue
		}
		definition, err := c.Objects.Resource(definitions.GroupVersionResource).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if defined, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind"); defined == kind.Kind {
			return "CustomResourceDefinition " + name, nil
		}
	}
	services, err := c.FindKind(ctx, kinds.APIService)
	if errors.Is(err, ErrNotServed) {
		return "", nil // a server without aggregation
	}
	if err != nil {
		return "", err
	}
	aggregated, err := c.Objects.Resource(services.GroupVersionResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for i := range aggregated.Items {
		item := &aggregated.Items[i]
		group, _, _ := unstructured.NestedString(item.Object, "spec", "group")
		if _, isElsewhere, _ := unstructured.NestedMap(item.Object, "spec", "service"); isElsewhere && group == kind.Group {
			return "APIService " + item.GetName(), nil
		}
	}
	return "", nil
}
