package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/crdchange"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A ClusterPreview is the result of a preview of an apply, from which ForCluster makes a plan.
type ClusterPreview struct {
	Mode    string           // mode of the apply: install, update, reconcile
	Objects []ObjectPreview  // one for each manifest of the release
	Orphans []LeftoverObject // objects of earlier releases that nothing deletes
	Pending []LeftoverObject // objects that earlier releases delete, and that still exist
	Gate    []GateFinding
	Notes   []string // unknown facts about the cluster, and why they are unknown
}

// An ObjectPreview is the effect that an apply of one manifest would have.
type ObjectPreview struct {
	Manifest *payload.Manifest
	Action   Action
	Why      string
	// Live is the object in the cluster, and Planned the object after the apply. Nil if it does not exist, or
	// nothing changes.
	Live, Planned map[string]any
	// FromManifest is true if there was no dry run, so that Planned is the manifest.
	FromManifest bool
	// Unchecked has the reason for a missing dry run.
	Unchecked string
	// Recreated is true if the object would be deleted and recreated.
	Recreated bool
	// Adopted are managers whose fields would become the release's, and Losing those whose
	// fields would get other values.
	Adopted, Losing []string
	// Foreign are fields of other managers that the manifest does not have, and that stay.
	Foreign []fields.ForeignFields
	// Owners returns the other managers that own a field of the live object. Nil if they are not known.
	Owners      func(fields.Path) []string
	AlsoDeletes *kinds.ObjectCounts    // the objects that are deleted with this one, if it is deleted
	DueHooks    []deploymenthook.Stage // the hooks of the Deployment that an apply runs
}

// A LeftoverObject is an object of an earlier release.
type LeftoverObject struct {
	kinds.ID
	Why         string
	Tombstone   string              // the manifest that would delete it
	AlsoDeletes *kinds.ObjectCounts // the objects that would be deleted with it
}

// A GateFinding is a reason of the gate to block an update, or to warn.
type GateFinding struct {
	Check      string `json:"check"`
	Severity   string `json:"severity"` // Blocking, or another one that does not block
	Message    string `json:"message"`
	Resolution string `json:"resolution,omitempty"` // the actor or condition that resolves it
}

// Blocking is the severity of findings that block the update, as package precondition names it.
const Blocking = "Blocks"

// A ClusterInfo is the part of a cluster's plan that concerns no single object.
type ClusterInfo struct {
	Mode  string        `json:"mode"`
	Gate  []GateFinding `json:"gate,omitempty"`
	Notes []string      `json:"notes,omitempty"` // unknown facts about the cluster, and why they are unknown
}

// ForCluster returns the plan of an apply of a payload to a cluster, from the preview of that apply. From is the
// release that the cluster has, without a version if it has none.
func ForCluster(from ReleaseID, target *payload.Payload, preview ClusterPreview) *Plan {
	steps := inOrder(target.Manifests)
	seen := map[*payload.Manifest]ObjectPreview{}
	for _, objectPreview := range preview.Objects {
		seen[objectPreview.Manifest] = objectPreview
	}
	p := newPlan(from, target)
	p.Cluster = &ClusterInfo{Mode: preview.Mode, Gate: preview.Gate, Notes: preview.Notes}
	for _, m := range steps {
		if objectPreview, isKnown := seen[m]; isKnown {
			p.Steps = append(p.Steps, objectPreview.entry())
		}
	}
	for _, exclusion := range preview.Pending {
		p.Absent = append(p.Absent, exclusion.entry(Pending))
	}
	for _, exclusion := range preview.Orphans {
		p.Absent = append(p.Absent, exclusion.entry(Dropped))
	}
	p.count()
	c := newComparer(&payload.Payload{}, target, steps)
	deletions := c.cascadeOf(nil, steps)
	for _, objectPreview := range preview.Objects {
		deletions.addDefinedKind(objectPreview)
	}
	p.warn(c.contradictions(steps, deletions)...)
	return p
}

// addDefinedKind adds the kind of a deleted definition, which its tombstone need not name: it is known from the
// objects that are deleted with it.
func (c *cascade) addDefinedKind(s ObjectPreview) {
	id := s.Manifest.ID()
	if !s.Manifest.IsTombstone() || s.Manifest.GroupVersionKind().GroupKind() != kinds.CustomResourceDefinition ||
		s.AlsoDeletes == nil {
		return
	}
	for _, count := range s.AlsoDeletes.Kinds {
		if id.Name == count.Resource+"."+count.Group {
			c.kinds[schema.GroupKind{Group: count.Group, Kind: count.Kind}] = id
		}
	}
}

