package cluster

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// madeForDefinitions selects the APIServices that the API server makes for
// CustomResourceDefinitions. Those of built-in groups have the value "onstart".
const madeForDefinitions = "kube-aggregator.kubernetes.io/automanaged=true"

var apiServices = schema.GroupVersionResource{Group: kinds.APIService.Group, Version: "v1", Resource: "apiservices"}

// IsCustom reports whether a resource is defined by a CustomResourceDefinition, and is neither built-in nor
// of an aggregated API. It sends one request until Refresh or Forget, and none for learnt
// kinds. With an error, it is not known.
func (c *Cluster) IsCustom(ctx context.Context, resource Resource) (bool, error) {
	if kinds.ScopeOf(resource.GroupKind()) != kinds.Unknown {
		return false, nil
	}
	k := c.kinds
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, resources := range k.learnt {
		if slices.ContainsFunc(resources, func(r Resource) bool {
			return r.GroupVersion() == resource.GroupVersion()
		}) {
			return true, nil
		}
	}
	if k.custom == nil && k.customErr == nil {
		custom, err := customVersions(ctx, c)
		if err == nil || apierrors.IsForbidden(err) { // other errors are retried
			k.custom, k.customErr = custom, err
		} else {
			return false, customError(resource, err)
		}
	}
	if k.customErr != nil {
		return false, customError(resource, k.customErr)
	}
	return k.custom[resource.GroupVersion()], nil
}

func customError(resource Resource, err error) error {
	return fmt.Errorf("it is not known whether kind %s is a definition's: %w", resource.GroupKind(), err)
}

// customVersions returns the group versions of definitions. The label alone is not proof: a user may
// have set it on an APIService of an aggregated API, and no controller corrects it on those of built-in
// groups.
func customVersions(ctx context.Context, c *Cluster) (map[schema.GroupVersion]bool, error) {
	list, err := c.Objects.Resource(apiServices).List(ctx, metav1.ListOptions{LabelSelector: madeForDefinitions})
	if err != nil {
		return nil, err
	}
	custom := map[schema.GroupVersion]bool{}
	for i := range list.Items {
		spec, _, _ := unstructured.NestedMap(list.Items[i].Object, "spec")
		group, _ := spec["group"].(string)
		version, _ := spec["version"].(string)
		if spec["service"] == nil {
			custom[schema.GroupVersion{Group: group, Version: version}] = true
		}
	}
	return custom, nil
}
