package object

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A metadataReader returns the metadata of objects: from before the run, as long as those count, and otherwise from the
// cluster.
type metadataReader struct {
	*applierScope
	outdated sync.Map // objects that were written since: their metadata from before the run no longer count
}

// find returns the metadata of an object. It sends a request only if the object could not be listed before the run, or
// has been written since.
func (r *metadataReader) find(resource cluster.Resource, id kinds.ID) (objectmeta.LiveMetadata, bool, error) {
	if _, isOutdated := r.outdated.Load(id); isOutdated {
		return r.get(resource, id)
	}
	id = resource.Scoped(id)
	if head, found := r.before.Find(id); found || r.before.Covers(id) {
		return head, found, nil
	}
	return r.get(resource, id)
}

// get requests the metadata of an object.
func (r *metadataReader) get(resource cluster.Resource, id kinds.ID) (objectmeta.LiveMetadata, bool, error) {
	object, err := r.cluster.GetMetadata(r.requestCtx, resource, id.Namespace, id.Name)
	if apierrors.IsNotFound(err) {
		return objectmeta.LiveMetadata{}, false, nil
	}
	if err != nil {
		return objectmeta.LiveMetadata{}, false, err
	}
	return objectmeta.Of(resource, object), true, nil
}

// forget drops the metadata of an object from before the run.
func (r *metadataReader) forget(id kinds.ID) { r.outdated.Store(id, true) }
