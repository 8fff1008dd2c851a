package tombstone

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/printable"
)

// lookInside says what a terminating object that has others in it still has.
func (o *Observation) lookInside(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, object kinds.ID) {
	var err error
	switch object.GroupKind() {
	case kinds.Namespace:
		err = o.lookInsideNamespace(ctx, c, object.Name)
	case kinds.CustomResourceDefinition:
		err = o.lookInsideDefinition(ctx, c, resource, object.Name)
	}
	if err != nil && !apierrors.IsNotFound(err) { // else it has just gone, as the next look will tell
		o.Remains = append(o.Remains, printable.Line(fmt.Sprintf("what is left in it is not known: %v", err)))
	}
}

// lookInsideNamespace reads what the namespace controller wrote into the conditions.
func (o *Observation) lookInsideNamespace(ctx context.Context, c *cluster.Cluster, name string) error {
	namespace, err := c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, finalizer := range namespace.Spec.Finalizers {
		if finalizer != corev1.FinalizerKubernetes { // which stays until all else is gone
			o.Finalizers = append(o.Finalizers, printable.Line(string(finalizer)))
		}
	}
	for _, condition := range namespace.Status.Conditions {
		if condition.Status == corev1.ConditionTrue {
			o.Remains = append(o.Remains, printable.Line(condition.Message))
		}
	}
	return nil
}

// lookInsideDefinition counts the instances of a definition. One is read, and the server
// says how many more there are.
func (o *Observation) lookInsideDefinition(ctx context.Context, c *cluster.Cluster, definitions cluster.Resource, name string) error {
	read, err := c.In(definitions, "").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(read.Object, &definition); err != nil {
		return err
	}
	for _, version := range definition.Spec.Versions {
		if !version.Served {
			continue
		}
		instances := schema.GroupVersionResource{Group: definition.Spec.Group, Version: version.Name, Resource: definition.Spec.Names.Plural}
		found, err := c.Metadata.Resource(instances).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		if text := count(found, definition.Spec.Names); text != "" {
			o.Remains = append(o.Remains, text)
		}
		return nil
	}
	return nil
}

// count says how many instances a list begins, and nothing of none.
func count(list *metav1.PartialObjectMetadataList, names apiextensionsv1.CustomResourceDefinitionNames) string {
	n := len(list.Items)
	switch {
	case n == 0:
		return ""
	case list.RemainingItemCount != nil:
		n += int(*list.RemainingItemCount)
	case list.Continue != "":
		return "some " + kinds.Plural(names.Kind, names.Plural)
	}
	if n == 1 {
		return "1 " + names.Kind
	}
	return fmt.Sprintf("%d %s", n, kinds.Plural(names.Kind, names.Plural))
}
