package dependents

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Remainder contains the objects that would be left in a Namespace, or of a CustomResourceDefinition, if some other
// objects were deleted.
type Remainder struct {
	Objects []kinds.ID // sorted by name
	Err     error      // why there may be more
}

// Remaining returns the objects that are left in each of some Namespaces and CustomResourceDefinitions when other
// objects are deleted, and their dependents with them. Terminating objects and those that Kubernetes creates in every
// namespace don't count, nor do Events, Endpoints and Leases, which processes leave behind.
func Remaining(ctx context.Context, c *cluster.Cluster, containers,
	deleted []objectmeta.LiveMetadata) (map[types.UID]Remainder, error) {
	if len(containers) == 0 {
		return nil, nil
	}
	all, unknown, err := c.AllKinds(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the objects in namespaces and of definitions: %w", err)
	}
	listings := listingsIn(all, containers)
	if err := list(ctx, c, listings); err != nil {
		return nil, err
	}
	g, isDeleted := newGraph(listings, deleted), map[*object]bool{}
	for i := range deleted {
		isDeleted[g.objects[deleted[i].UID]] = true
	}
	g.collect(isDeleted)
	remainders := map[types.UID]Remainder{}
	for i := range containers {
		found := g.remainderOf(objectOf(&containers[i]), listings, isDeleted)
		for version, err := range unknown {
			if containers[i].ID.GroupKind() == kinds.Namespace && found.Err == nil && !isMeasured(version) {
				found.Err = fmt.Errorf("objects of %s can't be listed: %w", version, printable.Error(err))
			}
		}
		remainders[containers[i].UID] = found
	}
	return remainders, nil
}

// listingsIn returns what to list: all kinds in each Namespace, and all objects of each definition.
func listingsIn(all []cluster.Resource, containers []objectmeta.LiveMetadata) []listing {
	var listings []listing
	for i := range all {
		resource := &all[i]
		if !isCounted(*resource) || kinds.IsTransient(resource.GroupKind()) {
			continue
		}
		var namespaces []string
		for j := range containers {
			switch container := &containers[j]; {
			case !objectOf(container).containsKind(resource):
			case container.ID.GroupKind() == kinds.CustomResourceDefinition:
				namespaces = append(namespaces, metav1.NamespaceAll)
			default:
				namespaces = append(namespaces, container.ID.Name)
			}
		}
		if slices.Contains(namespaces, metav1.NamespaceAll) {
			namespaces = []string{metav1.NamespaceAll}
		}
		for _, namespace := range namespaces {
			listings = append(listings, listing{in: resource, namespace: namespace})
		}
	}
	return listings
}

// isImplicit reports whether Kubernetes or OpenShift creates an object in every namespace, or as the token of an
// account.
func isImplicit(id kinds.ID, m *metav1.PartialObjectMetadata) bool {
	isToken := id.GroupKind() == kinds.Secret && m.Annotations["kubernetes.io/service-account.uid"] != ""
	return isToken || kinds.IsGenerated(id)
}

// remainderOf returns the objects in a container that are not deleted.
func (g *graph) remainderOf(container *object, listings []listing, deleted map[*object]bool) Remainder {
	var remainder Remainder
	for i := range listings {
		l := &listings[i]
		isElsewhere := container.in.GroupKind() == kinds.Namespace && l.namespace != "" && l.namespace != container.name
		if l.isIncomplete() && remainder.Err == nil && container.containsKind(l.in) && !isElsewhere {
			remainder.Err = fmt.Errorf("%s can't be listed: %w", l.in.GroupResource(), printable.Error(l.err))
		}
	}
	for _, object := range g.objects {
		if container.contains(object) && !deleted[object] && !object.terminating && !object.isImplicit {
			remainder.Objects = append(remainder.Objects, object.id())
		}
	}
	slices.SortFunc(remainder.Objects, kinds.Compare)
	return remainder
}
