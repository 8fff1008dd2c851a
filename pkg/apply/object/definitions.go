package object

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// definitions are the versions of CustomResourceDefinitions, as far as they matter to custom resources.
type definitions struct {
	*applierScope

	mu    sync.Mutex
	known map[string]definition // keyed by name
}

// A definition is the known version of a CustomResourceDefinition.
type definition struct {
	version string
	isKnown bool // false if the user may not read it
}

// note notes the version of an object, if it is a definition, and reports whether it differs from the known version.
func (d *definitions) note(id kinds.ID, object metav1.Object) (isNew bool) {
	if id.GroupKind() != kinds.CustomResourceDefinition {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before, version := d.known[id.Name], versionOf(object)
	d.known[id.Name] = definition{version, true}
	return before.isKnown && before.version != version
}

// versionOf returns the version of the definition of a resource; "" if it has none. If the definition was not listed,
// it is requested once, or until the server answers.
func (d *definitions) versionOf(resource cluster.Resource) (version string, isKnown bool) {
	if kinds.ScopeOf(resource.GroupKind()) != kinds.Unknown {
		return "", true
	}
	name := resource.Resource + "." + resource.Group
	d.mu.Lock()
	defer d.mu.Unlock()
	found, wasAsked := d.known[name]
	if !wasAsked {
		var isAnswered bool
		if found, isAnswered = d.find(name); isAnswered {
			d.known[name] = found
		}
	}
	return found.version, found.isKnown
}

// find finds a definition, and reports whether the server has answered.
func (d *definitions) find(name string) (found definition, isAnswered bool) {
	id := kinds.NewID(kinds.CustomResourceDefinition, "", name)
	if head, isListed := d.before.Find(id); isListed {
		return definition{versionOf(head.Object()), true}, true
	}
	resource, err := d.cluster.FindKind(d.requestCtx, kinds.CustomResourceDefinition)
	if err != nil {
		return definition{}, false
	}
	object, err := d.cluster.GetMetadata(d.requestCtx, resource, "", name)
	if err != nil {
		return definition{isKnown: apierrors.IsNotFound(err)}, apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
	}
	return definition{versionOf(object), true}, true
}

func versionOf(definition metav1.Object) string {
	return fmt.Sprint(definition.GetUID(), definition.GetGeneration())
}
