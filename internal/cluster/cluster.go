// Package cluster is a cluster as an applier sees it: any object by its kind, without a
// client for each. It knows which kinds are served (and which are surely not) and which
// are a definition's, applies and deletes, says what came of it, tells the server's time,
// and writes events.
//
// It decides nothing: what to apply, in which order, and what of a failure heals is
// for those who call it. Nor does it bound the rate of requests: the server does.
//
// Connect is the call to start from.
package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
)

// FieldManager is who owns what we apply.
const FieldManager = "runlevel"

// A Cluster is a connection to one. It may be used by many at once.
type Cluster struct {
	Objects  dynamic.Interface    // any object
	Metadata metadata.Interface   // the same, without reading their bodies
	Client   kubernetes.Interface // Kubernetes' own kinds

	kinds  *catalog
	clock  *clock
	base   *rest.Config // the caller's
	config *rest.Config // the same, with what watches over requests
}

// Connect makes a connection. It sends no request yet.
func Connect(config *rest.Config) (*Cluster, error) {
	c := &Cluster{clock: &clock{}}
	client, err := c.connect(config)
	c.kinds = &catalog{config: c.config, client: client, learnt: map[schema.GroupKind][]Resource{}}
	return c, err
}

// connect makes the clients, and returns what they send requests by.
func (c *Cluster) connect(base *rest.Config) (*http.Client, error) {
	server, _, err := rest.DefaultServerUrlFor(base)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	c.base, c.config = rest.CopyConfig(base), rest.CopyConfig(base)
	c.config.QPS = -1 // the server's priority and fairness decides
	c.config.WarningHandlerWithContext = warningsOfContext{}
	c.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &rolesTransport{next: next, path: path.Join("/", server.Path, "readyz")}
	})
	c.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &observer{next: next, clock: c.clock} })
	client, err := rest.HTTPClientFor(c.config)
	if err == nil {
		c.Objects, err = dynamic.NewForConfigAndClient(c.config, client)
	}
	if err == nil {
		c.Metadata, err = metadata.NewForConfigAndClient(c.config, client)
	}
	if err == nil {
		c.Client, err = kubernetes.NewForConfigAndClient(c.config, client)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return client, nil
}

// Now is the time of the server, as far as its answers have told it. Ages of what is in
// the cluster are counted with it: this machine's clock may be wrong.
func (c *Cluster) Now() time.Time { return c.clock.at(time.Now()) }

// ServerTime returns a moment of this machine's clock by the server's: the same one each time, as long as the
// difference between the two is thought to be the same.
func (c *Cluster) ServerTime(local time.Time) time.Time { return c.clock.at(local) }

// A WriteResult is what came of applying an object.
type WriteResult struct {
	Object   *unstructured.Unstructured // as it is now
	Created  bool                       // it was not there before
	Warnings []string                   // the server's
}

// An ApplyMode says how an object is applied. Its values may be combined.
type ApplyMode int

const (
	// NoForce fails with a conflict if others own a field and want it otherwise.
	NoForce ApplyMode = 0
	// Force sets all fields as the object says, even those that others own.
	Force ApplyMode = 1 << (iota - 1)
	// CreateOnly fails with a conflict if the object is there.
	CreateOnly
	// DryRun finds out what would come of the apply, and changes nothing.
	DryRun
)

// noVersion is a resourceVersion that no object has, and that one which is to be made may
// say all the same.
const noVersion = "1"

// Apply is a server-side apply of one object.
func (c *Cluster) Apply(ctx context.Context, in Resource, object *unstructured.Unstructured, how ApplyMode) (WriteResult, error) {
	if how&CreateOnly != 0 {
		object = withMetadata(object, map[string]any{"resourceVersion": noVersion})
	}
	options := metav1.ApplyOptions{FieldManager: FieldManager, Force: how&Force != 0}
	if how&DryRun != 0 {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return write(ctx, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return c.In(in, object.GetNamespace()).Apply(ctx, object.GetName(), object, options)
	})
}

// AtVersion is the object for an apply to one that is still as it was seen. Apply fails with a conflict if
// that has been written since, or is gone.
func AtVersion(object *unstructured.Unstructured, uid types.UID, version string) *unstructured.Unstructured {
	return withMetadata(object, map[string]any{"uid": string(uid), "resourceVersion": version})
}

