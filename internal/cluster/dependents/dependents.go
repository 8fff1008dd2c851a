// Package dependents counts the objects that are deleted with an object: those in a Namespace, those of a
// CustomResourceDefinition, and those that the garbage collector removes. It lists metadata of all objects there may
// be.
//
// It deletes nothing, and reads no object's body.
//
// Remaining returns the objects that keep a Namespace or a definition from being empty. Start with Count.
package dependents

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

const (
	listsAtOnce = 16
	// maxNamespaces bounds how many namespaces are listed one by one. It takes a list of each kind in each.
	maxNamespaces = 16
)

// Count counts the objects that are deleted with each of some objects, as if that one alone were deleted:
//   - the objects in a Namespace, and all objects of a CustomResourceDefinition;
//   - those that the garbage collector removes: objects that have owners, and none that stays;
//   - those that are deleted with these, and so on.
//
// Events don't count. A terminating object counts as long as it exists, but keeps no object that it owns.
// The notes are about kinds that could not be counted.
func Count(ctx context.Context, c *cluster.Cluster,
	deleted []objectmeta.LiveMetadata) (map[types.UID]kinds.ObjectCounts, []string, error) {
	if len(deleted) == 0 {
		return nil, nil, nil
	}
	listings, notes, err := listAll(ctx, c, namespacesOf(deleted))
	if err != nil {
		return nil, nil, fmt.Errorf("count the dependents of objects: %w", err)
	}
	g := newGraph(listings, deleted)
	counts := map[types.UID]kinds.ObjectCounts{}
	for _, liveMetadata := range deleted {
		counts[liveMetadata.UID] = countByKind(g.deletedWith(g.objects[liveMetadata.UID]))
	}
	return counts, notes, nil
}

// countByKind counts objects by kind.
func countByKind(objects []*object) kinds.ObjectCounts {
	counted := map[schema.GroupKind]kinds.Count{}
	for _, object := range objects {
		kind := object.in.GroupKind()
		counted[kind] = kinds.Count{
			Group:    kind.Group,
			Kind:     kind.Kind,
			Resource: object.in.Resource,
			Objects:  counted[kind].Objects + 1,
		}
	}
	return kinds.NewObjectCounts(slices.Collect(maps.Values(counted)))
}

// A listing contains the objects of one kind, in one namespace or everywhere.
type listing struct {
	in        *cluster.Resource
	namespace string
	objects   []*object
	err       error // why there may be more
}

// isIncomplete reports whether there may be more objects. A kind that was deleted meanwhile has none.
func (l *listing) isIncomplete() bool { return l.err != nil && !apierrors.IsNotFound(l.err) }

// namespacesOf returns the namespaces of all dependents of some objects, or NamespaceAll. An object in a
// namespace has no dependents in others.
func namespacesOf(deleted []objectmeta.LiveMetadata) []string {
	namespaces := map[string]bool{}
	for _, liveMetadata := range deleted {
		namespaces[liveMetadata.ID.Namespace] = true
	}
	if namespaces[metav1.NamespaceAll] || len(namespaces) > maxNamespaces {
		return []string{metav1.NamespaceAll}
	}
	return slices.Sorted(maps.Keys(namespaces))
}

// listAll lists all objects in some namespaces, or everywhere.
func listAll(ctx context.Context, c *cluster.Cluster, namespaces []string) ([]listing, []string, error) {
	all, unknown, err := c.AllKinds(ctx)
	if err != nil {
		return nil, nil, err
	}
	var listings []listing
	for i := range all {
		for _, namespace := range namespaces {
			if isCounted(all[i]) && (all[i].Namespaced || namespace == metav1.NamespaceAll) {
				listings = append(listings, listing{in: &all[i], namespace: namespace})
			}
		}
	}
	if err := list(ctx, c, listings); err != nil {
		return nil, nil, err
	}
	return listings, notesOn(listings, unknown), nil
}

// list fills listings. It returns an error only if no kind can be listed.
func list(ctx context.Context, c *cluster.Cluster, listings []listing) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(listsAtOnce)
	for i := range listings {
		l := &listings[i]
		group.Go(func() error {
			add := func(metadata *metav1.PartialObjectMetadata) {
				l.objects = append(l.objects, newObject(l.in, metadata))
			}
			l.err = c.EachMetadata(ctx, *l.in, l.namespace, metav1.ListOptions{}, add)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case utilnet.IsConnectionRefused(l.err):
				return l.err
			}
			return nil
		})
	}
	return group.Wait()
}

// isCounted reports whether the objects of a kind can be deleted, and are not Events. Others are computed from
// other data, such as metrics.
func isCounted(resource cluster.Resource) bool {
	if resource.Kind == "Event" && (resource.Group == "" || resource.Group == "events.k8s.io") {
		return false
	}
	return resource.Verbs == nil || slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "delete")
}

// isMeasured reports whether the objects of an API group are measurements: deletes do not concern them.
func isMeasured(group string) bool { return strings.HasSuffix(group, "metrics.k8s.io") }

// notesOn returns one note on all kinds that could not be listed, with the first error: mostly, the others are the
// same.
func notesOn(listings []listing, unknown map[string]error) []string {
	var names []string
	var firstErr error
	add := func(name string, err error) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if firstErr == nil {
			firstErr = err
		}
	}
	for _, l := range listings {
		if l.isIncomplete() {
			add(l.in.GroupKind().String(), l.err)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(unknown)) {
		if !isMeasured(group) {
			add("all of "+group, unknown[group])
		}
	}
	if firstErr == nil {
		return nil
	}
	return []string{printable.Line(
		fmt.Sprintf("not counted, because it can't be listed: %s (%v)", strings.Join(names, ", "), firstErr),
	)}
}