func (l LeftoverObject) entry(action Action) ObjectPlan {
	return ObjectPlan{ID: l.ID, Action: action, Why: l.Why, Tombstone: l.Tombstone, AlsoDeletes: l.AlsoDeletes}
}

// entry returns the plan of the object.
func (o ObjectPreview) entry() ObjectPlan {
	e := ObjectPlan{
		ID: o.Manifest.ID(), Action: o.Action, Why: o.Why, New: place(o.Manifest),
		Unchecked: o.Unchecked, Recreated: o.Recreated, Adopted: o.Adopted, Foreign: o.Foreign,
		AlsoDeletes: o.AlsoDeletes,
	}
	switch {
	case e.Action == Created && e.Why == e.Unchecked:
		e.Why = "" // the reason is that of the missing dry run, not of the action
	case e.Recreated:
		e.Why = "it is deleted and recreated: " + e.Why
	}
	live, planned := fields.WithoutServers(o.Live), fields.WithoutServers(o.Planned)
	switch {
	case planned == nil:
	case live == nil:
		e.Whole = fields.Mask(planned)
	default:
		e.Changes = o.changes(live, planned)
		if e.Action == Changed && e.Why == "" && len(e.Changes) == 0 && len(e.Adopted) == 0 {
			e.Why = "all fields stay as they are, and only become the release's"
		}
		if o.Manifest.GroupVersionKind().GroupKind() == kinds.CustomResourceDefinition && !o.FromManifest {
			e.Definition = crdchange.Compare(live, planned)
		}
	}
	e.findRestart(live, planned)
	e.Hooks = o.hooks()
	o.addLoss(&e)
	return e
}

// addLoss adds the data that the apply takes with it, apart from those in containers: AlsoDeletes counts these.
func (o ObjectPreview) addLoss(e *ObjectPlan) {
	before, after := o.Manifest.Object(), o.Manifest.Object()
	if o.Live != nil {
		before, after = &unstructured.Unstructured{Object: o.Live}, &unstructured.Unstructured{Object: o.Planned}
	}
	if e.Action == Deleted || e.Recreated {
		after = nil
	}
	if !kinds.IsContainer(e.GroupKind()) && (e.Action == Deleted || e.Action == Changed) {
		e.Loses, _ = references.Data{}.LostWith(before, after)
		e.LossReason = o.Manifest.Object().GetAnnotations()[references.DataLossAnnotation]
	}
}

// changes returns the fields that would differ, and the managers that have set them.
func (o ObjectPreview) changes(live, planned map[string]any) []FieldChange {
	var changes []FieldChange
	for _, field := range fields.Diff(live, planned) {
		if o.FromManifest && field.New == nil {
			continue // a manifest need not have all fields
		}
		change := FieldChange{Difference: field}
		if o.Owners != nil {
			change.Owners = o.Owners(field.Path)
		}
		for _, owner := range change.Owners {
			if slices.Contains(o.Losing, owner) || slices.Contains(o.Adopted, owner) {
				change.Overwrites = append(change.Overwrites, owner)
			}
		}
		changes = append(changes, change)
	}
	return changes
}

// needsApply reports whether an apply would change the object in a cluster, or try to.
func (o ObjectPlan) needsApply() bool {
	switch o.Action {
	case Created, Changed, Deleted, Rejected, Unchecked:
		return true
	default:
		return false
	}
}

// HasForeign reports whether other managers have set fields of objects that the release does not have.
func (p *Plan) HasForeign() bool {
	return slices.ContainsFunc(p.Steps, func(e ObjectPlan) bool { return len(e.Foreign) > 0 })
}

// WithoutUnchanged returns the plan of a cluster without the objects that an apply leaves as they are, unless they have
// fields of other managers.
func (p *Plan) WithoutUnchanged() *Plan {
	less := *p
	less.Steps = slices.DeleteFunc(slices.Clone(p.Steps), func(e ObjectPlan) bool {
		return !e.needsApply() && len(e.Foreign) == 0
	})
	less.Absent, less.Counts, less.Warnings = []ObjectPlan{}, map[Action]int{}, []Warning{}
	less.count()
	less.warn()
	return &less
}
