package lint

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/fields"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/plan"
)

// These rules are about what an update from the previous payload would do.

// absent are the objects of the previous payload that this one says nothing of, and
// what becomes of them.
func (s *subject) absent(action plan.Action, report func(*manifest, plan.Entry)) {
	if s.update == nil {
		return
	}
	for _, entry := range s.update.Absent {
		if entry.Action == action {
			report(s.previous.byID[payload.ID(entry.Object)][0], entry)
		}
	}
}

// dropped are those that stay in clusters, with nobody who looks after them.
func (s *subject) dropped() []*manifest {
	var found []*manifest
	s.absent(plan.Dropped, func(m *manifest, _ plan.Entry) { found = append(found, m) })
	return found
}

func checkDropped(s *subject, r *reporter) error {
	s.absent(plan.Dropped, func(m *manifest, entry plan.Entry) {
		if entry.RenamedTo == nil {
			r.at(m, `it is gone, and stays in clusters: keep its manifest with the annotation %s: "true" (runlevel plan prints it)`, payload.DeleteAnnotation)
		}
	})
	return nil
}

func checkRenamed(s *subject, r *reporter) error {
	s.absent(plan.Dropped, func(m *manifest, entry plan.Entry) {
		if entry.RenamedTo != nil {
			r.at(m, `%s seems to have taken its place, and it stays in clusters beside that: add a manifest for the old one with the annotation %s: "true"`, entry.RenamedTo, payload.DeleteAnnotation)
		}
	})
	return nil
}

// checkNarrowed looks for objects that are still there, but not for all clusters that
// have them.
func checkNarrowed(s *subject, r *reporter) error {
	for _, old := range s.previous.normal {
		now := s.byID[old.id]
		if len(now) == 0 || slices.ContainsFunc(now, func(m *manifest) bool { return m.chosenBy() == old.chosenBy() }) {
			continue
		}
		var variants []*payload.Manifest
		for _, m := range now {
			variants = append(variants, m.Manifest)
		}
		if where, found := payload.Without(old.Manifest, variants); found {
			r.at(now[0], "%s:%d had it%s, and nothing has it there any more, so it stays: add a tombstone for those clusters", old.where(), old.Line, on(where))
		}
	}
	return nil
}

// enoughHints is how many findings get a hint that takes long to find. Who has more has
// another problem.
const enoughHints = 20

func checkDeleteOfNothing(s *subject, r *reporter) error {
	for _, t := range s.tombstones {
		if len(s.previous.byID[t.id]) > 0 || s.previous.excluded[t.id] {
			continue
		}
		hint := ""
		if len(r.findings) >= enoughHints {
			// it is said without one
		} else if near := s.previous.nearest(t); near != nil {
			hint = fmt.Sprintf(": did you mean %s (%s:%d)?", near.id, near.where(), near.Line)
		}
		r.at(t, "the previous payload has no such object%s", hint)
	}
	return nil
}

// nearest is the object of the same kind whose name is nearly that of another.
func (x *index) nearest(m *manifest) *manifest {
	var best *manifest
	closest := 4 // letters that may be wrong
	for _, other := range x.byKind[m.groupKind()] {
		if d := distance(other.id.Namespace+"/"+other.id.Name, m.id.Namespace+"/"+m.id.Name); d < closest {
			best, closest = other, d
		}
	}
	return best
}

func checkStaleDelete(s *subject, r *reporter) error {
	if !s.isMinorUpdate() {
		return nil
	}
	for _, t := range s.tombstones {
		for _, old := range s.previous.byID[t.id] {
			if old.isTombstone && s.areTogether(old, t) {
				r.field(t, annotation(payload.DeleteAnnotation), "%s had this tombstone already, so clusters of %s are rid of the object: drop it in %s", s.previous.Version, s.previous.Version, s.Version)
				break
			}
		}
	}
	return nil
}

func checkRevived(s *subject, r *reporter) error {
	for _, m := range s.normal {
		for _, old := range s.previous.byID[m.id] {
			if where, meet := s.together(old, m); meet && old.isTombstone {
				r.at(m, "%s:%d deletes it%s: where that is not done yet, the object is still going while it is to come back", old.where(), old.Line, on(where))
				break
			}
		}
	}
	return nil
}

// pairs are the manifests of an object before and now that clusters update between.
func (s *subject) pairs(report func(old, m *manifest)) {
	for _, m := range s.normal {
		for _, old := range s.previous.byID[m.id] {
			if !old.isTombstone && !m.SameTextAs(old.Manifest) && s.areTogether(old, m) {
				report(old, m)
			}
		}
	}
}

const (
	recreate   = "runlevel.dev/recreate"
	createOnly = "release.openshift.io/create-only"
)

// isKept says whether a change of an object is never made, or made by deleting it.
func (m *manifest) isKept() bool {
	return strings.EqualFold(m.annotations[createOnly], "true") || m.annotations[recreate] == "true" && !mustNotBeRecreated(m)
}

func checkImmutableChanged(s *subject, r *reporter) error {
	s.pairs(func(old, m *manifest) {
		if m.groupKind() == jobKind || m.isKept() {
			return
		}
		for _, change := range refused(old, m) {
			r.field(m, change.Path.Keys(), "%s can't be changed once it is set (it was set in %s:%d): give the object another name and delete this one, or annotate it %s: \"true\"", change.Path, old.where(), old.Line, recreate)
		}
		s.reportTransitions(r, old, m)
	})
	return nil
}

func refused(old, m *manifest) []fields.Change {
	before, after := old.Object().Object, m.Object().Object
	return fields.Immutable(before, after, fields.Diff(before, after))
}

func checkJobChanged(s *subject, r *reporter) error {
	s.pairs(func(old, m *manifest) {
		if m.groupKind() != jobKind || m.isKept() {
			return
		}
		if changes := refused(old, m); len(changes) > 0 {
			r.field(m, changes[0].Path.Keys(), "%s has changed since %s:%d, and a Job can't be: give it another name, such as one that ends with the version", changes[0].Path, old.where(), old.Line)
		}
	})
	return nil
}

// checkVersionRemoved looks for versions whose objects some client may still ask for.
func checkVersionRemoved(s *subject, r *reporter) error {
	s.pairs(func(old, m *manifest) {
		if m.groupKind() != definitionKind {
			return
		}
		now := servedVersions(m)
		for _, version := range servedVersions(old) {
			if !slices.Contains(now, version) {
				r.field(m, []string{"spec", "versions"}, "%s was served by %s:%d, and is not any more: clients that ask for it fail, and what is stored in it must be written anew before it can go", version, old.where(), old.Line)
			}
		}
	})
	return nil
}

// servedVersions are those that a CustomResourceDefinition serves.
func servedVersions(m *manifest) []string {
	var found []string
	versions, _ := m.get("spec", "versions").([]any)
	for _, version := range versions {
		version, _ := version.(map[string]any)
		name, _, _ := unstructured.NestedString(version, "name")
		if served, _, _ := unstructured.NestedBool(version, "served"); served {
			found = append(found, name)
		}
	}
	return found
}
