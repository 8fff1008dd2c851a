package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// maxReferences bounds how many referenced objects are read.
const maxReferences = 10

// unmet returns the objects that a live object refers to and that do not exist, or are being deleted.
func (g *gatherer) unmet(ctx context.Context, live *unstructured.Unstructured) (unmet []Need) {
	seen := map[kinds.ID]bool{}
	unread := map[schema.GroupKind]bool{} // kinds with an unreadable object: the others can't be read either
	for _, reference := range g.definitions(ctx, live).References(live) {
		id := reference.To
		isOut := seen[id] || unread[id.GroupKind()] || reference.Consequence == references.Harmless ||
			references.IsBuiltIn(id)
		if isOut || len(seen) == maxReferences {
			continue
		}
		seen[id] = true
		need := Need{Object: id}
		switch found := tombstone.Observe(ctx, g.cluster, id, ""); found.State {
		case tombstone.Unknown:
			unread[id.GroupKind()] = true
			g.unknown("get "+id.String(), found.Err)
			continue
		case tombstone.Absent:
			need.Why = "does not exist"
		case tombstone.Terminating:
			need.Why = "is being deleted"
		default:
			continue
		}
		need.File, need.Node = g.placeOf(id)
		need.Why = fmt.Sprintf("which %s (%s): %s", need.Why, printable.Line(reference.Field()), g.whyUnmet(need))
		unmet = append(unmet, need)
	}
	return unmet
}

// definitions returns the declarations in the definition of a custom resource; it is empty for kinds of Kubernetes.
func (g *gatherer) definitions(ctx context.Context, live *unstructured.Unstructured) references.Definitions {
	kind := live.GroupVersionKind().GroupKind()
	found := references.Definitions{}
	if kinds.ScopeOf(kind) != kinds.Unknown {
		return found
	}
	resource, err := g.cluster.FindKind(ctx, kind)
	if err != nil {
		return found
	}
	id := kinds.NewID(kinds.CustomResourceDefinition, "", resource.GroupVersionResource.GroupResource().String())
	definition, err := g.cluster.Get(ctx, id)
	switch {
	case err == nil:
		found.Add(definition)
	case !apierrors.IsNotFound(err): // an aggregated API has no definition
		g.unknown("get "+id.String(), err)
	}
	return found
}

// placeOf returns the file and the node of an object in the run or in the release of the query; "" if it is in neither.
func (g *gatherer) placeOf(id kinds.ID) (file, node string) {
	if index, step, isLeft := g.facts.Run.Find(id); isLeft {
		return step.File, cmp.Or(step.Node, g.facts.Run.Nodes[index].Name)
	}
	if m := g.manifestOf(id); m != nil {
		return m.Path, nodeOf(m.Path)
	}
	return "", ""
}

// manifestOf returns the manifest of an object in the named release; nil if the release has none.
func (g *gatherer) manifestOf(id kinds.ID) *payload.Manifest {
	if g.Release == nil {
		return nil
	}
	index := slices.IndexFunc(g.Release.Manifests, func(m *payload.Manifest) bool { return m.ID() == id })
	if index < 0 {
		return nil
	}
	return g.Release.Manifests[index]
}

// whyUnmet returns whether a release will apply a missing object, or has deleted it.
func (g *gatherer) whyUnmet(need Need) string {
	id, rec := need.Object, g.facts.Record
	where := cmp.Or(need.Node, printable.Line(need.File))
	_, step, isLeft := g.facts.Run.Find(id)
	manifest := g.manifestOf(id)
	isDeleted := rec != nil &&
		(slices.ContainsFunc(rec.Tombstones, func(t record.Tombstone) bool { return t.ID == id }) ||
			rec.Newest() != nil && slices.Contains(rec.Newest().Tombstones, id))
	switch {
	case isLeft && step.Deletes, manifest != nil && manifest.IsTombstone(), isDeleted:
		return "the release deletes it"
	case isLeft:
		return "the release has it, and has not applied it yet: " + where
	case manifest != nil:
		return "it is in the named release: " + where
	case rec != nil && fingerprint.Read(rec.Fingerprints).Has(id):
		return "the release has it, and it was deleted since"
	default:
		return "no release is known to have it"
	}
}

// explainReferences adds the missing objects that an unready object needs.
func explainReferences(f *ObjectFacts, a *Answer) {
	if a.State != NotReady {
		return
	}
	for _, need := range f.Unmet {
		a.Needs = append(slices.Clip(a.Needs), need)
		a.addMessage(nil, "it needs %s, %s", need.Object, need.Why)
	}
}

// explainReferrers adds the manifests of the named release that need the object, in one line.
func explainReferrers(f *ObjectFacts, a *Answer) {
	if len(f.NeededBy) > 0 {
		a.addMessage(nil, "needed by %s", few(f.NeededBy, 0))
	}
}

// findReferrers finds the manifests of the named release that need the object.
func (g *gatherer) findReferrers() {
	if g.Release == nil {
		return
	}
	for _, use := range references.NewGraph(g.Release.Manifests, nil).Uses[g.facts.Object] {
		if name := fmt.Sprintf("%s (%s)", use.By.ID(), printable.Line(use.Field())); !slices.Contains(g.facts.NeededBy,
			name) {
			g.facts.NeededBy = append(g.facts.NeededBy, name)
		}
	}
}
