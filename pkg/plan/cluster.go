package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/fields"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Sight is what was seen of a cluster, by whoever has asked it.
type Sight struct {
	Mode    string     // of the apply that was looked at: install, update, reconcile
	Seen    []Seen     // one for each manifest of the release
	Orphans []LeftOver // what earlier releases have left behind
	Pending []LeftOver // what earlier releases delete, and is there still
	Gate    []Finding
	Notes   []string // on what could not be found out
}

// A Seen is what would come of one manifest.
type Seen struct {
	Manifest *payload.Manifest
	Action   Action
	Why      string
	// Live is the object as it is, and Would what it would be. Nil where there is none, or
	// nothing changes.
	Live, Would map[string]any
	// Said says that nobody has asked the server: Would is no more than the manifest says.
	Said bool
	// Unchecked is why nobody has, if that is so.
	Unchecked string
	// Recreated says that the object would be deleted and made anew.
	Recreated bool
	// Adopted are managers whose fields would become the release's, and Losing those who
	// have set fields that the release sets otherwise.
	Adopted, Losing []string
	// Owners says who else owns a field of the object as it is. Nil if nobody knows.
	Owners func(fields.Path) []string
	Toll   *kinds.Tally // what goes with the object, if it goes
}

// A LeftOver is an object of an earlier release.
type LeftOver struct {
	Object
	Why       string
	Tombstone string       // that would delete it
	Toll      *kinds.Tally // what goes with it
}

// A Finding is what the gate has against an update.
type Finding struct {
	Check   string `json:"check"`
	Blocks  bool   `json:"blocks"`
	Message string `json:"message"`
	Lifts   string `json:"lifts,omitempty"` // who or what makes it go away
}

// A Cluster is what a plan of one says beside what becomes of objects.
type Cluster struct {
	Mode  string    `json:"mode"`
	Gate  []Finding `json:"gate,omitempty"`
	Notes []string  `json:"notes,omitempty"` // on what could not be found out
}

// OfCluster says what an apply of a payload would do to a cluster where another version is,
// from what was seen of it. What was there before is From: without a version, if nothing was.
func OfCluster(from Release, to *payload.Payload, sight Sight) *Plan {
	steps := inOrder(to.Manifests)
	seen := map[*payload.Manifest]Seen{}
	for _, one := range sight.Seen {
		seen[one.Manifest] = one
	}
	p := &Plan{
		From: from, To: release(to), Update: kindOf(from.Version, to.Version),
		Cluster: &Cluster{Mode: sight.Mode, Gate: sight.Gate, Notes: sight.Notes},
		Counts:  map[Action]int{}, Warnings: []Warning{}, Steps: make([]Entry, 0, len(steps)), Absent: []Entry{},
	}
	for _, m := range steps {
		if one, isKnown := seen[m]; isKnown {
			p.Steps = append(p.Steps, one.entry())
		}
	}
	for _, left := range sight.Pending {
		p.Absent = append(p.Absent, left.entry(Pending))
	}
	for _, left := range sight.Orphans {
		p.Absent = append(p.Absent, left.entry(Dropped))
	}
	p.count()
	c := newComparer(&payload.Payload{}, to, steps)
	gone := c.whatGoes(nil, steps)
	for _, one := range sight.Seen {
		gone.learn(one)
	}
	p.warn(c.contradictions(steps, gone))
	return p
}

// learn tells of a definition that goes what its kind is, which a tombstone need not say: its name
// is that of the objects that go with it.
func (g *goner) learn(s Seen) {
	id := s.Manifest.ID()
	if !s.Manifest.IsTombstone() || s.Manifest.GroupVersionKind().GroupKind() != kinds.CustomResourceDefinition || s.Toll == nil {
		return
	}
	for _, count := range s.Toll.Kinds {
		if id.Name == count.Resource+"."+count.Group {
			g.kinds[schema.GroupKind{Group: count.Group, Kind: count.Kind}] = Object(id)
		}
	}
}

func (l LeftOver) entry(action Action) Entry {
	return Entry{Object: l.Object, Action: action, Why: l.Why, Tombstone: l.Tombstone, TakesAlong: l.Toll}
}

// entry is what becomes of the object.
func (s Seen) entry() Entry {
	e := Entry{
		Object: Object(s.Manifest.ID()), Action: s.Action, Why: s.Why, New: place(s.Manifest),
		Unchecked: s.Unchecked, Recreated: s.Recreated, Adopted: s.Adopted, TakesAlong: s.Toll,
	}
	switch {
	case e.Action == Created && e.Why == e.Unchecked:
		e.Why = "" // which is not why it is created
	case e.Recreated:
		e.Why = "it is deleted and made anew: " + e.Why
	}
	live, would := fields.WithoutServers(s.Live), fields.WithoutServers(s.Would)
	switch {
	case would == nil:
	case live == nil:
		e.Whole = fields.Mask(would)
	default:
		e.Changes = s.changes(live, would)
		if e.Action == Changed && e.Why == "" && len(e.Changes) == 0 && len(e.Adopted) == 0 {
			e.Why = "all fields stay as they are, and only become the release's"
		}
		if s.Manifest.GroupVersionKind().GroupKind() == kinds.CustomResourceDefinition && !s.Said {
			e.Definition = compareDefinitions(live, would)
		}
	}
	return e
}

// changes are the fields that would differ, and who has set them.
func (s Seen) changes(live, would map[string]any) []Change {
	var changes []Change
	for _, field := range fields.Diff(live, would) {
		if s.Said && field.New == nil {
			continue // which a manifest need not say
		}
		change := Change{Change: field}
		if s.Owners != nil {
			change.Owners = s.Owners(field.Path)
		}
		for _, owner := range change.Owners {
			if slices.Contains(s.Losing, owner) || slices.Contains(s.Adopted, owner) {
				change.Overwrites = append(change.Overwrites, owner)
			}
		}
		changes = append(changes, change)
	}
	return changes
}

// IsDone says that an apply would do something about the object in a cluster, or try to.
func (e Entry) IsDone() bool {
	switch e.Action {
	case Created, Changed, Deleted, Rejected, Unchecked:
		return true
	default:
		return false
	}
}

// Differing is the plan of a cluster without what an apply leaves as it is.
func (p *Plan) Differing() *Plan {
	less := *p
	less.Steps = slices.DeleteFunc(slices.Clone(p.Steps), func(e Entry) bool { return !e.IsDone() })
	less.Absent, less.Counts, less.Warnings = []Entry{}, map[Action]int{}, []Warning{}
	less.count()
	less.warn(nil)
	return &less
}
