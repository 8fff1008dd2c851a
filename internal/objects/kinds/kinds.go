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
	"reflect"
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
	"k8s.io/client-go/kubernetes"
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

// A Scope reports whether objects of a kind are in a namespace.
type Scope string

// The scopes, as CustomResourceDefinitions write them.
const (
	Unknown    Scope = "" // not a built-in kind
	Namespaced Scope = "Namespaced"
	Cluster    Scope = "Cluster"
)

// ScopeOf returns the scope of a kind.
func ScopeOf(kind schema.GroupKind) Scope { return scopes()[kind] }

// scopes returns the scopes from Kubernetes' client: the constructor of the client of a
// namespaced kind has a namespace parameter.
var scopes = sync.OnceValue(func() map[schema.GroupKind]Scope {
	// other clients have these
	found := map[schema.GroupKind]Scope{CustomResourceDefinition: Cluster, APIService: Cluster}
	clients := reflect.TypeFor[kubernetes.Interface]()
	for i := range clients.NumMethod() {
		group := clients.Method(i).Type
		if group.NumOut() != 1 || group.Out(0).Kind() != reflect.Interface {
			continue
		}
		for j := range group.Out(0).NumMethod() {
			getter := group.Out(0).Method(j).Type
			for _, kind := range kindsOf(getter) {
				found[kind] = Cluster
				if getter.NumIn() == 1 {
					found[kind] = Namespaced
				}
			}
		}
	}
	return found
})

// kindsOf returns the kinds that the client of one kind creates, as in
// Create(ctx, *v1.Pod, options).
func kindsOf(getter reflect.Type) []schema.GroupKind {
	if getter.NumOut() != 1 || getter.Out(0).Kind() != reflect.Interface {
		return nil
	}
	create, found := getter.Out(0).MethodByName("Create")
	if !found || create.Type.NumIn() < 2 || create.Type.In(1).Kind() != reflect.Pointer {
		return nil
	}
	object, isObject := reflect.New(create.Type.In(1).Elem()).Interface().(runtime.Object)
	if !isObject {
		return nil
	}
	types, _, err := Scheme().ObjectKinds(object)
	if err != nil {
		return nil
	}
	kinds := make([]schema.GroupKind, len(types))
	for i, kind := range types {
		kinds[i] = kind.GroupKind()
	}
	return kinds
}

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
