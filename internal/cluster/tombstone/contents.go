package tombstone

import (
	"context"
	"fmt"
	"maps"
	"regexp"
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

// How many of the objects that are left in an object are listed: enough to find which finalizers hold it.
const (
	maxKinds   = 5  // kinds of objects in a Namespace
	maxObjects = 50 // objects of a kind
	maxNames   = 3  // names in a line
)

// contents are the objects that are left in another.
type contents struct {
	lines  []string // their names and finalizers
	isHeld bool     // an object has a finalizer
}

// counted matches the namespace controller's count of the objects of a resource. The
// core group has an empty name.
var counted = regexp.MustCompile(`([a-z0-9-]+)\.([a-z0-9.-]*) has \d+ resource instances`)

// contentsOf lists the objects in a terminating Namespace whose resources are in a condition. If
// it has none, Pods may be left nevertheless: they are deleted before all others, and the
// namespace controller does not count them.
func contentsOf(ctx context.Context, c *cluster.Cluster, namespace, condition string) (contents, error) {
	named := counted.FindAllStringSubmatch(condition, -1)
	if condition == "" {
		named = [][]string{{"", "pods", ""}}
	}
	var all contents
	for _, group := range named[:min(maxKinds, len(named))] {
		resources, err := c.FindByName(ctx, group[1], &group[2])
		if err != nil {
			return all, err
		}
		index := slices.IndexFunc(resources, func(r cluster.Resource) bool { return r.Resource == group[1] })
		if index < 0 {
			return all, fmt.Errorf("%s.%s: %w", group[1], group[2], cluster.ErrNotServed)
		}
		found, err := list(ctx, c, resources[index], namespace)
		if err != nil {
			return all, err
		}
		all.lines, all.isHeld = append(all.lines, found.lines...), all.isHeld || found.isHeld
	}
	if more := len(named) - maxKinds; more > 0 {
		all.lines, all.isHeld = append(all.lines, "objects of "+printable.Count(more, "more kind")), true
	}
	return all, nil
}

// list describes the objects of a resource in a namespace, or in all: a line for all objects with the
// same finalizers, and objects with finalizers first.
func list(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, namespace string) (contents, error) {
	found, err := c.Metadata.Resource(resource.GroupVersionResource).Namespace(namespace).List(ctx,
		metav1.ListOptions{Limit: maxObjects})
	if err != nil {
		return contents{}, err
	}
	names := map[string][]string{}
	for i := range found.Items {
		item := &found.Items[i]
		name := item.Name
		if namespace == "" && item.Namespace != "" {
			name = item.Namespace + "/" + name
		}
		names[heldText(item)] = append(names[heldText(item)], printable.Line(name))
	}
	var all contents
	for _, held := range slices.Backward(slices.Sorted(maps.Keys(names))) {
		all.isHeld = all.isHeld || held != ""
		all.lines = append(all.lines, few(resource, names[held])+held)
	}
	if found.Continue == "" {
		return all, nil
	}
	more := "more " + printable.Line(kinds.Plural(resource.Kind, resource.Resource))
	if found.RemainingItemCount != nil { // the server does not always count them
		more = fmt.Sprint(*found.RemainingItemCount, " ", more)
	}
	all.lines = append(all.lines, more)
	return all, nil
}

// few returns the first names of objects of a kind, with their number if there are several.
func few(resource cluster.Resource, names []string) string {
	if len(names) == 1 {
		return printable.Line(resource.Kind) + " " + names[0]
	}
	return fmt.Sprintf("%d %s: %s", len(names), printable.Line(kinds.Plural(resource.Kind, resource.Resource)),
		printable.Few(names, maxNames))
}

// heldText returns the finalizers of an object, and the managers that have set them; empty if there are none.
func heldText(head metav1.Object) string {
	text, setters := "", FinalizerSetters(head)
	for _, finalizer := range head.GetFinalizers() {
		text += ", held by finalizer " + printable.Line(finalizer)
		if setter := setters[finalizer]; setter != "" {
			text += ", which " + setter + " has set"
		}
	}
	return text
}

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
