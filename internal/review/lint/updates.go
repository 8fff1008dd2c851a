package lint

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// These rules are about the effects of an update from the previous payload.

// absent calls report for each object of the previous payload that this one neither applies nor deletes, and for which
// the plan has an action.
func (s *subject) absent(action plan.Action, report func(*manifest, plan.ObjectPlan)) {
	if s.update == nil {
		return
	}
	for _, entry := range s.update.Absent {
		if entry.Action == action {
			report(s.variantOf(entry), entry)
		}
	}
}

// variantOf returns the first manifest of the previous payload that has an absent object as its entry does: one that
// creates it, or one that deletes it.
func (s *subject) variantOf(entry plan.ObjectPlan) *manifest {
	variants := s.previous.byID[entry.ID]
	isTombstone := entry.Action == plan.Retired
	return variants[max(0, slices.IndexFunc(variants, func(m *manifest) bool { return m.isTombstone == isTombstone }))]
}

// droppedObjects returns the objects that stay in clusters although this payload does not have them.
func (s *subject) droppedObjects() []*manifest {
	var found []*manifest
	s.absent(plan.Dropped, func(m *manifest, _ plan.ObjectPlan) { found = append(found, m) })
	return found
}

func checkDropped(s *subject, r *reporter) {
	const todo = `keep its manifest with the annotation %s: "true" (runlevel plan prints it)`
	const needed = "it is no longer in the payload, and %s: keep its manifest, or drop that reference"
	s.absent(plan.Dropped, func(m *manifest, entry plan.ObjectPlan) {
		uses := s.usesOf(m)
		switch {
		case entry.RenamedTo != nil: // reported by the rule renamed
		case len(uses) > 0:
			r.at(m, needed, describe(uses))
		case entry.Tombstone == "": // a tombstone would delete other objects, too
			r.at(m, "it is no longer in the payload, and %s: keep its manifest", entry.Why)
		default:
			r.at(m, "it is no longer in the payload, and stays in clusters: "+todo, payload.DeleteAnnotation)
		}
	})
	s.absent(plan.DeletedWith, func(m *manifest, entry plan.ObjectPlan) {
		takers := tombstonesOf(s.byID[*entry.With])
		for _, variant := range s.previous.byID[m.id] {
			cluster, stays := s.clusterWithout(variant, takers)
			if !stays || len(takers) == 0 || variant.isTombstone {
				continue
			}
			if uses := s.usesWithout(variant, takers); len(uses) > 0 {
				r.at(variant, needed, describe(uses))
			} else {
				r.at(variant, "it is no longer in the payload, and stays in clusters that keep %s%s: "+todo, entry.With,
					onCluster(cluster), payload.DeleteAnnotation)
			}
			return
		}
	})
}

func checkRenamed(s *subject, r *reporter) {
	s.absent(plan.Dropped, func(m *manifest, entry plan.ObjectPlan) {
		if entry.RenamedTo != nil {
			if uses := s.usesOf(m); len(uses) > 0 {
				r.at(m, "%s seems to have taken its place, and %s, so that it fails in a new cluster: update the "+
					"references first, then delete the old object", entry.RenamedTo, describe(uses))
				r.findings[len(r.findings)-1].Near = &Place{File: uses[0].By.Path, Line: uses[0].By.Line}
				return
			}
			todo := "add"
			if m.groupKind() == kinds.PersistentVolumeClaim {
				todo = "if its data are copied, add"
			}
			r.at(m, `%s seems to have taken its place, and it stays in clusters beside that: %s a manifest for the old `+
				`one with the annotation %s: "true"`, entry.RenamedTo, todo, payload.DeleteAnnotation)
			successor := s.byID[*entry.RenamedTo][0]
			r.findings[len(r.findings)-1].Near = &Place{File: successor.Path, Line: successor.Line}
		}
	})
}

