package remediation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Requests are the objects that ask another controller for remediation, by the names of their machines: an object has
// the name of its machine, so that there is at most one.
type Requests map[string]*unstructured.Unstructured

// RequestKind returns the kind of the objects that are created from a kind of templates.
func RequestKind(template schema.GroupVersionKind) schema.GroupVersionKind {
	template.Kind = strings.TrimSuffix(template.Kind, "Template")
	return template
}

// ListRequests reads the requests of a namespace, once for all machines. The reader must not cache them.
func ListRequests(ctx context.Context, reader client.Reader, template schema.GroupVersionKind,
	namespace string) (Requests, error) {
	var existing unstructured.UnstructuredList
	kind := RequestKind(template)
	existing.SetAPIVersion(kind.GroupVersion().String())
	existing.SetKind(kind.Kind + "List")
	if err := reader.List(ctx, &existing, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list the objects that ask for remediation: %w", err)
	}
	byName := Requests{}
	for i := range existing.Items {
		byName[existing.Items[i].GetName()] = &existing.Items[i]
	}
	return byName, nil
}

// End deletes the request for a healthy machine. It leaves a request alone that the machine does not own.
func (r Requests) End(ctx context.Context, c client.Writer, machine metav1.Object) error {
	request := r[machine.GetName()]
	isOwner := func(owner metav1.OwnerReference) bool { return owner.UID == machine.GetUID() }
	if request == nil || request.GetDeletionTimestamp() != nil ||
		!slices.ContainsFunc(request.GetOwnerReferences(), isOwner) {
		return nil
	}
	uid := request.GetUID()
	if err := client.IgnoreNotFound(c.Delete(ctx, request, client.Preconditions{UID: &uid})); err != nil {
		return fmt.Errorf("delete %s %s: %w", request.GetKind(), request.GetName(), err)
	}
	return nil
}
