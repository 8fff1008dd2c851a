package object

import (
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// servedKinds finds the resources of kinds. It knows the definitions and APIServices that the run has written: API
// servers serve the kinds of those a moment later.
type servedKinds struct {
	*applierScope
	written sync.Map // group -> time when its definition or APIService was written or became ready
}

// The times during which a failure may come from API servers that have not observed the latest writes of the run, and
// during which a failure that is most likely permanent may.
const (
	newFor       = time.Minute
	justAfterFor = 5 * time.Second
)

// find returns the resource of a kind. Discovery is repeated for a kind that may be new.
func (s *servedKinds) find(kind schema.GroupVersionKind) (cluster.Resource, error) {
	resource, err := s.cluster.Find(s.requestCtx, kind)
	if errors.Is(err, cluster.ErrNotServed) && s.isNew(newFor, kind.Group) ||
		errors.As(err, new(*cluster.UnknownKind)) {
		s.cluster.Refresh()
		return s.cluster.Find(s.requestCtx, kind)
	}
	return resource, err
}

// place returns the resource of a manifest's object.
func (s *servedKinds) place(m *payload.Manifest) (cluster.Resource, error) {
	resource, err := s.find(m.GroupVersionKind())
	if err == nil && resource.Namespaced && m.Object().GetNamespace() == "" {
		return resource, inNoNamespace
	}
	return resource, err
}

// isCustom reports whether the objects of a resource are custom resources. Aggregated API servers need not follow the
// conventions for generations.
func (s *servedKinds) isCustom(resource cluster.Resource) bool {
	isCustom, err := s.cluster.IsCustom(s.requestCtx, resource)
	return err == nil && isCustom
}

// countsChanges reports whether the generation of a resource's objects counts every change of their content.
func (s *servedKinds) countsChanges(resource cluster.Resource) bool {
	return kinds.RaisesGeneration(resource.GroupKind()) || s.isCustom(resource)
}

// noteWritten notes that the run has written the object of a manifest, if that adds an API group.
func (s *servedKinds) noteWritten(m *payload.Manifest) {
	if kinds.Extends(m.GroupVersionKind().GroupKind()) {
		s.written.Store(servedGroup(m.Object()), time.Now())
	}
}

// noteExtended notes that a definition or an APIService is ready.
func (s *servedKinds) noteExtended(live *unstructured.Unstructured) {
	if live.GroupVersionKind().GroupKind() == kinds.CustomResourceDefinition {
		s.cluster.Learn(live)
	} else {
		s.cluster.Refresh()
	}
	group := servedGroup(live)
	if _, isOurs := s.written.Load(group); isOurs {
		s.written.Store(group, time.Now())
	}
}

// isNew reports whether this run has just written the definition, or the APIService, of a group.
func (s *servedKinds) isNew(within time.Duration, group string) bool {
	written, found := s.written.Load(group)
	return found && time.Since(written.(time.Time)) < within
}

// servedGroup returns the API group that a definition or an APIService adds.
func servedGroup(object *unstructured.Unstructured) string {
	group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
	return group
}
