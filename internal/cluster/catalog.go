package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A Resource is the resource of a kind, in one version.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Verbs      []string // the verbs it supports; nil if it was read from a definition
	Words      []string // short names and singular; nil as above
}

// GroupKind is the kind of the objects.
func (r Resource) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}

// IDOf returns the ID of an object.
func (r Resource) IDOf(object metav1.Object) kinds.ID {
	return kinds.NewID(r.GroupKind(), object.GetNamespace(), object.GetName())
}

// Scoped returns the ID that an object has on the cluster: the manifest of a cluster-scoped object may have a namespace
// all the same.
func (r Resource) Scoped(id kinds.ID) kinds.ID {
	if !r.Namespaced {
		id.Namespace = ""
	}
	return id
}

// ErrNotServed is returned by Find and FindKind, wrapped, when discovery succeeded and the cluster does
// not have a kind. After any other error it is not known.
var ErrNotServed = errors.New("the cluster does not serve it")

// An UnknownKind is the error of Find and FindKind when discovery of the kind's group
// failed.
type UnknownKind struct {
	Kind schema.GroupKind
	Err  error
}

func (u *UnknownKind) Error() string {
	return fmt.Sprintf("discovery of kind %s failed: %s", u.Kind, u.Err)
}

func (u *UnknownKind) Unwrap() error { return u.Err }

// A catalog caches the kinds that are served.
type catalog struct {
	config *rest.Config
	client *http.Client

	mu      sync.Mutex
	read    bool
	served  map[schema.GroupKind][]Resource // the preferred version first
	listed  map[schema.GroupVersion]bool    // versions whose kinds are all known
	unknown map[string]error                // group -> why not all its kinds are known
	learnt  map[schema.GroupKind][]Resource // kinds known from definitions, until the server also lists them

	custom    map[schema.GroupVersion]bool // group versions of definitions; nil if not read
	customErr error                        // why they can't be read
}

// Find returns the resource of a kind in this version, from the last discovery or from
// definitions that were learnt since.
func (c *Cluster) Find(ctx context.Context, kind schema.GroupVersionKind) (Resource, error) {
	return c.kinds.find(ctx, kind.GroupKind(), kind.Version)
}

// FindKind returns the resource of a kind, in any version.
func (c *Cluster) FindKind(ctx context.Context, kind schema.GroupKind) (Resource, error) {
	return c.kinds.find(ctx, kind, "")
}

