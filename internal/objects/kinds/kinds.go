// Package kinds identifies objects, and has the properties of Kubernetes' own kinds: their versions and scopes, where
// their pods are, when they are applied and deleted, and which data a delete loses. ObjectCounts counts objects by
// their kinds.
//
// table.go has a row for each kind; functions such as PodSpec and StageOf are views of the table. Custom resources are
// described by their CustomResourceDefinitions instead.
//
// Start with a kind, such as Deployment, or with ScopeOf.
package kinds

import (
	"cmp"
	"strconv"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// ClusterVersionName is the name of the only ClusterVersion that counts.
const ClusterVersionName = "version"

// Scheme contains the types of all kinds and versions, removed ones included: the types have
// the version of Kubernetes that removed them.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1beta1.AddToScheme(scheme))
	return scheme
})

// DefinedBy returns the kind that a CustomResourceDefinition defines. Group and kind may be empty, as in a tombstone
// without a spec.
func DefinedBy(definition *unstructured.Unstructured) schema.GroupKind {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	return schema.GroupKind{Group: group, Kind: kind}
}

// DefinitionName returns the name that the CustomResourceDefinition of a kind has, if its plural is the usual one.
func DefinitionName(kind schema.GroupKind) string {
	plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
	return plural.GroupResource().String()
}

// IsContainer reports whether other objects exist only in an object of a kind, or by its definition.
func IsContainer(kind schema.GroupKind) bool {
	return kind == Namespace || kind == CustomResourceDefinition
}

// Extends reports whether the objects of a kind make the API server serve other kinds.
func Extends(kind schema.GroupKind) bool {
	return kind == CustomResourceDefinition || kind == APIService
}

// An ID identifies an object, in any version.
type ID struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// NewID returns the ID of an object of a kind. The namespace of a cluster-scoped object is empty.
func NewID(kind schema.GroupKind, namespace, name string) ID {
	return ID{Group: kind.Group, Kind: kind.Kind, Namespace: namespace, Name: name}
}

// IDOf returns the ID of an object, with the namespace that the object has.
func IDOf(object *unstructured.Unstructured) ID {
	return NewID(object.GroupVersionKind().GroupKind(), object.GetNamespace(), object.GetName())
}

// GroupKind returns the kind of the object.
func (id ID) GroupKind() schema.GroupKind { return schema.GroupKind{Group: id.Group, Kind: id.Kind} }

// String returns the object as people write it: "Deployment my-namespace/my-name".
func (id ID) String() string {
	name := id.Name
	if id.Namespace != "" {
		name = id.Namespace + "/" + name
	}
	return printable.Line(id.Kind + " " + name)
}

// Without returns a text about the object without its name, so that the texts of several objects with
// one cause are equal.
func (id ID) Without(text string) string {
	return strings.NewReplacer(id.String(), id.Kind, strconv.Quote(id.Name), `"…"`).Replace(text)
}

// OrHook names an object, or one of its lifecycle hooks: "pre hook of Deployment my-namespace/my-name". A hook of "" is
// the object itself.
func (id ID) OrHook(hook string) string {
	if hook == "" {
		return id.String()
	}
	return printable.Line(hook) + " hook of " + id.String()
}

// Compare orders objects by kind, group, namespace and name.
func Compare(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name))
}

// ScaleTarget returns the target of a HorizontalPodAutoscaler, or of an object from which a controller creates one,
// such as KEDA's ScaledObject, in which the kind Deployment may be omitted.
func ScaleTarget(autoscaler *unstructured.Unstructured) (target ID, scales bool) {
	ref, _, _ := unstructured.NestedStringMap(autoscaler.Object, "spec", "scaleTargetRef")
	if ref["name"] == "" {
		return ID{}, false
	}
	kind := schema.FromAPIVersionAndKind(cmp.Or(ref["apiVersion"], "apps/v1"), cmp.Or(ref["kind"], Deployment.Kind))
	return NewID(kind.GroupKind(), autoscaler.GetNamespace(), ref["name"]), true
}