// checkNarrowed looks for objects that the payload still has, but not for all clusters that
// have them.
func checkNarrowed(s *subject, r *reporter) {
	for _, old := range s.previous.normal {
		now := s.byID[old.id]
		if len(now) == 0 || slices.ContainsFunc(now, func(m *manifest) bool { return m.chosenBy() == old.chosenBy() }) {
			continue
		}
		others := slices.Concat(now, s.deletedNamespaces(old), s.deletedDefinitions(old))
		if cluster, found := s.clusterWithout(old, others); found {
			r.at(now[0], "%s:%d had it%s, and no manifest has it there now, %s", old.where(), old.Line,
				onCluster(cluster), adviseNarrowed(s.usesWithout(old, others)))
		}
	}
	s.absent(plan.LeftOut, func(old *manifest, entry plan.ObjectPlan) {
		if exclusion := s.excluded[entry.ID]; exclusion != nil && !old.isTombstone {
			r.at(newManifest(exclusion.Manifest), "%s:%d had it, and here it is left out (%s), %s", old.where(),
				old.Line, exclusion.Why(), adviseNarrowed(s.usesOf(old)))
		}
	})
}

// adviseNarrowed returns advice about an object that stays in clusters that no longer have its manifest.
func adviseNarrowed(uses []use) string {
	if len(uses) > 0 {
		return "but " + describe(uses) + ": keep it for those clusters too, or drop that reference"
	}
	return "so it stays: keep it for those clusters too, or add a tombstone for them"
}

// deletedDefinitions returns the tombstones of an object's CustomResourceDefinition.
func (s *subject) deletedDefinitions(m *manifest) []*manifest {
	id := kinds.NewID(kinds.CustomResourceDefinition, "", kinds.DefinitionName(m.groupKind()))
	return tombstonesOf(slices.Concat(s.defines[m.groupKind()], s.byID[id]))
}

// tombstonesOf returns the tombstones among manifests.
func tombstonesOf(manifests []*manifest) []*manifest {
	var found []*manifest
	for _, m := range manifests {
		if m.isTombstone {
			found = append(found, m)
		}
	}
	return found
}

// maxHints limits the findings with a hint, because the search for a hint is slow.
const maxHints = 20

func checkDeleteOfNothing(s *subject, r *reporter) {
	for _, t := range s.tombstones {
		if len(s.previous.byID[t.id]) > 0 || s.previous.excluded[t.id] != nil || s.data().HasClaim(t.id) {
			continue
		}
		hint := ""
		if len(r.findings) >= maxHints {
			// no hint
		} else if near := s.nearest(t); near != nil {
			hint = fmt.Sprintf(": did you mean %s (%s:%d)?", near.id, near.where(), near.Line)
		}
		r.at(t, "the previous payload has no such object%s", hint)
	}
}

// nearest returns the object of the previous payload with the most similar name, of the same kind, that this payload no
// longer has; nil if there is none.
func (s *subject) nearest(m *manifest) *manifest {
	var best *manifest
	closest := 4 // one more than the allowed number of wrong letters
	for _, other := range s.previous.byKind[m.groupKind()] {
		d := printable.EditDistance(other.id.Namespace+"/"+other.id.Name, m.id.Namespace+"/"+m.id.Name)
		if other.id.Name == m.id.Name {
			d = min(d, 3) // even if the namespaces differ much
		}
		if isAlive := slices.ContainsFunc(s.byID[other.id], func(m *manifest) bool {
			return !m.isTombstone
		}); d < closest && !isAlive {
			best, closest = other, d
		}
	}
	return best
}

func checkStaleDelete(s *subject, r *reporter) {
	if s.update.Update != plan.Minor && s.update.Update != plan.Major {
		return
	}
	for _, t := range s.tombstones {
		before := tombstonesOf(s.previous.byID[t.id])
		if _, isNew := s.clusterWithout(t, before); len(before) > 0 && !isNew {
			r.field(t, annotation(payload.DeleteAnnotation),
				"%s had this tombstone already, so clusters of %s no longer have the object: drop it in %s",
				s.previous.Version, s.previous.Version, s.Version)
		}
	}
}

