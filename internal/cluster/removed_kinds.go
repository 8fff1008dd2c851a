package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// FindOrGone is like FindKind, and also finds out whether a kind was removed for good, and
// its objects with it. ErrNotServed then means that no definition has the kind, and that
// no aggregated API may have it. If the discovery of a kind fails, the kind does not count as removed.
func (c *Cluster) FindOrGone(ctx context.Context, kind schema.GroupKind) (Resource, error) {
	if found, err := c.FindKind(ctx, kind); err == nil {
		return found, nil
	}
	c.Refresh() // the cache may be outdated, and a failed discovery may succeed now
	found, err := c.FindKind(ctx, kind)
	if !errors.Is(err, ErrNotServed) {
		return found, err
	}
	if holder, holderErr := holderOf(ctx, c, kind); holderErr != nil {
		return Resource{}, fmt.Errorf("cannot determine whether kind %s is still defined: %w", kind, holderErr)
	} else if holder != "" {
		return Resource{}, &HeldKind{kind, holder}
	}
	return Resource{}, err
}

// A HeldKind is the error of FindOrGone when a kind is not served now, but a definition or an aggregated API has it.
type HeldKind struct {
	Kind   schema.GroupKind
	Holder string // a definition or an APIService
}

func (h *HeldKind) Error() string {
	return fmt.Sprintf("kind %s is not served now, but %s has it", h.Kind, h.Holder)
}

// holderOf returns the name of the definition or aggregated API that has a kind, although it is
// not served.
func holderOf(ctx context.Context, c *Cluster, kind schema.GroupKind) (string, error) {
	definition, err := c.Definition(ctx, kind)
	switch {
	case err != nil:
		return "", err
	case definition != nil:
		return "CustomResourceDefinition " + definition.GetName(), nil
	default:
		return aggregatedOf(ctx, c, kind)
	}
}

// Definition returns the CustomResourceDefinition of a kind, served or not; nil if there is none.
func (c *Cluster) Definition(ctx context.Context, kind schema.GroupKind) (*unstructured.Unstructured, error) {
	definitions, err := c.FindKind(ctx, kinds.CustomResourceDefinition)
	if errors.Is(err, ErrNotServed) {
		return nil, errors.New("the cluster serves no CustomResourceDefinitions that could be asked")
	}
	if err != nil {
		return nil, err
	}
	heads, err := c.Metadata.Resource(definitions.GroupVersionResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range heads.Items {
		name := heads.Items[i].Name // a definition is named PLURAL.GROUP
		if _, group, _ := strings.Cut(name, "."); group != kind.Group {
			continue
		}
		definition, err := c.In(definitions, "").Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue // the definition was deleted since it was listed
		}
		if err != nil {
			return nil, err
		}
		if defined, _, _ := unstructured.NestedString(definition.Object, "spec", "names",
			"kind"); defined == kind.Kind {
			return definition, nil
		}
	}
	return nil, nil
}

// aggregatedOf returns the name of the aggregated API that may have a kind: one that serves a version of
// its group, and whose discovery failed.
func aggregatedOf(ctx context.Context, c *Cluster, kind schema.GroupKind) (string, error) {
	services, err := c.FindKind(ctx, kinds.APIService)
	if errors.Is(err, ErrNotServed) {
		return "", nil // a server without aggregation
	}
	if err != nil {
		return "", err
	}
	aggregated, err := c.In(services, "").List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for i := range aggregated.Items {
		item := &aggregated.Items[i]
		group, _, _ := unstructured.NestedString(item.Object, "spec", "group")
		version, _, _ := unstructured.NestedString(item.Object, "spec", "version")
		if _, isElsewhere, _ := unstructured.NestedMap(item.Object, "spec", "service"); !isElsewhere ||
			group != kind.Group {
			continue
		}
		if !c.kinds.isListed(schema.GroupVersion{Group: group, Version: version}) {
			return "APIService " + item.GetName(), nil
		}
	}
	return "", nil
}