// withMetadata is an object with more metadata.
func withMetadata(object *unstructured.Unstructured, more map[string]any) *unstructured.Unstructured {
	metadata, _ := object.Object["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	maps.Copy(metadata, more)
	object = &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	object.Object["metadata"] = metadata
	return object
}

// Create makes an object that must not be there yet.
func (c *Cluster) Create(ctx context.Context, in Resource, object *unstructured.Unstructured) (WriteResult, error) {
	return write(ctx, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return c.In(in, object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{FieldManager: FieldManager})
	})
}

// DryRunCreate says what would come of Create, and changes nothing.
func (c *Cluster) DryRunCreate(ctx context.Context, in Resource, object *unstructured.Unstructured) (WriteResult, error) {
	return write(ctx, func(ctx context.Context) (*unstructured.Unstructured, error) {
		options := metav1.CreateOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}}
		return c.In(in, object.GetNamespace()).Create(ctx, object, options)
	})
}

// Delete asks for the end of the object with this UID, and of no other with its name.
// What it owns goes after it.
func (c *Cluster) Delete(ctx context.Context, in Resource, namespace, name string, uid types.UID) error {
	_, _, err := observe(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.In(in, namespace).Delete(ctx, name, deletion(uid))
	})
	return err
}

// DryRunDelete says whether Delete would be refused, and changes nothing. Its address says so, too:
// in most audit logs there is nothing else that tells it from a delete.
func (c *Cluster) DryRunDelete(ctx context.Context, in Resource, namespace, name string, uid types.UID) error {
	options := deletion(uid)
	options.DryRun = []string{metav1.DryRunAll}
	body, err := json.Marshal(options)
	if err != nil {
		return err
	}
	_, _, err = observe(ctx, func(ctx context.Context) (struct{}, error) {
		request := c.Client.Discovery().RESTClient().Delete().AbsPath(in.path(namespace, name)...).Param("dryRun", metav1.DryRunAll)
		return struct{}{}, request.SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
	})
	return err
}

// deletion is what Delete asks for.
func deletion(uid types.UID) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: new(metav1.DeletePropagationBackground)}
}

// Patch changes an object by a JSON patch, and returns it as it is then, without its body.
func (c *Cluster) Patch(ctx context.Context, in Resource, namespace, name string, patch []byte) (*metav1.PartialObjectMetadata, error) {
	head, _, err := observe(ctx, func(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
		return c.metadataOf(in, namespace).Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	})
	return head, err
}

// DryRunPatch says what a JSON patch would make of an object, and changes nothing.
func (c *Cluster) DryRunPatch(ctx context.Context, in Resource, namespace, name string, patch []byte) (WriteResult, error) {
	return write(ctx, func(ctx context.Context) (*unstructured.Unstructured, error) {
		options := metav1.PatchOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}}
		return c.In(in, namespace).Patch(ctx, name, types.JSONPatchType, patch, options)
	})
}

// GetMetadata reads an object without its body.
func (c *Cluster) GetMetadata(ctx context.Context, in Resource, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	return c.metadataOf(in, namespace).Get(ctx, name, metav1.GetOptions{})
}

// metadataOf is where the objects of a resource are without their bodies.
func (c *Cluster) metadataOf(in Resource, namespace string) metadata.ResourceInterface {
	resource := c.Metadata.Resource(in.GroupVersionResource)
	if in.Namespaced {
		return resource.Namespace(namespace)
	}
	return resource
}

// EachMetadata lists the objects of a resource without their bodies, page by page. The namespace is "" for all. An
// object that do is called with is good only until do returns.
func (c *Cluster) EachMetadata(ctx context.Context, in Resource, namespace string, options metav1.ListOptions, do func(*metav1.PartialObjectMetadata)) error {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.Metadata.Resource(in.GroupVersionResource).Namespace(namespace).List(ctx, options)
	})
	pages.PageBufferSize = 1 // pages are read faster than they come
	return pages.EachListItem(ctx, options, func(item runtime.Object) error {
		do(item.(*metav1.PartialObjectMetadata))
		return nil
	})
}

// In is where the objects of a resource are. The namespace is left aside where there is
// none.
func (c *Cluster) In(in Resource, namespace string) dynamic.ResourceInterface {
	resource := c.Objects.Resource(in.GroupVersionResource)
	if in.Namespaced {
		return resource.Namespace(namespace)
	}
	return resource
}

// path is where the API server has an object.
func (r Resource) path(namespace, name string) []string {
	path := []string{"/apis", r.Group, r.Version}
	if r.Group == "" {
		path = []string{"/api", r.Version}
	}
	if r.Namespaced {
		path = append(path, "namespaces", namespace)
	}
	return append(path, r.Resource, name)
}
