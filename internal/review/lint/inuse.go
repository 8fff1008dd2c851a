package lint

import (
	"fmt"
	"slices"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/pkg/payload"
)

// These rules are about deleted or dropped objects that other manifests of the payload refer to.

// A use is a reference of a manifest of this payload.
type use = references.Use[*manifest]

// usesOf returns the references to an object on the clusters of a manifest that deletes or contained it.
func (s *subject) usesOf(m *manifest) []use {
	return slices.DeleteFunc(slices.Clone(s.graph.Uses[m.id]), func(u use) bool { return !s.shareCluster(m, u.By) })
}

// usesWithout returns the references to an object on clusters that have none of the other manifests.
func (s *subject) usesWithout(m *manifest, others []*manifest) []use {
	return slices.DeleteFunc(s.usesOf(m), func(u use) bool {
		_, isWithout := s.clusterWithout(u.By, others)
		return !isWithout
	})
}

// describe returns the first reference to an object, with its file and line, and the number of the others.
func describe(uses []use) string {
	first := uses[0]
	return references.Describe(first.By.id, fmt.Sprintf("%s:%d", first.By.Path, first.By.Line), first.Field(),
		len(uses)-1)
}

// checkDeletedInUse looks for tombstones of objects that the payload still refers to. Services that the API server
// calls, and ServiceAccounts, have rules of their own.
func checkDeletedInUse(s *subject, r *reporter) {
	for _, t := range s.tombstones {
		if t.groupKind() == kinds.ServiceAccount || s.isCreatedToo(t) {
			continue
		}
		uses := slices.DeleteFunc(s.usesOf(t), func(u use) bool {
			return kinds.ClientConfigPath(u.By.groupKind()) != nil
		})
		if len(uses) == 0 {
			continue
		}
		cluster, _ := s.sharedCluster(t, uses[0].By)
		todo := "drop the tombstone, or that reference"
		if next := s.successorOf(t); next != nil {
			todo = fmt.Sprintf("name %s there, or drop the tombstone", next.id)
		}
		consequence := "fails without it"
		if uses[0].Consequence == references.Collected {
			consequence = "is deleted with it"
		}
		r.field(t, annotation(payload.DeleteAnnotation), "%s is deleted, but %s%s, and %s: %s", t.id.Name,
			describe(uses), onCluster(cluster), consequence, todo)
	}
}

// isCreatedToo reports whether the payload creates an object on a cluster where a tombstone deletes it. The rule
// created-and-deleted reports that.
func (s *subject) isCreatedToo(t *manifest) bool {
	return slices.ContainsFunc(s.byID[t.id], func(other *manifest) bool {
		return !other.isTombstone && s.shareCluster(t, other)
	})
}

// successorOf returns the new object of the same kind in the file where the previous payload had the object; nil if
// there is none, or more than one.
func (s *subject) successorOf(t *manifest) *manifest {
	if s.previous == nil || len(s.previous.byID[t.id]) == 0 {
		return nil
	}
	var found []*manifest
	for _, m := range s.byKind[t.groupKind()] {
		isNew := len(s.previous.byID[m.id]) == 0
		if isNew && !m.isTombstone && m.id.Namespace == t.id.Namespace && m.File() == s.previous.byID[t.id][0].File() {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
}
