package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// A Resource is where the objects of a kind are.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Verbs      []string // what can be done there; nil if only a definition was asked
}

// GroupKind is the kind of the objects.
func (r Resource) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}

// ErrNotServed is what Find and FindKind return, wrapped, when the cluster surely does
// not have a kind. Any other error of theirs means that nobody knows.
var ErrNotServed = errors.New("the cluster does not serve it")

// A catalog is the kinds that are served, as they were when somebody last looked.
type catalog struct {
	discovery discovery.DiscoveryInterface
	cluster   *Cluster

	mu      sync.Mutex
	read    bool
	served  map[schema.GroupKind][]Resource // the preferred version first
	unknown map[string]error                // why the kinds of a group are not known
	learnt  map[schema.GroupKind][]Resource // from definitions, since
}

// Find says where objects of this version of a kind are. What is not known is looked up
// anew if fresh is asked for, or if nothing was looked up before.
func (c *Cluster) Find(ctx context.Context, kind schema.GroupVersionKind) (Resource, error) {
	return c.kinds.find(ctx, kind.GroupKind(), kind.Version)
}

// FindKind says where objects of a kind are, in any version.
func (c *Cluster) FindKind(ctx context.Context, kind schema.GroupKind) (Resource, error) {
	return c.kinds.find(ctx, kind, "")
}

// Learn makes the kind of an established CustomResourceDefinition known, without asking
// the server.
func (c *Cluster) Learn(definition *unstructured.Unstructured) { c.kinds.learn(definition) }

// Refresh makes the next look-up ask the server again.
func (c *Cluster) Refresh() {
	c.kinds.mu.Lock()
	defer c.kinds.mu.Unlock()
	c.kinds.read = false
}

func (k *catalog) find(_ context.Context, kind schema.GroupKind, version string) (Resource, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.read {
		if err := k.load(); err != nil {
			return Resource{}, fmt.Errorf("ask the cluster for the kinds it serves: %w", err)
		}
	}
	known := append(slices.Clone(k.learnt[kind]), k.served[kind]...)
	for _, resource := range known {
		if version == "" || resource.Version == version {
			return resource, nil
		}
	}
	if err := k.unknown[kind.Group]; err != nil {
		return Resource{}, fmt.Errorf("the cluster can't say whether it has kind %s: %w", kind, err)
	}
	if len(known) > 0 {
		return Resource{}, fmt.Errorf("the cluster has %s in version %s, not in %s: %w", kind, known[0].Version, version, ErrNotServed)
	}
	return Resource{}, fmt.Errorf("the cluster has no kind %s: %w", kind, ErrNotServed)
}

// load asks the server for all kinds.
func (k *catalog) load() error {
	groups, lists, err := discovery.ServerGroupsAndResources(k.discovery)
	var partly *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partly) {
		return err
	}
	k.read, k.served, k.unknown, k.learnt = true, map[schema.GroupKind][]Resource{}, map[string]error{}, map[schema.GroupKind][]Resource{}
	if partly != nil {
		for version, why := range partly.Groups {
			k.unknown[version.Group] = why
		}
	}
	preferred := map[string]string{}
	for _, group := range groups {
		preferred[group.Name] = group.PreferredVersion.Version
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // no version that a manifest could name
		}
		k.add(version, list.APIResources, preferred[version.Group] == version.Version)
	}
	return nil
}

// add takes in the kinds of one version of a group.
func (k *catalog) add(version schema.GroupVersion, resources []metav1.APIResource, isPreferred bool) {
	for _, listed := range resources {
		if slices.Contains([]byte(listed.Name), '/') {
			continue // a part of objects, such as their status
		}
		resource := Resource{GroupVersionResource: version.WithResource(listed.Name), Kind: listed.Kind, Namespaced: listed.Namespaced, Verbs: listed.Verbs}
		kind := resource.GroupKind()
		if isPreferred {
			k.served[kind] = slices.Insert(k.served[kind], 0, resource)
		} else {
			k.served[kind] = append(k.served[kind], resource)
		}
	}
}

// learn takes the kind of a definition.
func (k *catalog) learn(definition *unstructured.Unstructured) {
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(definition.Object, path...)
		return value
	}
	kind := schema.GroupKind{Group: text("spec", "group"), Kind: text("spec", "names", "kind")}
	versions, _, _ := unstructured.NestedFieldNoCopy(definition.Object, "spec", "versions")
	list, _ := versions.([]any)
	var resources []Resource
	for _, item := range list {
		version, _ := item.(map[string]any)
		name, _ := version["name"].(string)
		if served, _ := version["served"].(bool); !served {
			continue
		}
		resources = append(resources, Resource{
			GroupVersionResource: schema.GroupVersionResource{Group: kind.Group, Version: name, Resource: text("spec", "names", "plural")},
			Kind:                 kind.Kind, Namespaced: text("spec", "scope") == "Namespaced",
		})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.learnt == nil {
		k.learnt = map[schema.GroupKind][]Resource{}
	}
	k.learnt[kind] = resources
}
