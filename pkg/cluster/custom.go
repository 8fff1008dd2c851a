package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/kinds"
)

// madeForDefinitions selects the APIServices that the API server makes for
// CustomResourceDefinitions. Those of its own groups say "onstart".
const madeForDefinitions = "kube-aggregator.kubernetes.io/automanaged=true"

var apiServices = schema.GroupVersionResource{Group: kinds.APIService.Group, Version: "v1", Resource: "apiservices"}

// IsCustom says whether the objects of a resource are those of a CustomResourceDefinition,
// and not of Kubernetes itself or of an aggregated API. It asks once until Refresh or
// Forget, and of what was learnt it does not ask at all. With an error, it is false: then
// nobody knows.
func (c *Cluster) IsCustom(ctx context.Context, in Resource) (bool, error) {
	if kinds.ScopeOf(in.GroupKind()) != kinds.Unknown {
		return false, nil
	}
	look, isLearnt := c.kinds.look(in.GroupVersion())
	if isLearnt {
		return true, nil
	}
	custom, err := look.versions(ctx, c.customVersions)
	if err != nil {
		return false, fmt.Errorf("it is not known whether kind %s is a definition's: %w", in.GroupKind(), err)
	}
	return custom[in.GroupVersion()], nil
}

// customVersions asks for the versions of groups that definitions have. The label alone
// does not tell: somebody may have put it on an APIService of a server elsewhere, and on
// those of Kubernetes' own groups nobody puts it right again.
func (c *Cluster) customVersions(ctx context.Context) (map[schema.GroupVersion]bool, error) {
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

// A customLook is one look at which versions of groups definitions have, shared by all who
// want to know.
type customLook struct {
	turn    chan struct{} // whoever has put something in may read and write the rest
	custom  map[schema.GroupVersion]bool
	refused error // no use in asking again
}

// look is the latest one, which may have to be taken yet, and whether a version of a group
// was learnt, so that it need not be.
func (k *catalog) look(version schema.GroupVersion) (latest *customLook, isLearnt bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, resources := range k.learnt {
		for _, resource := range resources {
			isLearnt = isLearnt || resource.GroupVersion() == version
		}
	}
	if k.custom == nil {
		k.custom = &customLook{turn: make(chan struct{}, 1)}
	}
	return k.custom, isLearnt
}

// versions are what the look has shown. Whoever comes first asks, and the others wait for
// it or for the end of their own contexts.
func (l *customLook) versions(ctx context.Context, ask func(context.Context) (map[schema.GroupVersion]bool, error)) (map[schema.GroupVersion]bool, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.custom == nil && l.refused == nil {
		custom, err := ask(ctx)
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, err // the next one may have more luck
		}
		l.custom, l.refused = custom, err
	}
	return l.custom, l.refused
}
