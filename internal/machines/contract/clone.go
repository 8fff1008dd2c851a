package contract

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Clone describes the object to create from a template.
type Clone struct {
	Namespace   string // namespace of the template and the clone
	Name        string
	ClusterName string
	Owner       *metav1.OwnerReference // nil for none
	Labels      map[string]string      // labels added to the template's
	Annotations map[string]string      // annotations added to the template's
	// Manager owns the fields of the template. A writer of another name keeps the fields that it has set.
	Manager client.FieldOwner
}

// Clone creates an object from a template: its spec.template, named, labelled and owned as wanted. If an object of that
// name exists, Clone fails (AlreadyExists).
func (r References) Clone(ctx context.Context, template Reference, wanted Clone, options ...client.CreateOption) (
	Reference, error,
) {
	from, err := r.Get(ctx, template, wanted.Namespace)
	if err != nil {
		return Reference{}, err
	}
	object := CloneOf(from.Unstructured, wanted)
	if err := r.Client.Create(ctx, object, append(options, wanted.Manager)...); err != nil {
		return Reference{}, fmt.Errorf("create %s %s/%s of %s: %w", object.GetKind(), wanted.Namespace, wanted.Name,
			from,
			printable.Error(err))
	}
	return Reference{
		APIGroup: object.GroupVersionKind().Group, Kind: object.GetKind(), Name: object.GetName(),
	}, nil
}

// Update applies a template to an object that was created from another one, and returns the object with the defaults of
// the API server. Fields that only the earlier template has are removed; fields of other field managers and owners
// stay. A dry run writes only which fields the manager owns.
func (r References) Update(
	ctx context.Context, object *Object, template Reference, wanted Clone, options ...client.ApplyOption,
) (*unstructured.Unstructured, error) {
	from, err := r.Get(ctx, template, wanted.Namespace)
	if err != nil {
		return nil, err
	}
	if err := r.ownFields(ctx, object, wanted.Manager); err != nil {
		return nil, fmt.Errorf("own the fields of %s: %w", object, printable.Error(err))
	}
	desired := CloneOf(from.Unstructured, wanted)
	desired.SetUID(object.GetUID()) // so that it is not created again if it was deleted
	options = append(options, wanted.Manager, client.ForceOwnership)
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), options...); err != nil {
		return nil, fmt.Errorf("apply %s to %s: %w", from, object, printable.Error(err))
	}
	return desired, nil
}

// ownFields gives the fields that were set by the create of an object to the applies of the same field manager: an
// apply only removes fields that were applied before.
func (r References) ownFields(ctx context.Context, object *Object, manager client.FieldOwner) error {
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(object.Unstructured, sets.New(string(manager)), string(manager))
	if err != nil || patch == nil {
		return err
	}
	return r.Client.Patch(ctx, object.Unstructured, client.RawPatch(types.JSONPatchType, patch))
}

// Apply creates or changes an object, except for its status, by server-side apply. It fails with a conflict if the
// object has an outdated resourceVersion.
func Apply(ctx context.Context, c client.Client, object client.Object, manager client.FieldOwner) error {
	kind, err := c.GroupVersionKindFor(object)
	if err != nil {
		return fmt.Errorf("write %s: %w", object.GetName(), err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Errorf("write %s %s: %w", kind.Kind, object.GetName(), err)
	}
	unstructured.RemoveNestedField(fields, "status")
	wanted := &unstructured.Unstructured{Object: fields}
	wanted.SetGroupVersionKind(kind)
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), manager,
		client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s %s: %w", kind.Kind, object.GetName(), err)
	}
	return nil
}

// CloneOf returns the object to create from a template. Of the metadata in spec.template, labels and annotations are
// copied.
func CloneOf(template *unstructured.Unstructured, wanted Clone) *unstructured.Unstructured {
	inner, _, _ := unstructured.NestedMap(template.Object, "spec", "template")
	from := &unstructured.Unstructured{Object: inner}
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if spec, ok := inner["spec"]; ok {
		object.Object["spec"] = runtime.DeepCopyJSONValue(spec)
	}
	object.SetAPIVersion(template.GetAPIVersion())
	object.SetKind(strings.TrimSuffix(template.GetKind(), clusterv1.TemplateSuffix))
	object.SetNamespace(wanted.Namespace)
	object.SetName(wanted.Name)
	object.SetLabels(labels.Merge(from.GetLabels(),
		labels.Merge(wanted.Labels, map[string]string{clusterv1.ClusterNameLabel: wanted.ClusterName})))
	object.SetAnnotations(labels.Merge(from.GetAnnotations(), labels.Merge(wanted.Annotations, map[string]string{
		clusterv1.TemplateClonedFromNameAnnotation:      template.GetName(),
		clusterv1.TemplateClonedFromGroupKindAnnotation: template.GroupVersionKind().GroupKind().String(),
	})))
	if wanted.Owner != nil {
		object.SetOwnerReferences([]metav1.OwnerReference{*wanted.Owner})
	}
	return object
}
