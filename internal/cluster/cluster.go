// Package cluster is a client for objects of any kind, without generated clients. It
// knows which kinds are served, which are certainly not served and which are defined by
// a CustomResourceDefinition, applies and deletes objects and returns the results, knows
// the server's time, and writes events.
//
// It decides nothing: the caller chooses what to apply, in which order, and which
// failures to retry. Nor does it bound the rate of requests: the server does.
//
// Start with Connect.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// FieldManager is the field manager of all applies.
const FieldManager = "runlevel"

// A Cluster is a connection to a cluster. It is safe for concurrent use.
type Cluster struct {
	Objects  dynamic.Interface    // any object
	Metadata metadata.Interface   // the metadata of any object
	Client   kubernetes.Interface // Kubernetes' own kinds

	kinds  *catalog
	clock  *ServerClock
	base   *rest.Config // the caller's
	config *rest.Config // the same, with the transports of this package
}

// Connect makes a connection. It sends no request yet.
func Connect(config *rest.Config) (*Cluster, error) {
	c := &Cluster{clock: &ServerClock{}}
	client, err := connect(c, config)
	c.kinds = &catalog{config: c.config, client: client, learnt: map[schema.GroupKind][]Resource{}}
	return c, err
}

// connect makes the clients, and returns their HTTP client.
func connect(c *Cluster, base *rest.Config) (*http.Client, error) {
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
	c.config.Wrap(c.clock.Observe)
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

// Now returns the time of the server, from the Date headers of its responses. Ages of
// objects are computed with it: this machine's clock may be wrong.
func (c *Cluster) Now() time.Time { return c.clock.Now() }

// Host returns the URL of the API server, which has no password in it.
func Host(c *Cluster) string { return c.base.Host }

// Ping gets the version of the API server, which is its cheapest request.
func (c *Cluster) Ping(ctx context.Context) error {
	return c.Client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
}

// ServerTime converts a time of this machine's clock to the server's clock. The result is stable as long as the
// estimated difference of the clocks is.
func (c *Cluster) ServerTime(local time.Time) time.Time { return c.clock.at(local) }

// A WriteResult is the result of writing an object.
type WriteResult struct {
	Object   *unstructured.Unstructured // object in the response of the server
	Created  bool                       // the object did not exist before
	Warnings []string                   // the server's
}

// An ApplyMode selects options of an apply. Its values may be combined.
type ApplyMode int

const (
	// NoForce fails with a conflict if other managers own a field with another value.
	NoForce ApplyMode = 0
	// Force sets all fields of the object, even those that other managers own.
	Force ApplyMode = 1 << (iota - 1)
	// CreateOnly fails with a conflict if the object exists.
	CreateOnly
	// DryRun returns the result of the apply without persisting it.
	DryRun
)

// noVersion is a resourceVersion that no object has, and that the server accepts when it
// creates one.
const noVersion = "1"

// Apply is a server-side apply of one object.
func (c *Cluster) Apply(ctx context.Context, resource Resource, object *unstructured.Unstructured,
	mode ApplyMode) (WriteResult, error) {
	if mode&CreateOnly != 0 {
		object = withMetadata(object, map[string]any{"resourceVersion": noVersion})
	}
	options := metav1.ApplyOptions{FieldManager: FieldManager, Force: mode&Force != 0}
	if mode&DryRun != 0 {
		options.DryRun = []string{metav1.DryRunAll}
	}
	ctx, seen := observed(ctx)
	return seen.written(c.In(resource, object.GetNamespace()).Apply(ctx, object.GetName(), object, options))
}

// AtVersion returns the object with a UID and resourceVersion as preconditions. Apply fails with a conflict if
// the live object was written since, or no longer exists.
func AtVersion(object *unstructured.Unstructured, uid types.UID, version string) *unstructured.Unstructured {
	return withMetadata(object, map[string]any{"uid": string(uid), "resourceVersion": version})
}

// withMetadata returns an object with more metadata.
func withMetadata(object *unstructured.Unstructured, more map[string]any) *unstructured.Unstructured {
	metadata, _ := object.Object["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	maps.Copy(metadata, more)
	object = &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	object.Object["metadata"] = metadata
	return object
}

// Create creates an object that must not exist yet. Of the modes, DryRun counts.
func (c *Cluster) Create(ctx context.Context, resource Resource, object *unstructured.Unstructured,
	mode ApplyMode) (WriteResult, error) {
	options := metav1.CreateOptions{FieldManager: FieldManager}
	if mode&DryRun != 0 {
		options.DryRun = []string{metav1.DryRunAll}
	}
	ctx, seen := observed(ctx)
	return seen.written(c.In(resource, object.GetNamespace()).Create(ctx, object, options))
}

// Delete requests the deletion of the object with this UID, and of no other with its name.
// Its dependents are deleted in the background.
func (c *Cluster) Delete(ctx context.Context, resource Resource, namespace, name string, uid types.UID) error {
	ctx, seen := observed(ctx)
	return seen.complete(c.In(resource, namespace).Delete(ctx, name, deletion(metav1.Preconditions{UID: &uid})))
}

// DeleteUnchanged is like Delete, for an object that was not written since it was read. Otherwise it fails with a
// conflict.
func DeleteUnchanged(ctx context.Context, c *Cluster, resource Resource, read metav1.Object) error {
	uid, version := read.GetUID(), read.GetResourceVersion()
	ctx, seen := observed(ctx)
	return seen.complete(c.In(resource, read.GetNamespace()).Delete(ctx, read.GetName(),
		deletion(metav1.Preconditions{UID: &uid, ResourceVersion: &version})))
}

// DryRunDelete returns the error with which Delete would be refused, and changes nothing. The dry run is also
// in the URL: most audit logs do not show the body, and would show a delete.
func (c *Cluster) DryRunDelete(ctx context.Context, resource Resource, namespace, name string, uid types.UID) error {
	options := deletion(metav1.Preconditions{UID: &uid})
	options.DryRun = []string{metav1.DryRunAll}
	body, err := json.Marshal(options)
	if err != nil {
		return err
	}
	ctx, seen := observed(ctx)
	request := c.Client.Discovery().RESTClient().Delete().AbsPath(resource.path(namespace, name)...).Param("dryRun",
		metav1.DryRunAll)
	return seen.complete(request.SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error())
}

// deletion returns the options of Delete.
func deletion(as metav1.Preconditions) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &as, PropagationPolicy: new(metav1.DeletePropagationBackground)}
}

