package plan

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/fields"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// recreateAnnotation allows to delete an object and make it again.
const recreateAnnotation = "runlevel.dev/recreate"

// The kinds that are special here.
var (
	claimKind = schema.GroupKind{Kind: "PersistentVolumeClaim"}
)

// Compare says what the update from one payload to another does. Both must have been
// read with the filters of the same cluster.
func Compare(from, to *payload.Payload) *Plan {
	steps := inOrder(to.Manifests)
	c := newComparer(from, to, steps)
	p := &Plan{
		From: release(from), To: release(to), Update: kindOf(from.Version, to.Version),
		Counts: map[PlannedAction]int{}, Warnings: []UpdateWarning{}, Steps: make([]ObjectPlan, 0, len(to.Manifests)), Absent: []ObjectPlan{},
	}
	for _, m := range steps {
		p.Steps = append(p.Steps, c.step(m))
	}
	gone := c.cascadeOf(from.Manifests, steps)
	for _, m := range from.Manifests {
		if c.isAbsent(m) {
			p.Absent = append(p.Absent, c.absent(m, gone))
		}
	}
	p.findRenamed()
	p.count()
	p.warn(c.contradictions(steps, gone))
	return p
}

func release(p *payload.Payload) ReleaseID {
	return ReleaseID{Name: p.Name, Version: p.Version, Hash: p.Hash}
}

// An inventory finds the manifests of a payload by their objects.
type inventory struct {
	in  map[kinds.ID]*payload.Manifest  // where there are several, the last one that is no tombstone
	out map[kinds.ID]*payload.Exclusion // the first one: variants are left out for the same reason
}

func newInventory(p *payload.Payload) inventory {
	found := inventory{
		in:  make(map[kinds.ID]*payload.Manifest, len(p.Manifests)),
		out: make(map[kinds.ID]*payload.Exclusion, len(p.Excluded)),
	}
	for _, m := range p.Manifests {
		id := stored(m)
		if known := found.in[id]; known == nil || known.IsTombstone() || !m.IsTombstone() {
			found.in[id] = m
		}
	}
	for i, left := range p.Excluded {
		if id := stored(left.Manifest); found.out[id] == nil {
			found.out[id] = &p.Excluded[i]
		}
	}
	return found
}

// A comparer compares two payloads.
type comparer struct {
	from, to inventory
	// The first manifest that the new release applies in a Namespace, or of a kind.
	inNamespace map[string]*payload.Manifest
	ofKind      map[schema.GroupKind]*payload.Manifest
}

// newComparer compares two payloads, of which the new one has its manifests in order.
func newComparer(from, to *payload.Payload, steps []*payload.Manifest) *comparer {
	c := &comparer{
		from: newInventory(from), to: newInventory(to),
		inNamespace: map[string]*payload.Manifest{}, ofKind: map[schema.GroupKind]*payload.Manifest{},
	}
	for _, m := range slices.Backward(steps) {
		if !m.IsTombstone() {
			c.inNamespace[m.ID().Namespace], c.ofKind[m.GroupVersionKind().GroupKind()] = m, m
		}
	}
	return c
}

// step says what one manifest of the new release does.
func (c *comparer) step(m *payload.Manifest) ObjectPlan {
	id := stored(m)
	e := ObjectPlan{ObjectID: ObjectID(m.ID()), New: place(m)}
	old := c.from.in[id]
	if old != nil {
		e.Old = place(old)
	}
	switch isTombstone := m.IsTombstone(); {
	case isTombstone:
		e.Action, e.Why = c.deletion(id, old)
	case old == nil:
		e.Action, e.Why = c.creation(id)
		e.Hooks = compareHooks(nil, m.Object().Object)
	case old.IsTombstone():
		e.Action, e.Why = Revived, "the old release deletes it"
		e.Hooks = compareHooks(nil, m.Object().Object)
	default:
		e.compare(old, m)
	}
	return e
}

// deletion says what a tombstone does.
func (c *comparer) deletion(id kinds.ID, old *payload.Manifest) (PlannedAction, string) {
	left := c.from.out[id]
	switch {
	case old != nil && old.IsTombstone():
		return DeletedAgain, "the old release deletes it, too"
	case old != nil:
		return Deleted, ""
	case left != nil:
		return NothingToDelete, "it was left out of the old release by " + left.Why()
	default:
		return NothingToDelete, "the old release has no such object"
	}
}

// creation says why an object is new.
func (c *comparer) creation(id kinds.ID) (PlannedAction, string) {
	left := c.from.out[id]
	if left == nil || left.Manifest.IsTombstone() {
		return Created, ""
	}
	return Included, "it was left out of the old release by " + left.Why() + "; it is created, unless something else has made it"
}

// compare finds the fields that differ.
func (e *ObjectPlan) compare(old, m *payload.Manifest) {
	e.Action = Unchanged
	if m.SameTextAs(old) {
		return
	}
	before, after := old.Object().Object, m.Object().Object
	changes := fields.Diff(before, after)
	if len(changes) == 0 {
		return // only the text differs
	}
	e.Action = Changed
	if e.CreateOnly = m.IsCreateOnly(); !e.CreateOnly {
		e.Hooks = compareHooks(before, after)
	}
	e.Changes = make([]FieldChange, len(changes))
	isRefused := false
	for i, change := range changes {
		e.Changes[i].Difference = change
		if !e.CreateOnly && len(fields.Immutable(before, after, changes[i:i+1])) > 0 {
			e.Changes[i].Refused, isRefused = true, true
		}
	}
	kind := m.GroupVersionKind().GroupKind()
	if isRefused && annotation(m, recreateAnnotation) == "true" {
		e.recreate(kind)
	}
	if kind == kinds.CustomResourceDefinition && !e.CreateOnly {
		e.Definition = compareDefinitions(before, after)
	}
	if from, to := old.Object().GetAPIVersion(), m.Object().GetAPIVersion(); from != to {
		e.because(fmt.Sprintf("it is written for %s now, and was for %s", to, from))
	}
	if e.CreateOnly {
		e.because("it is create-only: a cluster that has it keeps it as it is")
	}
}

// recreate deletes an object and makes it anew, unless too much would go with it.
func (e *ObjectPlan) recreate(kind schema.GroupKind) {
	switch kind {
	case kinds.CustomResourceDefinition, kinds.Namespace, claimKind:
		e.because(fmt.Sprintf("%s is not done for a %s: what it holds would be lost", recreateAnnotation, kind.Kind))
		return
	}
	e.Recreated = true
	for i := range e.Changes {
		e.Changes[i].Refused = false
	}
	e.because("it is deleted and made anew, as " + recreateAnnotation + " asks for")
}

// because adds a reason.
func (e *ObjectPlan) because(why string) {
	if e.Why != "" {
		e.Why += "; "
	}
	e.Why += why
}

func place(m *payload.Manifest) *Position {
	name := graph.ParseName(m.File())
	return &Position{File: m.Path, Line: m.Line, Document: m.Document, Level: name.Level, Component: name.Component}
}

// annotation is one of an object's, without copying all of them.
func annotation(m *payload.Manifest, name string) string {
	value, _, _ := unstructured.NestedString(m.Object().Object, "metadata", "annotations", name)
	return value
}