func checkRevived(s *subject, r *reporter) {
	for _, m := range s.normal {
		for _, old := range s.previous.byID[m.id] {
			if cluster, shared := s.sharedCluster(old, m); shared && old.isTombstone {
				r.at(m, "%s:%d deletes it%s: while that delete is in progress, the object can't be created again: "+
					"give it another name, or publish a release in between that has neither", old.where(), old.Line,
					onCluster(cluster))
				break
			}
		}
	}
}

// pairs calls report for each pair of a changed manifest and its previous one that a cluster updates from. A test is
// made anew each time that it runs.
func (s *subject) pairs(report func(old, m *manifest)) {
	for _, m := range s.normal {
		for _, old := range s.previous.byID[m.id] {
			if !m.isTest && !old.isTombstone && !m.SameTextAs(old.Manifest) && s.shareCluster(old, m) {
				report(old, m)
			}
		}
	}
}

const recreate = payload.RecreateAnnotation

// isNeverChanged reports whether an apply never changes an object, or changes it by deleting the object.
func (m *manifest) isNeverChanged() bool {
	return m.IsCreateOnly() || m.IsRecreated() && !kinds.HoldsData(m.groupKind())
}

func checkImmutableChanged(s *subject, r *reporter) {
	seen := map[change]bool{} // several previous variants may have the same value
	s.pairs(func(old, m *manifest) {
		if m.groupKind() == kinds.Job || m.isNeverChanged() {
			return
		}
		todo := fmt.Sprintf(`take it back, give the object another name and delete this one, or annotate it %s: "true"`,
			recreate)
		if kinds.HoldsData(m.groupKind()) {
			todo = fmt.Sprintf("take it back, or give the object another name; a %s is never recreated", m.kind.Kind)
		}
		for _, refused := range refused(old, m) {
			if key := (change{m, refused.Path.String()}); !seen[key] {
				seen[key] = true
				r.field(m, refused.Path.Keys(),
					"%s differs from %s:%d, and the API server does not allow that change: %s", refused.Path,
					old.where(), old.Line, todo)
			}
		}
		s.schemas.reportTransitions(r, old, m)
	})
}

// A change is a changed field or version of a manifest.
type change struct {
	manifest *manifest
	cluster  string
}

func refused(old, m *manifest) []fields.Difference {
	before, after := old.Object().Object, m.Object().Object
	return fields.Immutable(before, after, fields.Diff(before, after))
}

func checkJobChanged(s *subject, r *reporter) {
	s.pairs(func(old, m *manifest) {
		if m.groupKind() != kinds.Job || m.isNeverChanged() {
			return
		}
		changes := refused(old, m)
		switch ttl, isRemoved := old.TimeToLive(); {
		case len(changes) == 0 || isRemoved && ttl == 0:
		case isRemoved:
			r.note(m, changes[0].Path.Keys(),
				"%s has changed since %s:%d, and a Job can't be changed: an update fails until Kubernetes has "+
					"removed the earlier one, %d seconds after its end", changes[0].Path, old.where(), old.Line, ttl)
		default:
			r.field(m, changes[0].Path.Keys(),
				"%s has changed since %s:%d, and a Job can't be changed: give it another name, such as one that ends "+
					"with the version, and delete the old one", changes[0].Path, old.where(), old.Line)
		}
	})
}

// checkReplicasDropped looks for objects that the update scales to the default.
func checkReplicasDropped(s *subject, r *reporter) {
	for _, warning := range s.update.Warnings {
		if warning.Reason != plan.ReplicasDropped {
			continue
		}
		for _, m := range s.byID[warning.ID] {
			if !m.isTombstone {
				r.field(m, []string{"spec"}, "%s: keep it, or add the autoscaler in this release", warning.Message)
				break
			}
		}
	}
}

