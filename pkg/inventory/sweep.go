package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/printable"
)

// mostNamespaces bounds how many namespaces are asked for one by one. It takes a list of
// each kind in each.
const mostNamespaces = 16

// A listing is the objects of one kind, in one namespace or everywhere.
type listing struct {
	in        *cluster.Resource
	namespace string
	objects   []*object
	err       error // why there may be more
}

// namespacesOf are those in which all is that may go with some objects, or the one that
// means everywhere. An object in a namespace has none that depends on it elsewhere.
func namespacesOf(going []Head) []string {
	namespaces := map[string]bool{}
	for _, head := range going {
		namespaces[head.ID.Namespace] = true
	}
	if namespaces[metav1.NamespaceAll] || len(namespaces) > mostNamespaces {
		return []string{metav1.NamespaceAll}
	}
	return slices.Sorted(maps.Keys(namespaces))
}

// sweep lists all objects in some namespaces, or everywhere.
func sweep(ctx context.Context, c *cluster.Cluster, namespaces []string) ([]listing, []string, error) {
	all, unknown, err := c.All(ctx)
	if err != nil {
		return nil, nil, err
	}
	var listings []listing
	for i := range all {
		for _, namespace := range namespaces {
			if matters(all[i]) && (all[i].Namespaced || namespace == metav1.NamespaceAll) {
				listings = append(listings, listing{in: &all[i], namespace: namespace})
			}
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(listsAtOnce)
	for i := range listings {
		group.Go(func() error { return listings[i].fill(ctx, c) })
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	return listings, notesOn(listings, unknown), nil
}

// matters says whether objects of a kind are there to be deleted. Others only show what is
// elsewhere, such as what metrics say. Events go unmissed.
func matters(in cluster.Resource) bool {
	if in.Kind == "Event" && (in.Group == "" || in.Group == "events.k8s.io") {
		return false
	}
	return in.Verbs == nil || slices.Contains(in.Verbs, "list") && slices.Contains(in.Verbs, "delete")
}

// fill asks for the objects. That they can't be listed is an error only if nothing can be.
func (l *listing) fill(ctx context.Context, c *cluster.Cluster) error {
	in := c.Metadata.Resource(l.in.GroupVersionResource).Namespace(l.namespace)
	l.err = each(ctx, in, metav1.ListOptions{}, func(head *metav1.PartialObjectMetadata) {
		l.objects = append(l.objects, objectOf(l.in, head))
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case utilnet.IsConnectionRefused(l.err):
		return l.err
	}
	return nil
}

// notesOn says in one note what could not be listed, and why the first could not: the others
// mostly have the same reason.
func notesOn(listings []listing, unknown map[string]error) []string {
	var names []string
	var why error
	add := func(name string, err error) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if why == nil {
			why = err
		}
	}
	for _, l := range listings {
		if l.err != nil && !apierrors.IsNotFound(l.err) { // else the kind has just gone
			add(l.in.GroupKind().String(), l.err)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(unknown)) {
		if !strings.HasSuffix(group, "metrics.k8s.io") { // whose objects are measurements
			add("all of "+group, unknown[group])
		}
	}
	if why == nil {
		return nil
	}
	return []string{printable.Line(fmt.Sprintf("not counted, because it can't be listed: %s (%v)", strings.Join(names, ", "), why))}
}
