package plan

import (
	"fmt"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/crdchange"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Compare returns the plan of an update from one payload to another. Both must have been
// read with the filters of the same cluster. refusals are the reasons why an API server would refuse manifests of the
// new payload; nil if they are not known.
func Compare(base, target *payload.Payload, refusals map[*payload.Manifest][]fields.Refusal) *Plan {
	steps := inOrder(target.Manifests)
	c, p := newComparer(base, target, steps), newPlan(release(base), target)
	data := references.DataOf(base.Manifests)
	for _, m := range steps {
		step := c.planStep(m)
		step.addLoss(data, c.from.manifests[storedID(m)], m)
		p.Steps = append(p.Steps, step)
	}
	deletions, left := c.cascadeOf(base.Manifests, steps), slices.Clone(steps)
	for _, m := range base.Manifests {
		if !c.isAbsent(m) {
			continue
		}
		absent := c.planAbsent(m, deletions)
		if p.Absent = append(p.Absent, absent); absent.Action == Dropped || absent.Action == LeftOut {
			left = append(left, m)
		}
	}
	p.findRenamed()
	p.count()
	p.warn(slices.Concat(c.contradictions(steps, deletions), refusedObjects(p.Steps, steps, refusals),
		droppedReplicas(p.Steps, steps), c.unreachable(base.Manifests, left))...)
	return p
}

// newPlan returns a plan without steps.
func newPlan(before ReleaseID, after *payload.Payload) *Plan {
	return &Plan{
		From: before, To: release(after), Update: kindOf(before.Version, after.Version),
		Counts: map[Action]int{}, Warnings: []Warning{}, Steps: []ObjectPlan{}, Absent: []ObjectPlan{},
	}
}

func release(p *payload.Payload) ReleaseID {
	return ReleaseID{Name: p.Name, Version: p.Version, Hash: p.Hash}
}

// A releaseIndex finds the manifests of a payload by their objects.
type releaseIndex struct {
	manifests map[kinds.ID]*payload.Manifest // the last manifest of each object; a tombstone only if there is no other
	// the first exclusion of an object: variants are left out for the same reason
	exclusions map[kinds.ID]*payload.Exclusion
	tests      map[kinds.ID]bool
}

func newReleaseIndex(p *payload.Payload) releaseIndex {
	found := releaseIndex{
		manifests:  make(map[kinds.ID]*payload.Manifest, len(p.Manifests)),
		exclusions: make(map[kinds.ID]*payload.Exclusion, len(p.Excluded)), tests: map[kinds.ID]bool{},
	}
	for _, m := range p.Manifests {
		id := storedID(m)
		if known := found.manifests[id]; known == nil || known.IsTombstone() || !m.IsTombstone() {
			found.manifests[id] = m
		}
	}
	for _, m := range p.Tests {
		found.tests[storedID(m)] = true
	}
	for i, exclusion := range p.Excluded {
		if id := storedID(exclusion.Manifest); found.exclusions[id] == nil {
			found.exclusions[id] = &p.Excluded[i]
		}
	}
	return found
}

// A comparer compares two payloads.
type comparer struct {
	from, to releaseIndex
	// The manifests that create an object of the old release, also those that the filter leaves out: each may be for
	// other clusters.
	variants map[kinds.ID][]*payload.Manifest
	// The first manifest that the new release applies in a Namespace, or of a kind. One that the filter leaves out
	// counts if there is no other: a tombstone is for clusters where it may be applied.
	inNamespace map[string]*payload.Manifest
	ofKind      map[schema.GroupKind]*payload.Manifest
	references  *references.Graph[*payload.Manifest] // references in the new release
}

// newComparer returns a comparer of two payloads. The steps are the manifests of the new one, in the order of the
// update.
func newComparer(before, after *payload.Payload, steps []*payload.Manifest) *comparer {
	c := &comparer{
		from: newReleaseIndex(before), to: newReleaseIndex(after), variants: map[kinds.ID][]*payload.Manifest{},
		inNamespace: map[string]*payload.Manifest{}, ofKind: map[schema.GroupKind]*payload.Manifest{},
		references: references.NewGraph(steps, before.Manifests),
	}
	for _, m := range before.All() {
		if !m.IsTombstone() {
			c.variants[storedID(m)] = append(c.variants[storedID(m)], m)
		}
	}
	for _, m := range slices.Backward(slices.Concat(steps, after.All()[len(after.Manifests):])) {
		if !m.IsTombstone() {
			c.inNamespace[m.ID().Namespace], c.ofKind[m.GroupVersionKind().GroupKind()] = m, m
		}
	}
	return c
}

// planStep returns the plan of a manifest of the new release.
func (c *comparer) planStep(m *payload.Manifest) ObjectPlan {
	id := storedID(m)
	e := ObjectPlan{ID: m.ID(), New: place(m)}
	old := c.from.manifests[id]
	if old != nil {
		e.Old = place(old)
	}
	switch isTombstone := m.IsTombstone(); {
	case isTombstone:
		e.Action, e.Why = c.deletionAction(id, old)
		e.UsedBy = c.usesOf(m)
	case old == nil:
		e.Action, e.Why = c.creationAction(id)
		e.Hooks = compareHooks(nil, m.Object().Object)
	case old.IsTombstone():
		e.Action, e.Why = Revived, "the old release deletes it"
		e.Hooks = compareHooks(nil, m.Object().Object)
	default:
		e.compare(old, m)
	}
	return e
}

// addLoss adds the data that the update of an object takes with it. A claim that a StatefulSet of the old release has
// made has no manifest.
func (o *ObjectPlan) addLoss(data references.Data, old, m *payload.Manifest) {
	before, after := m.Object(), m.Object()
	switch {
	case old != nil && old.IsTombstone(), o.CreateOnly, old == nil && !(m.IsTombstone() && data.HasClaim(o.ID)):
		return
	case old != nil:
		before = old.Object()
	default:
		o.Action, o.Why = Deleted, "a StatefulSet of the old release has made it"
	}
	if m.IsTombstone() || o.Recreated {
		after = nil
	}
	if o.Loses, _ = data.LostWith(before, after); len(o.Loses) > 0 {
		o.LossReason = m.Object().GetAnnotations()[references.DataLossAnnotation]
	}
}

// deletionAction returns the action of a tombstone, and the reason.
func (c *comparer) deletionAction(id kinds.ID, old *payload.Manifest) (Action, string) {
	exclusion := c.from.exclusions[id]
	switch {
	case old != nil && old.IsTombstone():
		return DeletedAgain, "the old release deletes it, too"
	case old != nil:
		return Deleted, ""
	case exclusion != nil:
		return NothingToDelete, "it was left out of the old release by " + exclusion.Why()
	default:
		return NothingToDelete, "the old release has no such object"
	}
}

// creationAction returns the action for an object that the old release does not have, and the reason.
func (c *comparer) creationAction(id kinds.ID) (Action, string) {
	exclusion := c.from.exclusions[id]
	if exclusion == nil || exclusion.Manifest.IsTombstone() {
		return Created, ""
	}
	return Included, "it was left out of the old release by " + exclusion.Why() +
		"; it is created, unless something else has made it"
}

// compare records the fields that differ.
func (o *ObjectPlan) compare(old, m *payload.Manifest) {
	o.Action = Unchanged
	if m.SameTextAs(old) {
		return
	}
	before, after := old.Object().Object, m.Object().Object
	changes := fields.Diff(before, after)
	if len(changes) == 0 {
		return // only the text differs
	}
	o.Action = Changed
	if o.CreateOnly = m.IsCreateOnly(); !o.CreateOnly {
		o.Hooks = compareHooks(before, after)
	}
	o.Changes = make([]FieldChange, len(changes))
	isRefused := false
	_, isRemoved := old.TimeToLive() // a Job that Kubernetes removes is not changed, but created
	for i, change := range changes {
		o.Changes[i].Difference = change
		if !o.CreateOnly && (!isRemoved || m.IsRecreated()) &&
			len(fields.Immutable(before, after, changes[i:i+1])) > 0 {
			o.Changes[i].Refused, isRefused = true, true
		}
	}
	kind := m.GroupVersionKind().GroupKind()
	if isRefused && m.IsRecreated() {
		o.markRecreated(kind, m.Foreign().IsHookJob())
	}
	o.findRestart(before, after)
	if kind == kinds.CustomResourceDefinition && !o.CreateOnly {
		o.Definition = crdchange.Compare(before, after)
	}
	if oldVersion, newVersion := old.Object().GetAPIVersion(), m.Object().GetAPIVersion(); oldVersion != newVersion {
		o.addReason(fmt.Sprintf("it is written for %s now, and was for %s", newVersion, oldVersion))
	}
	if o.CreateOnly {
		o.addReason("it is create-only: an existing object is not changed")
	}
}

// markRecreated marks an object as deleted and recreated, unless its content would be lost.
func (o *ObjectPlan) markRecreated(kind schema.GroupKind, isHookJob bool) {
	if kinds.HoldsData(kind) {
		o.addReason(fmt.Sprintf("%s is ignored for a %s: its content would be lost", payload.RecreateAnnotation,
			kind.Kind))
		return
	}
	o.Recreated = true
	for i := range o.Changes {
		o.Changes[i].Refused = false
	}
	if isHookJob {
		o.addReason("it is deleted and recreated, as the Job of a hook")
		return
	}
	o.addReason("it is deleted and recreated, as " + payload.RecreateAnnotation + " asks for")
}

// addReason appends a reason to Why.
func (o *ObjectPlan) addReason(reason string) {
	if o.Why != "" {
		o.Why += "; "
	}
	o.Why += reason
}

// usesOf returns the references of the new release to an object; nil if the new release applies the object.
func (c *comparer) usesOf(m *payload.Manifest) []ObjectUse {
	if other := c.to.manifests[storedID(m)]; other != nil && !other.IsTombstone() {
		return nil
	}
	var found []ObjectUse
	for _, use := range c.references.Uses[m.ID()] {
		found = append(found, ObjectUse{By: use.By.ID(), At: place(use.By), Field: use.Field()})
	}
	return found
}

func place(m *payload.Manifest) *Position {
	name := graph.ParseName(m.File())
	return &Position{File: m.Path, Line: m.Line, Document: m.Document, Level: name.Level, Component: name.Component}
}

// A renameKey is equal for objects of a kind in files of the same name.
type renameKey struct{ group, kind, file string }

func (o ObjectPlan) renameKey() renameKey {
	return renameKey{o.Group, o.Kind, path.Base(o.Place().File)}
}

// findRenamed finds objects that seem to replace dropped ones: the only new object of a kind in a file
// of the same name, where only one of that kind was dropped.
func (p *Plan) findRenamed() {
	dropped, created := map[renameKey][]int{}, map[renameKey][]int{}
	for i, e := range p.Absent {
		if e.Action == Dropped {
			dropped[e.renameKey()] = append(dropped[e.renameKey()], i)
		}
	}
	for i, e := range p.Steps {
		if e.Action == Created {
			created[e.renameKey()] = append(created[e.renameKey()], i)
		}
	}
	for slot, old := range dropped {
		if next := created[slot]; len(old) == 1 && len(next) == 1 {
			p.Absent[old[0]].RenamedTo = &p.Steps[next[0]].ID
		}
	}
}

// inOrder returns manifests in an order in which an update may apply them: that of the graph, and
// among nodes that may run in parallel that of the files.
func inOrder(manifests []*payload.Manifest) []*payload.Manifest {
	g := graph.Build(manifests, graph.Options{Mode: graph.Update, Implied: true})
	firstTask := func(node int) int { return g.Nodes[node].Tasks[0] }
	w := g.Walk()
	var ready []int // indexes in the reverse order of files
	ordered := make([]*payload.Manifest, 0, len(manifests))
	for {
		for _, node := range w.Ready() {
			position, _ := slices.BinarySearchFunc(ready, node, func(a, b int) int {
				return firstTask(b) - firstTask(a)
			})
			ready = slices.Insert(ready, position, node)
		}
		if len(ready) == 0 {
			return ordered
		}
		node := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		for _, task := range g.Nodes[node].Tasks {
			ordered = append(ordered, manifests[task])
		}
		w.Done(node, graph.OK)
	}
}

// storedID returns the ID of a manifest's object in the group that stores it.
func storedID(m *payload.Manifest) kinds.ID {
	id := m.ID()
	id.Group = kinds.StoredAs(id.GroupKind()).Group
	return id
}

// droppedReplicas warns of objects whose manifests no longer set spec.replicas, and that no autoscaler of the
// new release scales: the API server scales them to its default at once.
func droppedReplicas(entries []ObjectPlan, manifests []*payload.Manifest) []Warning {
	isScaled := map[kinds.ID]bool{}
	for _, m := range manifests {
		if target, scales := kinds.ScaleTarget(m.Object()); scales && !m.IsTombstone() {
			isScaled[target] = true
		}
	}
	var found []Warning
	for _, e := range entries {
		if count := e.droppedReplicas(); count > 1 && !e.CreateOnly && !isScaled[e.ID] {
			found = append(found, Warning{ReplicasDropped, e.ID, fmt.Sprintf(
				"spec.replicas, which was %d, is dropped: the API server sets its default, which is 1, unless an "+
					"autoscaler or another manager has scaled it", count)})
		}
	}
	return found
}

// droppedReplicas returns the replicas of the old manifest, if the new one has none; else 0.
func (o ObjectPlan) droppedReplicas() int64 {
	for _, change := range o.Changes {
		if count, isCount := change.Old.(int64); isCount && change.New == nil &&
			change.Path.String() == "spec.replicas" {
			return count
		}
	}
	return 0
}
