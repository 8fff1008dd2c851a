// Package typedread reads objects of a cluster as values of their Go types, for the views and previews of machines.
//
// The package first asks the cluster whether it serves the kind. If not, errors wrap cluster.ErrNotServed, so that the
// views work without the API of a kind. Errors about missing rights name the request. The package changes nothing.
//
// Start with List and Get.
package typedread

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"

	"github.com/runlevel/runlevel/internal/cluster"
)

// A Query selects objects of a kind.
type Query struct {
	Namespace    string   // "" selects all namespaces
	Names        []string // an empty list selects all names
	OnlyDeleting bool
}

// Selects reports whether the query selects an object of its namespace.
func (q Query) Selects(object metav1.Object) bool {
	if q.OnlyDeleting && object.GetDeletionTimestamp() == nil {
		return false
	}
	return len(q.Names) == 0 || slices.Contains(q.Names, object.GetName())
}

// List returns the selected objects of a kind. Without a version, the kind has the version that the cluster prefers.
func List[T any](ctx context.Context, c *cluster.Cluster, kind schema.GroupVersionKind, q Query) ([]*T, error) {
	action := "list " + strings.ToLower(kind.Kind) + "s"
	if kind.Group != "" && kind.GroupKind() != machineKind {
		action += "." + kind.Group
	}
	resource, err := find(ctx, c, kind)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	var options metav1.ListOptions
	if len(q.Names) == 1 {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, q.Names[0]).String()
	}
	var objects []*T
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.In(resource, q.Namespace).List(ctx, options)
	}
	err = pager.New(list).EachListItem(ctx, options, func(item runtime.Object) error {
		object := item.(*unstructured.Unstructured)
		if !q.Selects(object) {
			return nil
		}
		typed, err := convert[T](object)
		objects = append(objects, typed)
		return err
	})
	if err != nil && resource.Namespaced {
		action += InNamespace(q.Namespace)
	}
	return objects, RequestError(action, err)
}

// machineKind is the kind that the name "machines" means in an error.
var machineKind = schema.GroupKind{Group: "machine.openshift.io", Kind: "Machine"}

// Get returns one object of a kind. A missing object is an error that apierrors.IsNotFound accepts.
func Get[T any](ctx context.Context, c *cluster.Cluster, kind schema.GroupVersionKind,
	namespace, name string) (*T, error) {
	object, err := GetUnstructured(ctx, c, kind, namespace, name)
	if err != nil {
		return nil, err
	}
	return convert[T](object)
}

// GetUnstructured returns one object of a kind that has no Go type here.
func GetUnstructured(ctx context.Context, c *cluster.Cluster, kind schema.GroupVersionKind,
	namespace, name string) (*unstructured.Unstructured, error) {
	resource, err := find(ctx, c, kind)
	if err != nil {
		return nil, err
	}
	return c.In(resource, namespace).Get(ctx, name, metav1.GetOptions{})
}

func find(ctx context.Context, c *cluster.Cluster, kind schema.GroupVersionKind) (cluster.Resource, error) {
	if kind.Version == "" {
		return c.FindKind(ctx, kind.GroupKind())
	}
	return c.Find(ctx, kind)
}

func convert[T any](object *unstructured.Unstructured) (*T, error) {
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return nil, fmt.Errorf("%s %s/%s can't be read: %w",
			object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return typed, nil
}

// RequestError returns the error of a failed request; nil if the request did not fail.
func RequestError(action string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("this user may not %s", action)
	}
	return fmt.Errorf("%s: %w", action, err)
}

// InNamespace returns the namespace as the end of a sentence.
func InNamespace(namespace string) string {
	if namespace == "" {
		return " in all namespaces"
	}
	return " in namespace " + namespace
}
