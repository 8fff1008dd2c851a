// Package progress returns how far an apply is: levels and components, what runs, what waits for what since when, what
// has failed, which deletes are pending, and how long it may still take.
//
// Of makes a Progress, which is a plain value, of the state of an apply, be it of this process or by the record of
// another one; a Model is the state of a live view. The package uses neither a clock nor a cluster. The estimate of the
// remaining time is in estimate.go.
package progress

import (
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Progress is how far an apply is.
type Progress struct {
	Title    string        `json:"title"`
	Began    time.Time     `json:"began"`
	Now      time.Time     `json:"now"`
	Left     time.Duration `json:"left,omitempty"` // an estimate; 0 if there is none
	Levels   []Level       `json:"levels"`
	Waits    []apply.Wait  `json:"waits,omitempty"` // the longest first
	Failures []apply.Event `json:"failures,omitempty"`
	Deletes  []Deleting    `json:"deletes,omitempty"`
	Recent   []apply.Event `json:"recent,omitempty"` // the latest last
	StateCounts
}

// StateCounts contains the number of objects in each state.
type StateCounts struct {
	Total   int `json:"total"`
	Done    int `json:"done,omitempty"`    // applied, and ready as far as is known
	Waiting int `json:"waiting,omitempty"` // applied, and not ready
	Failed  int `json:"failed,omitempty"`
}

// Add returns the sum of counts.
func (c StateCounts) Add(other StateCounts) StateCounts {
	return StateCounts{c.Total + other.Total, c.Done + other.Done, c.Waiting + other.Waiting, c.Failed + other.Failed}
}

// Left returns how many objects were not applied yet.
func (c StateCounts) Left() int { return c.Total - c.Done - c.Waiting - c.Failed }

// A Level is the components of a release that have the same number.
type Level struct {
	Name       string      `json:"name,omitempty"` // empty for files without a level
	Components []Component `json:"components"`
	StateCounts
}

// IsBegun reports whether anything of a level was done.
func (l Level) IsBegun() bool {
	for _, c := range l.Components {
		if !c.Began.IsZero() || c.Done+c.Waiting+c.Failed > 0 {
			return true
		}
	}
	return false
}

// IsDone reports whether nothing of a level is left to do, or to wait for.
func (l Level) IsDone() bool { return l.Done == l.Total && len(l.Running()) == 0 }

// Running returns the components of a level that run, or have objects that are waited for.
func (l Level) Running() []string {
	var names []string
	for _, c := range l.Components {
		if c.IsRunning || c.Waiting > 0 {
			names = append(names, c.Name)
		}
	}
	return names
}

// A Component is a node of the graph: the manifests of a component in one level.
type Component struct {
	Name      string        `json:"name,omitempty"`
	Node      string        `json:"node,omitempty"` // its name in events
	IsRunning bool          `json:"running,omitempty"`
	IsOver    bool          `json:"-"`
	Began     time.Time     `json:"began,omitzero"`
	Before    time.Duration `json:"before,omitempty"` // how long it took the last time; 0 if unknown
	StateCounts
}

// A Deleting is an object whose delete is pending.
type Deleting struct {
	Object  kinds.ID `json:"object"`
	Message string   `json:"message"`
}

// An Intent is what an apply is to do.
type Intent struct {
	Title   string
	Planned *apply.RunState // before it has begun
	Began   time.Time       // time on the clock of the events
	// InOrder is true if a level waits until the level before it is ready, as in an update.
	InOrder bool
	// Before is the duration of the last apply, and Nodes has those of its slow nodes. Both are empty if unknown.
	Before time.Duration
	Nodes  map[string]time.Duration
}

// IntentOf returns the intent to apply manifests in a mode, with the durations of the last apply.
func IntentOf(mode graph.Mode, manifests []*payload.Manifest, before record.Durations) Intent {
	intent := Intent{
		Planned: apply.Planned(manifests),
		InOrder: mode == graph.Update,
		Before:  inSeconds(before.All),
		Nodes:   map[string]time.Duration{},
	}
	for name, took := range before.Nodes {
		intent.Nodes[name] = inSeconds(took)
	}
	return intent
}

func inSeconds(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// A Model is the state of a view of an apply: its progress, the latest events, the pending deletes, and an estimate of
// the remaining time. It is not safe for concurrent use.
type Model struct {
	plan    Intent
	now     time.Time
	base    Progress            // progress from the state of the apply, without the events
	changed map[kinds.ID]string // states of pending deletes that were observed later; "" if the object was deleted
	recent  []apply.Event
	left    estimate
}

// maxRecent limits the number of latest events.
const maxRecent = 100

// New returns a model of an apply that has not begun.
func New(plan Intent) *Model {
	return &Model{plan: plan, now: plan.Began, base: Of(plan, nil), changed: map[kinds.ID]string{}}
}

// State sets the state of the apply.
func (m *Model) State(state *apply.RunState) { m.base = Of(m.plan, state) }

// Event adds an event.
func (m *Model) Event(event apply.Event) {
	if event.Object != nil && isRecent(event) {
		m.recent = append(m.recent, event)
		m.recent = m.recent[max(0, len(m.recent)-maxRecent):]
	}
}

// isRecent reports whether an event is one of the latest to be shown. Waits, failures and pending deletes have
// lists of their own, and lines of logs are printed.
func isRecent(event apply.Event) bool {
	switch event.Action {
	case object.Unchanged, object.Absent, object.Pending, object.NotNeeded:
		return false
	default:
		return event.Type != apply.Waiting && event.Type != apply.Failing && event.Type != apply.Logged
	}
}

// Delete sets the state of a pending delete; an empty one if the object was deleted.
func (m *Model) Delete(id kinds.ID, state string) {
	isPending := slices.ContainsFunc(m.deletes(), func(d Deleting) bool { return d.Object == id })
	if m.changed[id] = state; isPending && state == "" {
		m.recent = append(m.recent, apply.Event{Time: m.now, Type: apply.Applied, Action: object.Deleted, Object: &id})
	}
}

// deletes returns the pending deletes: those of this apply, and then those of earlier ones.
func (m *Model) deletes() []Deleting {
	all := slices.Clone(m.base.Deletes)
	isOfApply := map[kinds.ID]bool{}
	for i, pending := range all {
		isOfApply[pending.Object] = true
		if state, isKnown := m.changed[pending.Object]; isKnown {
			all[i].Message = state
		}
	}
	for id, state := range m.changed {
		if !isOfApply[id] {
			all = append(all, Deleting{id, state})
		}
	}
	all = slices.DeleteFunc(all, func(d Deleting) bool { return d.Message == "" })
	slices.SortStableFunc(all, func(a, b Deleting) int { return kinds.Compare(a.Object, b.Object) })
	return all
}

// At moves the time forward.
func (m *Model) At(now time.Time) {
	if now.After(m.now) {
		m.now = now
	}
	m.left.update(m.plan, m.base, m.now)
}

// Progress returns how far the apply is.
func (m *Model) Progress() Progress {
	p := m.base
	p.Now, p.Deletes, p.Recent = m.now, m.deletes(), slices.Clone(m.recent)
	if m.left.end.After(m.now) {
		p.Left = m.left.end.Sub(m.now)
	}
	return p
}
