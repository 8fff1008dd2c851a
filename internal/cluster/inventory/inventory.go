// Package inventory finds the objects of releases on a cluster, from metadata alone: one list for each kind, of the
// objects that have the label of a release. It has the objects that exist before an apply, and those that were left
// behind.
//
// It reads no object's body, changes nothing, and decides nothing.
//
// Start with Take.
package inventory

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// listsAtOnce bounds how many lists are requested at a time.
const listsAtOnce = 16

// A Scope is a kind, and a namespace to list it in if it may not be listed in the whole cluster.
type Scope struct {
	Kind      schema.GroupKind
	Namespace string // "" where none is known
}

// An Inventory contains the metadata of the objects of releases on a cluster.
type Inventory struct {
	objects  map[kinds.ID]*objectmeta.LiveMetadata
	unlisted map[schema.GroupKind]error
	narrow   map[Scope]bool // the namespaces that were listed one by one
	taken    time.Time
}

// Take lists the objects of some kinds. Kinds that are not served have no objects. A kind that may not be
// listed in the whole cluster is listed in the namespaces of its scopes; for such a kind, and for one whose API
// does not answer, ListError returns why.
//
// Lists contain the objects of all releases on the cluster. Objects for which matters returns false are dropped, as
// if they had no label; nil drops none.
func Take(ctx context.Context, c *cluster.Cluster, scopes []Scope,
	matters func(release string, id kinds.ID) bool) (*Inventory, error) {
	taken := &Inventory{
		objects:  map[kinds.ID]*objectmeta.LiveMetadata{},
		unlisted: map[schema.GroupKind]error{},
		narrow:   map[Scope]bool{},
		taken:    time.Now(),
	}
	namespaces := map[schema.GroupKind]map[string]bool{}
	for _, scope := range scopes {
		if namespaces[scope.Kind] == nil {
			namespaces[scope.Kind] = map[string]bool{}
		}
		namespaces[scope.Kind][scope.Namespace] = true
	}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(listsAtOnce)
	for kind, namespaces := range namespaces {
		group.Go(func() error {
			found, listed, err := listAll(ctx, c, kind, slices.Sorted(maps.Keys(namespaces)), matters)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, cluster.ErrNotServed):
			case ctx.Err() != nil:
				return ctx.Err()
			case utilnet.IsConnectionRefused(err):
				return err
			case err != nil:
				taken.unlisted[kind] = err
			}
			for _, object := range found {
				taken.objects[object.ID] = object
			}
			for _, namespace := range listed {
				taken.narrow[Scope{kind, namespace}] = true
			}
			return nil
		})
	}
	return taken, group.Wait()
}

// TakeRelease lists the objects of one release, of some kinds.
func TakeRelease(ctx context.Context, c *cluster.Cluster, release string,
	groupKinds []schema.GroupKind) (*Inventory, error) {
	return Take(ctx, c, Everywhere(groupKinds), func(other string, _ kinds.ID) bool { return other == release })
}

// Everywhere returns the scopes of kinds whose namespaces are not known.
func Everywhere(groupKinds []schema.GroupKind) (scopes []Scope) {
	for _, kind := range groupKinds {
		scopes = append(scopes, Scope{Kind: kind})
	}
	return scopes
}

// listAll lists the objects of the whole cluster if the user may list them, and otherwise of some namespaces. The
// namespaces in which it was allowed are returned with the error.
func listAll(ctx context.Context, c *cluster.Cluster, kind schema.GroupKind, namespaces []string,
	matters func(release string, id kinds.ID) bool) (found []*objectmeta.LiveMetadata, listed []string, err error) {
	resource, err := c.FindKind(ctx, kind)
	if err != nil {
		return nil, nil, err
	}
	found, err = list(ctx, c, resource, metav1.NamespaceAll, matters)
	if !apierrors.IsForbidden(err) || !resource.Namespaced {
		return found, nil, err
	}
	for _, namespace := range namespaces {
		if namespace == "" {
			continue
		}
		some, listErr := list(ctx, c, resource, namespace, matters)
		if listErr != nil && !apierrors.IsForbidden(listErr) {
			return found, listed, listErr
		}
		if listErr == nil {
			found, listed = append(found, some...), append(listed, namespace)
		}
	}
	return found, listed, err
}

// pageSize limits the objects of one request: pages are read one after the other.
const pageSize = 2000

// list lists the labelled objects.
func list(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, namespace string,
	matters func(release string, id kinds.ID) bool) ([]*objectmeta.LiveMetadata, error) {
	var found []*objectmeta.LiveMetadata
	options := metav1.ListOptions{LabelSelector: objectmeta.ReleaseLabel, Limit: pageSize}
	err := c.EachMetadata(ctx, resource, namespace, options, func(object *metav1.PartialObjectMetadata) {
		metadata := objectmeta.Of(resource, object)
		if matters == nil || matters(metadata.Release, metadata.ID) {
			metadata.Trim()
			found = append(found, &metadata)
		}
	})
	return found, err
}

// Find returns the object with an ID, if a release has it.
func (i *Inventory) Find(id kinds.ID) (objectmeta.LiveMetadata, bool) {
	if object, found := i.objects[id]; found {
		return *object, true
	}
	return objectmeta.LiveMetadata{}, false
}

// IDs returns the IDs of all objects.
func (i *Inventory) IDs() iter.Seq[kinds.ID] { return maps.Keys(i.objects) }

// Age returns how long ago the inventory was taken.
func (i *Inventory) Age() time.Duration { return time.Since(i.taken) }

// Covers reports whether an object that Find does not find has no label of a release, or does not exist.
func (i *Inventory) Covers(id kinds.ID) bool {
	kind := id.GroupKind()
	return i.unlisted[kind] == nil || i.narrow[Scope{kind, id.Namespace}]
}

// ListError returns why not all objects of a kind are known; nil if they are.
func (i *Inventory) ListError(kind schema.GroupKind) error { return i.unlisted[kind] }

// UnlistedKinds returns the kinds whose objects are not all known, in order.
func (i *Inventory) UnlistedKinds() []schema.GroupKind {
	return slices.SortedFunc(maps.Keys(i.unlisted), func(a, b schema.GroupKind) int {
		return cmp.Compare(a.String(), b.String())
	})
}

// Of returns the objects of a release, in the order of their names.
func (i *Inventory) Of(release string) []objectmeta.LiveMetadata {
	var found []objectmeta.LiveMetadata
	for _, object := range i.objects {
		if object.IsOf(release) {
			found = append(found, *object)
		}
	}
	slices.SortFunc(found, func(a, b objectmeta.LiveMetadata) int { return kinds.Compare(a.ID, b.ID) })
	return found
}

// OwnerOf returns the release that has an object, if another than the given one does.
func (i *Inventory) OwnerOf(id kinds.ID, release string) (string, bool) {
	object, _ := i.Find(id)
	return object.OtherOwner(release)
}
