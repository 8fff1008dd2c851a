// Package validation checks objects of Kubernetes' own kinds as an API server does before it creates them, with the API
// server's own code. The package reads no cluster, so it finds no problems that depend on other objects, on admission
// plugins, or on the allocation of addresses and ports.
//
// Start with Check. kinds.go has the validation of each kind.
package validation

import (
	"context"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/capabilities"

	"github.com/runlevel/runlevel/internal/objects/fields"
)

// Knows reports whether Check has the validation of an object's kind and version.
func Knows(object *unstructured.Unstructured) bool {
	kind := object.GroupVersionKind()
	return validations[kind.GroupKind()] != nil && scheme().Recognizes(kind)
}

// Check returns why an API server refuses to create an object. It finds nothing in objects of unknown kinds, and in
// those that can't be decoded: fields that are unknown or of the wrong type are for the caller to find.
func Check(ctx context.Context, object *unstructured.Unstructured) []fields.Refusal {
	if !Knows(object) {
		return nil
	}
	internal, err := decode(object)
	if err != nil {
		return nil
	}
	allowPrivileged()
	var refusals []fields.Refusal
	for _, problem := range validations[object.GroupVersionKind().GroupKind()](asRequest(ctx, object), internal) {
		if problem.Field == "metadata.namespace" || problem.Type == field.ErrorTypeInternal {
			continue // other rules report missing and needless namespaces
		}
		refusals = append(refusals, refusalOf(problem))
	}
	return refusals
}

// WithDefaults returns an object with the defaults of an API server, in its type; the object itself if its kind is
// unknown, or it can't be decoded.
func WithDefaults(object *unstructured.Unstructured) runtime.Object {
	text, err := object.MarshalJSON()
	if err != nil {
		return object
	}
	typed, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		return object
	}
	scheme().Default(typed)
	return typed
}

// allowPrivileged has pods with privileged containers accepted, as API servers do that are started with
// --allow-privileged.
var allowPrivileged = sync.OnceFunc(func() { capabilities.Setup(true, 0) })

// asRequest returns a context with the request to create the object, as the API server's code reads it.
func asRequest(ctx context.Context, object *unstructured.Unstructured) context.Context {
	kind := object.GroupVersionKind()
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return request.WithRequestInfo(request.WithNamespace(ctx, object.GetNamespace()), &request.RequestInfo{
		IsResourceRequest: true, Verb: "create", APIGroup: kind.Group, APIVersion: kind.Version,
		Namespace: object.GetNamespace(), Resource: resource.Resource, Name: object.GetName(),
	})
}

// refusalOf converts a problem to a refusal. Some validations name a field by its path in the internal version, or have
// a whole internal structure as the value.
func refusalOf(problem *field.Error) fields.Refusal {
	name := strings.Replace(problem.Field, "template.labels", "template.metadata.labels", 1)
	name = strings.Replace(name, "template.annotations", "template.metadata.annotations", 1)
	switch reflect.ValueOf(problem.BadValue).Kind() {
	case reflect.Struct, reflect.Pointer, reflect.Map, reflect.Slice:
		problem.BadValue = field.OmitValueType{}
	}
	return fields.Refusal{Path: pathOf(name), Message: name + ": " + problem.ErrorBody()}
}

// decode returns an object as the API server validates it: in its internal version, with defaults.
func decode(object *unstructured.Unstructured) (runtime.Object, error) {
	object = object.DeepCopy()
	object.SetUID(types.UID("00000000-0000-0000-0000-000000000000")) // an API server has set one by then
	unstructured.RemoveNestedField(object.Object, "status")
	text, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), text)
}

// pathPart is a key or an index of a field's path, such as spec.containers[0].env or metadata.labels[app].
var pathPart = regexp.MustCompile(`\[[^\]]*\]|[^.\[]+`)

// pathOf returns the keys and indexes of a field's name.
func pathOf(name string) []string {
	parts := pathPart.FindAllString(name, -1)
	for i, part := range parts {
		parts[i] = strings.Trim(part, "[]")
	}
	return parts
}
