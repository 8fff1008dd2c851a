package kinds

import (
	"cmp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/text/printable"
)

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
