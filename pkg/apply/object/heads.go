package object

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// heads are the metadata of objects: from before the run, as long as those count, and otherwise from the cluster.
type heads struct {
	*scope
	outdated sync.Map // objects that were written since: their metadata from before the run no longer count
}

// find returns the metadata of an object. It sends a request only if the object could not be listed before the run, or
// has been written since.
func (h *heads) find(resource cluster.Resource, id kinds.ID) (objectmeta.LiveMetadata, bool, error) {
	if _, isOutdated := h.outdated.Load(id); isOutdated {
		return h.get(resource, id)
	}
	id = resource.Scoped(id)
	if head, found := h.before.Find(id); found || h.before.Covers(id) {
		return head, found, nil
	}
	return h.get(resource, id)
}

// get requests the metadata of an object.
func (h *heads) get(resource cluster.Resource, id kinds.ID) (objectmeta.LiveMetadata, bool, error) {
	object, err := h.cluster.GetMetadata(h.requests, resource, id.Namespace, id.Name)
	if apierrors.IsNotFound(err) {
		return objectmeta.LiveMetadata{}, false, nil
	}
	if err != nil {
		return objectmeta.LiveMetadata{}, false, err
	}
	return objectmeta.Of(resource, object), true, nil
}

// forget drops the metadata of an object from before the run.
func (h *heads) forget(id kinds.ID) { h.outdated.Store(id, true) }
