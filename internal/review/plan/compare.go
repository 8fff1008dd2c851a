package plan

import (
	"fmt"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// recreateAnnotation allows to delete an object and make it again.
const recreateAnnotation = "runlevel.dev/recreate"

// Compare says what the update from one payload to another does. Both must have been
// read with the filters of the same cluster.
func Compare(from, to *payload.Payload) *Plan {
	steps := inOrder(to.Manifests)
	c, p := newComparer(from, to, steps), newPlan(release(from), to)
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
	p.warn(slices.Concat(c.contradictions(steps, gone), droppedReplicas(p.Steps, steps))...)
	return p
}

// newPlan returns a plan without steps.
func newPlan(from ReleaseID, to *payload.Payload) *Plan {
	return &Plan{
		From: from, To: release(to), Update: kindOf(from.Version, to.Version),
		Counts: map[PlannedAction]int{}, Warnings: []UpdateWarning{}, Steps: []ObjectPlan{}, Absent: []ObjectPlan{},
	}
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
	// The manifests that create an object of the old release, also those that the filter leaves out: each may be for
	// other clusters.
	variants map[kinds.ID][]*payload.Manifest
	// The first manifest that the new release applies in a Namespace, or of a kind. One that the filter leaves out
	// counts if there is no other: a tombstone is for clusters where it may be applied.
	inNamespace map[string]*payload.Manifest
	ofKind      map[schema.GroupKind]*payload.Manifest
	uses        map[kinds.ID][]references.Use[*payload.Manifest] // of objects, by the manifests of the new release
}

// newComparer compares two payloads, of which the new one has its manifests in order.
func newComparer(from, to *payload.Payload, steps []*payload.Manifest) *comparer {
	c := &comparer{
		from: newInventory(from), to: newInventory(to), variants: map[kinds.ID][]*payload.Manifest{},
		inNamespace: map[string]*payload.Manifest{}, ofKind: map[schema.GroupKind]*payload.Manifest{}, uses: references.Uses(steps),
	}
	for _, m := range from.All() {
		if !m.IsTombstone() {
			c.variants[stored(m)] = append(c.variants[stored(m)], m)
		}
	}
	for _, m := range slices.Backward(slices.Concat(steps, to.All()[len(to.Manifests):])) {
		if !m.IsTombstone() {
			c.inNamespace[m.ID().Namespace], c.ofKind[m.GroupVersionKind().GroupKind()] = m, m
		}
	}
	return c
}

// step says what one manifest of the new release does.
func (c *comparer) step(m *payload.Manifest) ObjectPlan {
	id := stored(m)
	e := ObjectPlan{ID: m.ID(), New: place(m)}
	old := c.from.in[id]
	if old != nil {
		e.Old = place(old)
	}
	switch isTombstone := m.IsTombstone(); {
	case isTombstone:
		e.Action, e.Why = c.deletion(id, old)
		e.UsedBy = c.usedBy(m)
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
	if isRefused && m.Object().GetAnnotations()[recreateAnnotation] == "true" {
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

// recreate deletes an object and recreates it, unless too much would go with it.
func (e *ObjectPlan) recreate(kind schema.GroupKind) {
	switch kind {
	case kinds.CustomResourceDefinition, kinds.Namespace, schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		e.because(fmt.Sprintf("%s is not done for a %s: what it holds would be lost", recreateAnnotation, kind.Kind))
		return
	}
	e.Recreated = true
	for i := range e.Changes {
		e.Changes[i].Refused = false
	}
	e.because("it is deleted and recreated, as " + recreateAnnotation + " asks for")
}

// because adds a reason.
func (e *ObjectPlan) because(why string) {
	if e.Why != "" {
		e.Why += "; "
	}
	e.Why += why
}

// usedBy returns what the new release has that refers to the object of a manifest: of those objects that are not in the new
// release, or deleted by it.
func (c *comparer) usedBy(m *payload.Manifest) []ObjectUse {
	if other := c.to.in[stored(m)]; other != nil && !other.IsTombstone() {
		return nil
	}
	var found []ObjectUse
	for _, use := range c.uses[m.ID()] {
		found = append(found, ObjectUse{By: use.By.ID(), At: place(use.By), Field: use.Field()})
	}
	return found
}

func place(m *payload.Manifest) *Position {
	name := graph.ParseName(m.File())
	return &Position{File: m.Path, Line: m.Line, Document: m.Document, Level: name.Level, Component: name.Component}
}

// A renameKey is where an object of a kind would be looked for: the kind, and a file name.
type renameKey struct{ group, kind, file string }

func (e ObjectPlan) renameKey() renameKey {
	return renameKey{e.Group, e.Kind, path.Base(e.Place().File)}
}

// findRenamed finds objects that seem to have followed dropped ones: in a file of the
// same name, the only new one of the same kind where one was dropped.
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
// among nodes that may run side by side that of the files.
func inOrder(manifests []*payload.Manifest) []*payload.Manifest {
	g := graph.Build(manifests, graph.Options{Mode: graph.Update, Implied: true})
	firstTask := func(node int) int { return g.Nodes[node].Tasks[0] }
	w := g.Walk()
	var ready []int // the node that comes first in the files last
	ordered := make([]*payload.Manifest, 0, len(manifests))
	for {
		for _, node := range w.Ready() {
			at, _ := slices.BinarySearchFunc(ready, node, func(a, b int) int { return firstTask(b) - firstTask(a) })
			ready = slices.Insert(ready, at, node)
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

// elsewhere is where kinds are that are, or were, served by two groups: one object is
// seen through both, so to delete it in one deletes it in the other.
var elsewhere = map[schema.GroupKind]string{
	{Group: "extensions", Kind: "Deployment"}:                         "apps",
	{Group: "extensions", Kind: "DaemonSet"}:                          "apps",
	{Group: "extensions", Kind: "ReplicaSet"}:                         "apps",
	{Group: "extensions", Kind: "Ingress"}:                            "networking.k8s.io",
	{Group: "extensions", Kind: "NetworkPolicy"}:                      "networking.k8s.io",
	{Group: "extensions", Kind: "PodSecurityPolicy"}:                  "policy",
	{Group: "authorization.openshift.io", Kind: "Role"}:               "rbac.authorization.k8s.io",
	{Group: "authorization.openshift.io", Kind: "RoleBinding"}:        "rbac.authorization.k8s.io",
	{Group: "authorization.openshift.io", Kind: "ClusterRole"}:        "rbac.authorization.k8s.io",
	{Group: "authorization.openshift.io", Kind: "ClusterRoleBinding"}: "rbac.authorization.k8s.io",
}

// stored says which object a manifest is about, whatever the group that serves it.
func stored(m *payload.Manifest) kinds.ID {
	id := m.ID()
	if group, found := elsewhere[schema.GroupKind{Group: id.Group, Kind: id.Kind}]; found {
		id.Group = group
	}
	return id
}
