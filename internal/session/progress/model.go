package progress

import (
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// A Model is the state of a view of an apply: its progress, the latest events, the pending deletes, and an estimate of
// the remaining time. It is not safe for concurrent use.
type Model struct {
	plan    Intent
	now     time.Time
	base    Progress            // by the state of the apply, without the events
	changed map[kinds.ID]string // states of pending deletes that were observed later; "" if the object was deleted
	recent  []apply.Event
	left    estimate
}

// mostRecent is how many of the latest events are kept.
const mostRecent = 100

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
		m.recent = m.recent[max(0, len(m.recent)-mostRecent):]
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
