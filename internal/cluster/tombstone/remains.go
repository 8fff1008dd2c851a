package tombstone

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// readContents sets the objects that are left in a terminating Namespace or definition.
func (o *Observation) readContents(ctx context.Context, c *cluster.Cluster, resource cluster.Resource,
	object kinds.ID) {
	var err error
	switch object.GroupKind() {
	case kinds.Namespace:
		err = o.readNamespaceContents(ctx, c, object.Name)
	case kinds.CustomResourceDefinition:
		err = o.readDefinitionContents(ctx, c, resource, object.Name)
	}
	if err != nil && !apierrors.IsNotFound(err) { // NotFound: the object was just deleted
		o.Contents = Unclear
		o.Remains = append(o.Remains, printable.Line(fmt.Sprintf("its remaining objects are not known: %v", err)))
	}
}

// readNamespaceContents reads the conditions of the namespace controller, and lists the objects
// that they count. That controller waits for five seconds before it processes a Namespace.
func (o *Observation) readNamespaceContents(ctx context.Context, c *cluster.Cluster, name string) error {
	namespace, err := c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, finalizer := range namespace.Spec.Finalizers {
		if finalizer != corev1.FinalizerKubernetes { // Kubernetes' own stays until the Namespace is empty
			o.Finalizers = append(o.Finalizers, printable.Line(string(finalizer)))
		}
	}
	if len(namespace.Status.Conditions) == 0 {
		o.Contents, o.Remains = Unclear, []string{"the namespace controller has not looked into it yet"}
		return nil
	}
	failures, counts := []string{}, map[corev1.NamespaceConditionType]string{}
	for _, condition := range namespace.Status.Conditions {
		switch {
		case condition.Status != corev1.ConditionTrue:
		case condition.Type == corev1.NamespaceContentRemaining, condition.Type == corev1.NamespaceFinalizersRemaining:
			counts[condition.Type] = printable.Line(condition.Message)
		default:
			failures = append(failures, printable.Line(condition.Message))
		}
	}
	found, err := contentsOf(ctx, c, name, counts[corev1.NamespaceContentRemaining])
	if err != nil { // the conditions have at least the counts
		found = contents{lines: slices.Sorted(maps.Values(counts)), isHeld: len(counts) > 0}
	}
	o.Remains = append(failures, found.lines...)
	if len(failures) == 0 && !found.isHeld {
		o.Contents = Ending
	}
	return nil
}

// readDefinitionContents lists some instances of a definition. The server counts the
// others.
func (o *Observation) readDefinitionContents(ctx context.Context, c *cluster.Cluster, definitions cluster.Resource,
	name string) error {
	read, err := c.In(definitions, "").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(read.Object, &definition); err != nil {
		return err
	}
	o.Finalizers = slices.DeleteFunc(o.Finalizers, func(finalizer string) bool {
		return finalizer == apiextensionsv1.CustomResourceCleanupFinalizer // removed after all instances are deleted
	})
	o.Contents = Ending
	for _, version := range definition.Spec.Versions {
		if !version.Served {
			continue
		}
		names := definition.Spec.Names
		instances := cluster.Resource{
			GroupVersionResource: schema.GroupVersionResource{
				Group:    definition.Spec.Group,
				Version:  version.Name,
				Resource: names.Plural,
			}, Kind: names.Kind,
		}
		found, err := list(ctx, c, instances, "")
		if err != nil {
			return err
		}
		o.Remains = found.lines
		if found.isHeld {
			o.Contents = Held
		}
		return nil
	}
	return nil
}
