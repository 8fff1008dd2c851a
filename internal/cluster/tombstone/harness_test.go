package tombstone_test

import (
	"context"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// This file creates the objects of the tests, and deletes them.

var definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

func config(namespace, name string) kinds.ID {
	return kinds.ID{Kind: "ConfigMap", Namespace: namespace, Name: name}
}

func widget(group, namespace, name string) kinds.ID {
	return kinds.ID{Group: group, Kind: "Widget", Namespace: namespace, Name: name}
}

func find(t *testing.T, c *cluster.Cluster, object kinds.ID) cluster.Resource {
	t.Helper()
	resource, err := c.FindKind(t.Context(), object.GroupKind())
	if err != nil {
		t.Fatal(err)
	}
	return resource
}

// bring makes an object that finalizers hold.
func bring(t *testing.T, c *cluster.Cluster, object kinds.ID, finalizers ...string) *unstructured.Unstructured {
	t.Helper()
	resource := find(t, c, object)
	manifest := &unstructured.Unstructured{}
	manifest.SetGroupVersionKind(object.GroupKind().WithVersion(resource.Version))
	manifest.SetNamespace(object.Namespace)
	manifest.SetName(object.Name)
	manifest.SetFinalizers(finalizers)
	applied, err := c.Apply(t.Context(), resource, manifest, cluster.Force)
	if err != nil {
		t.Fatal(err)
	}
	if len(finalizers) > 0 {
		t.Cleanup(func() { _ = setFinalizers(context.Background(), c, resource, object, "null") })
	}
	return applied.Object
}

// remove requests the delete of an object.
func remove(t *testing.T, c *cluster.Cluster, object kinds.ID) {
	t.Helper()
	resource := find(t, c, object)
	head, err := c.GetMetadata(t.Context(), resource, object.Namespace, object.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), resource, object.Namespace, object.Name, head.UID); err != nil {
		t.Fatal(err)
	}
}

// release takes all finalizers off an object.
func release(t *testing.T, c *cluster.Cluster, object kinds.ID) {
	t.Helper()
	if err := setFinalizers(t.Context(), c, find(t, c, object), object, "null"); err != nil {
		t.Fatal(err)
	}
}

func setFinalizers(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, object kinds.ID,
	finalizers string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, finalizers)
	_, err := c.In(resource, object.Namespace).Patch(ctx, object.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	return err
}

// define makes Widget a kind of a group, in one served version. The definition has two: it may be changed to serve the
// other.
func define(t *testing.T, c *cluster.Cluster, group, served string) kinds.ID {
	t.Helper()
	object := kinds.NewID(kinds.CustomResourceDefinition, "", "widgets."+group)
	manifest := sandboxtest.ParseObject(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s}
spec:
  group: %s
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - {name: v1, served: %t, storage: true, schema: &any {openAPIV3Schema: {type: object}}}
  - {name: v1alpha1, served: %t, storage: false, schema: *any}`, object.Name, group, served == "v1",
		served == "v1alpha1"))
	resource := find(t, c, object)
	if _, err := c.Apply(t.Context(), resource, manifest, cluster.Force); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the test's own context has ended by now
		_ = c.In(resource, "").Delete(context.Background(), object.Name, metav1.DeleteOptions{})
	})
	sandboxtest.Await(t, testbed, definitions, object.Name, func(d *apiextensionsv1.CustomResourceDefinition) bool {
		if d == nil {
			return false
		}
		for _, condition := range d.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true
			}
		}
		return false
	})
	c.Learn(manifest)
	return object
}
