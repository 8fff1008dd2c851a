package precondition

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// maxTerminating limits the terminating objects that are observed, for a finding each.
const maxTerminating = 20

// A TerminatingNeed is a terminating object that the update needs.
type TerminatingNeed struct {
	ID        kinds.ID
	Manifests []*payload.Manifest   // manifests of the object, or of objects in it; none for the record's namespace
	Seen      tombstone.Observation // observation, without a State beyond the first maxTerminating
}

// findTerminating returns the terminating objects that the update needs: Namespaces first. Objects in a terminating
// Namespace, and instances of a terminating definition, are left out.
func (input Input) findTerminating(ctx context.Context, c *cluster.Cluster, places []place,
	deletes []Delete) []TerminatingNeed {
	found := observeTerminating(ctx, c, input.terminatingNamespaces(ctx, c, places))
	namespaces, definitions := map[string]bool{}, map[schema.GroupKind]bool{}
	for _, terminating := range found {
		namespaces[terminating.ID.Name] = true
	}
	var others []TerminatingNeed
	for _, p := range places {
		id := p.id()
		if p.manifest.IsTombstone() || id.GroupKind() == kinds.Namespace || namespaces[id.Namespace] ||
			!input.isTerminating(id, deletes) {
			continue
		}
		if id.GroupKind() == kinds.CustomResourceDefinition {
			kind, _ := cluster.DefinedKind(p.manifest.Object())
			definitions[kind] = true
		}
		others = append(others, TerminatingNeed{ID: id, Manifests: []*payload.Manifest{p.manifest}})
	}
	others = slices.DeleteFunc(others, func(terminating TerminatingNeed) bool {
		return definitions[terminating.ID.GroupKind()]
	})
	return append(found, observeTerminating(ctx, c, others)...)
}

// observeTerminating observes the first maxTerminating objects, and drops those that are deleted
// by now or can't be read.
func observeTerminating(ctx context.Context, c *cluster.Cluster, all []TerminatingNeed) []TerminatingNeed {
	concurrently(min(maxTerminating, len(all)), func(i int) {
		all[i].Seen = tombstone.Observe(ctx, c, all[i].ID, "")
	})
	return slices.DeleteFunc(all, func(terminating TerminatingNeed) bool {
		return terminating.Seen.State != "" && terminating.Seen.State != tombstone.Terminating
	})
}

// isTerminating reports whether an object had a deletionTimestamp when the deletes were observed, or
// in the inventory.
func (input Input) isTerminating(id kinds.ID, deletes []Delete) bool {
	if slices.ContainsFunc(deletes, func(item Delete) bool {
		return item.ID == id && item.Seen.State == tombstone.Terminating
	}) {
		return true
	}
	if input.Before == nil {
		return false
	}
	head, _ := input.Before.Find(id)
	return head.Terminating
}

// terminatingNamespaces returns the Namespaces of manifests and of the record that are being
// deleted: one list returns all terminating ones of the cluster. Without the right to list them,
// the first maxTerminating Namespaces are returned in any state, to be observed one by one.
func (input Input) terminatingNamespaces(ctx context.Context, c *cluster.Cluster, places []place) []TerminatingNeed {
	needed := map[string][]*payload.Manifest{input.Namespace: nil}
	for _, p := range places {
		id := p.id()
		name := id.Namespace
		if id.GroupKind() == kinds.Namespace {
			name = id.Name
		}
		if !p.manifest.IsTombstone() && name != "" {
			needed[name] = append(needed[name], p.manifest)
		}
	}
	var names []string
	listed, err := c.Client.CoreV1().Namespaces().List(ctx,
		metav1.ListOptions{FieldSelector: "status.phase=Terminating"})
	if err != nil {
		names = slices.Sorted(maps.Keys(needed))
		names = names[:min(maxTerminating, len(names))]
	} else {
		for i := range listed.Items {
			names = append(names, listed.Items[i].Name)
		}
	}
	var found []TerminatingNeed
	for _, name := range names {
		if manifests, isNeeded := needed[name]; isNeeded {
			found = append(found, TerminatingNeed{
				ID:        kinds.NewID(kinds.Namespace, "", name),
				Manifests: manifests,
			})
		}
	}
	return found
}

// judgeTerminating implements TerminatingObject. A finding blocks if a finalizer holds the object; otherwise the object
// is deleted soon, and an apply waits for the end of the deletion.
func judgeTerminating(f *Facts) []Finding {
	var findings []Finding
	var seen, more []TerminatingNeed
	for _, terminating := range f.Terminating {
		if terminating.Seen.State == "" {
			more = append(more, terminating)
		} else {
			seen = append(seen, terminating)
		}
	}
	for _, alike := range grouped(seen, TerminatingNeed.cause) {
		findings = append(findings, f.judgeAlikeTerminating(alike))
	}
	if len(more) > 0 {
		findings = append(findings, warns("waiting for the holders of their finalizers",
			"%s that the update needs: being deleted, %s first", printable.Count(len(more), "more object"),
			more[0].ID).withObjects(more[0].ID))
	}
	return findings
}

// cause returns a key that objects with the same cause have in common.
func (t TerminatingNeed) cause() string {
	return fmt.Sprint(t.ID.GroupKind(), len(t.Manifests) == 0, t.Seen.IsHeld(), t.Seen.Finalizers, t.Seen.Remains,
		t.Seen.Contents)
}

// judgeAlikeTerminating returns the finding about terminating objects with the same cause.
func (f *Facts) judgeAlikeTerminating(alike []TerminatingNeed) Finding {
	slices.SortStableFunc(alike, func(a, b TerminatingNeed) int { return a.Seen.Since.Compare(b.Seen.Since) })
	terminating, count := alike[0], len(alike)
	var objects []kinds.ID
	var manifests []*payload.Manifest
	for _, other := range alike {
		objects, manifests = append(objects, other.ID), append(manifests, other.Manifests...)
	}
	subject := fmt.Sprintf("%s, which %s, %s %s", name(objects), f.neededBy(manifests), either(count, "is", "are"),
		terminating.Seen.DescribeSince())
	resolution := deleteResolution(Delete{Seen: terminating.Seen})
	finding := warns(resolution, "%s: an apply waits until %s deleted", subject, either(count, "it is", "they are"))
	if terminating.Seen.IsHeld() {
		can := either(count, "it can be recreated only after its deletion",
			"they can be recreated only after their deletion")
		if terminating.ID.GroupKind() == kinds.Namespace {
			can = either(count, "no object can be created in it before it is deleted",
				"no object can be created in them before they are deleted")
		}
		finding = blocks(resolution, "%s: %s", subject, can)
	}
	if len(manifests) > 0 {
		finding = finding.withFile(manifests...)
	}
	return finding.withSince(terminating.Seen.Since).withObjects(objects...)
}

// neededBy names the manifests that need objects, or else the record.
func (f *Facts) neededBy(manifests []*payload.Manifest) string {
	if len(manifests) == 0 {
		return "the record of release " + printable.Line(f.Record.Release) + " needs"
	}
	return files(manifests) + either(len(manifests), " needs", " need")
}