// Patch changes an object by a JSON patch, and returns the metadata of the result.
func (c *Cluster) Patch(ctx context.Context, resource Resource, namespace, name string,
	patch []byte) (*metav1.PartialObjectMetadata, error) {
	ctx, seen := observed(ctx)
	head, err := metadataOf(c, resource, namespace).Patch(ctx, name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: FieldManager})
	return head, seen.complete(err)
}

// DryRunPatch returns the result of a JSON patch without persisting it.
func (c *Cluster) DryRunPatch(ctx context.Context, resource Resource, namespace, name string,
	patch []byte) (WriteResult, error) {
	options := metav1.PatchOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}}
	ctx, seen := observed(ctx)
	return seen.written(c.In(resource, namespace).Patch(ctx, name, types.JSONPatchType, patch, options))
}

// GetMetadata reads the metadata of an object.
func (c *Cluster) GetMetadata(ctx context.Context, resource Resource, namespace,
	name string) (*metav1.PartialObjectMetadata, error) {
	return metadataOf(c, resource, namespace).Get(ctx, name, metav1.GetOptions{})
}

// metadataOf returns the metadata client of a resource.
func metadataOf(c *Cluster, kind Resource, namespace string) metadata.ResourceInterface {
	resource := c.Metadata.Resource(kind.GroupVersionResource)
	if kind.Namespaced {
		return resource.Namespace(namespace)
	}
	return resource
}

// EachMetadata lists the metadata of the objects of a resource, page by page. The namespace is "" for all. The
// argument of do is valid only until do returns.
func (c *Cluster) EachMetadata(ctx context.Context, resource Resource, namespace string, options metav1.ListOptions,
	do func(*metav1.PartialObjectMetadata)) error {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.Metadata.Resource(resource.GroupVersionResource).Namespace(namespace).List(ctx, options)
	})
	pages.PageBufferSize = 1 // pages are read faster than they come
	return pages.EachListItem(ctx, options, func(item runtime.Object) error {
		do(item.(*metav1.PartialObjectMetadata))
		return nil
	})
}

// In returns the client of a resource. The namespace is ignored if the resource is
// cluster-scoped.
func (c *Cluster) In(kind Resource, namespace string) dynamic.ResourceInterface {
	resource := c.Objects.Resource(kind.GroupVersionResource)
	if kind.Namespaced {
		return resource.Namespace(namespace)
	}
	return resource
}

// path returns the path of an object on the API server.
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

// UserOf returns the connection's user, as the API server knows it; an empty one if the review fails.
func UserOf(ctx context.Context, c *Cluster) authenticationv1.UserInfo {
	answer, err := c.Client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}
	}
	return answer.Status.UserInfo
}

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

// IsNoAnswer returns whether a request failed because the server gave no answer: it could not be reached, the
// connection was cut, or the server has too much to do. The end of the caller's own context does not count.
func IsNoAnswer(err error) bool {
	isCut := errors.As(err, new(net.Error)) ||
		err != nil && strings.Contains(err.Error(), "error when reading response body")
	return isCut && !errors.Is(err, context.Canceled) || utilnet.IsProbableEOF(err) ||
		utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err)
}

// IsOutage returns whether the server gave no answer, or an internal server error.
func IsOutage(err error) bool {
	var refused apierrors.APIStatus
	return IsNoAnswer(err) || errors.As(err, &refused) && refused.Status().Code >= http.StatusInternalServerError
}

// RetryOnConflict is that of client-go, which returns no error if the context of the function ends.
func RetryOnConflict(backoff wait.Backoff, do func() error) error {
	var last error
	if err := retry.RetryOnConflict(backoff, func() error {
		last = do()
		return last
	}); err != nil {
		return err
	}
	return last
}