// AllKinds returns the kinds that the cluster has, each once, in the version that it prefers, sorted
// by name. The errors of groups whose discovery failed are in unknown.
func (c *Cluster) AllKinds(ctx context.Context) (all []Resource, unknown map[string]error, err error) {
	k := c.kinds
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(ctx); err != nil {
		return nil, nil, err
	}
	preferred := map[schema.GroupResource]Resource{}
	for _, known := range []map[schema.GroupKind][]Resource{k.served, k.learnt} {
		for kind := range known {
			for _, resource := range slices.Backward(k.known(kind)) {
				preferred[resource.GroupResource()] = resource
			}
		}
	}
	inOrder := slices.SortedFunc(maps.Values(preferred), func(a, b Resource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return inOrder, maps.Clone(k.unknown), nil
}

// FindByName returns the kinds with a name: the kind, its plural, its singular or a
// short name, case-insensitively: kinds of all groups, or of one group.
func (c *Cluster) FindByName(ctx context.Context, word string, group *string) ([]Resource, error) {
	all, _, err := c.AllKinds(ctx)
	return slices.DeleteFunc(all, func(r Resource) bool {
		isCalled := func(name string) bool { return strings.EqualFold(name, word) }
		return group != nil && r.Group != *group ||
			!isCalled(r.Kind) && !isCalled(r.Resource) && !slices.ContainsFunc(r.Words, isCalled)
	}), err
}

// Learn adds the kind of an established CustomResourceDefinition, without discovery, which
// lists it only a moment later.
func (c *Cluster) Learn(definition *unstructured.Unstructured) {
	kind, resources := DefinedKind(definition)
	c.kinds.mu.Lock()
	defer c.kinds.mu.Unlock()
	c.kinds.learnt[kind] = resources
}

// Refresh makes the next look-up discover all kinds again. Learnt kinds are kept.
func (c *Cluster) Refresh() {
	c.kinds.mu.Lock()
	defer c.kinds.mu.Unlock()
	c.kinds.invalidate()
}

// Forget is like Refresh, and also drops a learnt kind: for callers that got a 404 for
// its resource.
func (c *Cluster) Forget(kind schema.GroupKind) {
	c.kinds.mu.Lock()
	defer c.kinds.mu.Unlock()
	c.kinds.invalidate()
	delete(c.kinds.learnt, kind)
}

// invalidate makes the next look-up discover all kinds again. The lock is held.
func (c *catalog) invalidate() { c.read, c.custom, c.customErr = false, nil, nil }

func (c *catalog) find(ctx context.Context, kind schema.GroupKind, version string) (Resource, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(ctx); err != nil {
		return Resource{}, err
	}
	known := c.known(kind)
	for _, resource := range known {
		if version == "" || resource.Version == version {
			return resource, nil
		}
	}
	if err := c.unknown[kind.Group]; err != nil {
		return Resource{}, &UnknownKind{kind, err}
	}
	if len(known) > 0 {
		return Resource{}, fmt.Errorf("the cluster has %s in version %s, not in %s: %w", kind, known[0].Version,
			version, ErrNotServed)
	}
	return Resource{}, fmt.Errorf("the cluster has no kind %s: %w", kind, ErrNotServed)
}

// known returns the resources of a kind, the preferred version first.
func (c *catalog) known(kind schema.GroupKind) []Resource {
	return append(slices.Clone(c.learnt[kind]), c.served[kind]...)
}

// load discovers all kinds, unless they are already known.
func (c *catalog) load(ctx context.Context) error {
	if c.read {
		return nil
	}
	if err := c.discover(ctx); err != nil {
		return fmt.Errorf("ask the cluster for the kinds it serves: %w", err)
	}
	return nil
}

func (c *catalog) discover(ctx context.Context) error {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(c.config,
		&http.Client{Transport: contextTransport{ctx, c.client.Transport}})
	if err != nil {
		return err
	}
	groups, lists, err := discovery.ServerGroupsAndResources(client)
	if ctx.Err() != nil {
		return ctx.Err() // its end may look like a failed discovery of some groups
	}
	var partly *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partly) {
		return err
	}
	c.read, c.served, c.listed, c.unknown = true, map[schema.GroupKind][]Resource{}, map[schema.GroupVersion]bool{},
		map[string]error{}
	if partly != nil {
		for version, why := range partly.Groups {
			c.unknown[version.Group] = why
		}
	}
	byVersion := map[string][]metav1.APIResource{}
	for _, list := range lists {
		byVersion[list.GroupVersion] = list.APIResources
	}
	for _, group := range groups {
		for _, version := range preferredFirst(group) {
			if resources, ok := byVersion[version.GroupVersion]; ok {
				c.add(schema.GroupVersion{Group: group.Name, Version: version.Version}, resources)
			}
		}
	}
	maps.DeleteFunc(c.learnt, func(kind schema.GroupKind, learnt []Resource) bool { return c.serves(kind, learnt) })
	return nil
}

func preferredFirst(group *metav1.APIGroup) []metav1.GroupVersionForDiscovery {
	others := slices.DeleteFunc(slices.Clone(group.Versions), func(version metav1.GroupVersionForDiscovery) bool {
		return version == group.PreferredVersion
	})
	return append([]metav1.GroupVersionForDiscovery{group.PreferredVersion}, others...)
}

// add adds the kinds of one version of a group.
func (c *catalog) add(version schema.GroupVersion, resources []metav1.APIResource) {
	c.listed[version] = true
	for _, listed := range resources {
		if strings.Contains(listed.Name, "/") {
			continue // a subresource, such as status
		}
		resource := Resource{
			GroupVersionResource: version.WithResource(listed.Name),
			Kind:                 listed.Kind,
			Namespaced:           listed.Namespaced,
			Verbs:                listed.Verbs,
		}
		resource.Words = append(slices.Clone(listed.ShortNames), listed.SingularName)
		c.served[resource.GroupKind()] = append(c.served[resource.GroupKind()], resource)
	}
}

// isListed reports whether all kinds of a version of a group are known.
func (c *catalog) isListed(version schema.GroupVersion) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed[version]
}

// serves reports whether the server lists all versions of a learnt kind.
func (c *catalog) serves(kind schema.GroupKind, learnt []Resource) bool {
	for _, resource := range learnt {
		if !slices.ContainsFunc(c.served[kind], func(served Resource) bool {
			return served.Version == resource.Version
		}) {
			return false
		}
	}
	return true
}

// A contextTransport ends requests with a context. Client-go's discovery takes none.
type contextTransport struct {
	ctx  context.Context
	next http.RoundTripper
}

func (c contextTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	return c.next.RoundTrip(request.WithContext(c.ctx))
}

// DefinedKind returns the kind that a CustomResourceDefinition defines, and its resource in
// each served version, in the definition's order.
func DefinedKind(definition *unstructured.Unstructured) (schema.GroupKind, []Resource) {
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
			GroupVersionResource: schema.GroupVersionResource{
				Group:    kind.Group,
				Version:  name,
				Resource: text("spec", "names", "plural"),
			},
			Kind: kind.Kind, Namespaced: text("spec", "scope") == "Namespaced",
		})
	}
	return kind, resources
}

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
	return fmt.Errorf("cannot determine whether kind %s is a definition's: %w", resource.GroupKind(), err)
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