// checkStoredVersionDropped looks for dropped versions in which the API server stores objects. It refuses such a
// definition.
func checkStoredVersionDropped(s *subject, r *reporter) {
	s.droppedVersions(func(old, m *manifest, before, now map[string]any) {
		if isStored, _ := before["storage"].(bool); isStored && now == nil {
			r.field(m, []string{"spec", "versions"},
				"%s is the version in which %s:%d stores objects, and the API server refuses a definition without "+
					"it: keep it with storage: false for a release, have all objects rewritten, and drop it when "+
					"status.storedVersions no longer lists it", before["name"], old.where(), old.Line)
		}
	})
}

// checkVersionRemoved looks for versions that are no longer served, which clients may still use.
func checkVersionRemoved(s *subject, r *reporter) {
	s.droppedVersions(func(old, m *manifest, before, now map[string]any) {
		wasServed, _ := before["served"].(bool)
		isStored, _ := before["storage"].(bool)
		if wasServed && (now != nil || !isStored) {
			r.field(m, []string{"spec", "versions"},
				"%s was served in %s:%d, and no longer is: clients that ask for it fail, and objects that are stored "+
					"in it must be rewritten before it can be dropped", before["name"], old.where(), old.Line)
		}
	})
}

// droppedVersions calls report for each version of a CustomResourceDefinition that the previous payload serves and this
// payload does not. now is the version in this payload, or nil if it was removed.
func (s *subject) droppedVersions(report func(old, m *manifest, before, now map[string]any)) {
	seen := map[change]bool{} // several previous variants may have the same version
	s.pairs(func(old, m *manifest) {
		if m.groupKind() != kinds.CustomResourceDefinition {
			return
		}
		had, has := old.versions(), m.versions()
		for _, name := range sortedKeys(had) {
			before, now := had[name], has[name]
			if isServed, _ := now["served"].(bool); isServed || seen[change{m, name}] {
				continue
			}
			seen[change{m, name}] = true
			report(old, m, before, now)
		}
	})
}

// versions returns the versions of a CustomResourceDefinition by their names.
func (m *manifest) versions() map[string]map[string]any {
	found := map[string]map[string]any{}
	versions, _ := m.get("spec", "versions").([]any)
	for _, version := range versions {
		version, _ := version.(map[string]any)
		if name, _ := version["name"].(string); name != "" {
			found[name] = version
		}
	}
	return found
}

// servedVersions returns the names of the versions that a CustomResourceDefinition serves.
func (m *manifest) servedVersions() []string {
	versions := m.versions()
	return slices.DeleteFunc(sortedKeys(versions), func(name string) bool {
		isServed, _ := versions[name]["served"].(bool)
		return !isServed
	})
}

// checkHooksNotRun looks for hooks that are new on Deployments whose rollout this update does not start.
func checkHooksNotRun(s *subject, r *reporter) {
	for _, m := range s.normal {
		before := s.previousWithHooks(m)
		if before == nil {
			continue
		}
		hooks, _ := deploymenthook.Parse(m.Object())
		had, _ := deploymenthook.Parse(before.Object())
		for _, stage := range deploymenthook.Stages {
			if hooks.Of(stage) != nil && had.Of(stage) == nil {
				r.field(m, annotation(deploymenthook.Annotation),
					"the hook %s is new, and spec.template is as in the previous payload: the hook does not run "+
						"before the template changes", stage)
			}
		}
	}
}

// previousWithHooks returns the previous manifest of a Deployment with hooks; nil if its template has changed.
func (s *subject) previousWithHooks(m *manifest) *manifest {
	if _, isHooked := m.annotations[deploymenthook.Annotation]; !isHooked {
		return nil
	}
	for _, before := range s.previous.byID[m.id] {
		if !before.isTombstone && s.shareCluster(m, before) &&
			reflect.DeepEqual(before.get("spec", "template"), m.get("spec", "template")) {
			return before
		}
	}
	return nil
}
