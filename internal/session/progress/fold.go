package progress

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An Intent is the list of manifests to apply.
type Intent struct {
	Title string
	Items []Item    // in the order of the release
	Began time.Time // by the clock of the events
	// InOrder is true if a level waits until the level before it is ready, as in an update.
	InOrder bool
	// Before is how long the last apply took, and Nodes how long each node took that took a while. Both are
	// empty if that is not known.
	Before time.Duration
	Nodes  map[string]time.Duration
}

// IntentOf returns the manifests to apply in a mode, with the durations of the last apply.
func IntentOf(mode graph.Mode, manifests []*payload.Manifest, before record.Durations) Intent {
	intent := Intent{InOrder: mode == graph.Update, Before: inSeconds(before.All), Nodes: map[string]time.Duration{}}
	for _, m := range manifests {
		name := graph.ParseName(m.File())
		intent.Items = append(intent.Items, Item{Level: name.Level, Component: name.Component, File: m.Path, ID: m.ID()})
	}
	for name, took := range before.Nodes {
		intent.Nodes[name] = inSeconds(took)
	}
	return intent
}

func inSeconds(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// An Item is a manifest that is to be applied.
type Item struct {
	Level, Component string // both empty, if its file names neither
	File             string
	ID               kinds.ID
}

// A Fold computes the progress of an apply from its events. It is not safe for concurrent use.
type Fold struct {
	plan   Intent
	now    time.Time
	items  map[key]*item
	levels []*level
	nodes  map[string]*node

	waits    map[key]*wait
	failures []apply.Event
	deletes  []Deleting
	recent   []apply.Event
	applied  int // items that were applied, or have failed
	last     time.Time

	end       time.Time // the estimate; zero if there is none
	estimated time.Time // when that was made
}

// A key identifies a manifest in events, or a hook of its object.
type key struct {
	file string
	id   kinds.ID
	hook string
}

// keyOf returns the key of an event.
func keyOf(event apply.Event) key { return key{event.File, *event.Object, event.Hook} }

// manifest returns the key of the manifest itself.
func (k key) manifest() key {
	k.hook = ""
	return k
}

type item struct {
	node      *node
	isDone    bool // it was applied, or has failed
	hasFailed bool
}

type level struct {
	name  string
	nodes []*node
}

// A node is a component of a level.
type node struct {
	component, name     string
	total, done, failed int
	isRunning, isOver   bool
	began               time.Time
}

// A wait is an object that is waited for, and the time of the last event that reported it.
type wait struct {
	Waited
	reportedAt time.Time
}

// mostRecent is how many of the latest events are kept.
const mostRecent = 100

// New begins a fold of an apply that has not begun.
func New(plan Intent) *Fold {
	f := &Fold{plan: plan, now: plan.Began, items: map[key]*item{}, nodes: map[string]*node{}, waits: map[key]*wait{}}
	byName := map[string]*level{}
	for _, each := range plan.Items {
		l := byName[each.Level]
		if l == nil {
			l = &level{name: each.Level}
			byName[each.Level] = l
			f.levels = append(f.levels, l)
		}
		name := graph.Name{Level: each.Level, Component: each.Component}.Words()
		n := f.nodes[name]
		if n == nil {
			n = &node{component: each.Component, name: name}
			f.nodes[name] = n
			l.nodes = append(l.nodes, n)
		}
		n.total++
		f.items[key{each.File, each.ID, ""}] = &item{node: n}
	}
	slices.SortStableFunc(f.levels, func(a, b *level) int { return graph.CompareLevels(a.name, b.name) })
	return f
}

// ReportEvery is how often an apply has to report waits, at least: a wait that no event repeats is forgotten.
const ReportEvery = 2 * time.Second

// forgetAfter is how long a wait counts that no event repeats. It is longer than it takes to ask pods why they
// are not ready.
const forgetAfter = 8 * time.Second

// At moves the time forward.
func (f *Fold) At(now time.Time) {
	if now.After(f.now) {
		f.now = now
	}
	maps.DeleteFunc(f.waits, func(_ key, w *wait) bool { return f.now.Sub(w.reportedAt) > forgetAfter })
	f.estimate()
}

// Event adds an event.
func (f *Fold) Event(event apply.Event) {
	if event.Time.After(f.now) {
		f.now = event.Time
	}
	if event.Type == apply.Began || event.Type == apply.Ended {
		f.setNode(event)
		return
	}
	if event.Object == nil {
		return
	}
	of := keyOf(event)
	switch event.Type {
	case apply.Applied:
		f.setDone(of, false)
		if of.hook == "" {
			f.setDeleted(event)
		}
	case apply.Failing:
		f.setDone(of, true)
		f.failures = append(f.failures, event)
	case apply.BeReady:
		f.setDone(of, false)
	case apply.Waiting, apply.Retrying:
		f.setWait(of, event)
	}
	if isRecent(event) {
		f.recent = append(f.recent, event)
		f.recent = f.recent[max(0, len(f.recent)-mostRecent):]
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

// setNode records that a node begins or ends.
func (f *Fold) setNode(event apply.Event) {
	n := f.nodes[event.Node]
	if n == nil {
		return
	}
	n.isRunning, n.isOver = event.Type == apply.Began, event.Type == apply.Ended && event.Action == ""
	if n.began.IsZero() {
		n.began = event.Time
	}
}

// setDone records that a manifest, or a hook of it, was applied or has failed. It is not waited for any more. A failed hook
// fails its manifest; a hook that has run does not complete it.
func (f *Fold) setDone(of key, hasFailed bool) {
	delete(f.waits, of)
	if !hasFailed {
		f.failures = slices.DeleteFunc(f.failures, func(e apply.Event) bool { return keyOf(e) == of })
	}
	item := f.items[of.manifest()]
	if item == nil || of.hook != "" && !hasFailed && !item.isDone {
		return
	}
	if !item.isDone {
		item.isDone = true
		f.applied++
		f.last = f.now
		item.node.done++
	}
	if hasFailed != item.hasFailed {
		item.hasFailed = hasFailed
		item.node.failed += map[bool]int{true: 1, false: -1}[hasFailed]
	}
}

// setDeleted records the result of a delete.
func (f *Fold) setDeleted(event apply.Event) {
	state := ""
	if event.Action == object.Pending {
		state = event.Message
	}
	f.setDelete(*event.Object, state)
}

// Delete sets the state of a pending delete; an empty one if the object is gone.
func (f *Fold) Delete(id kinds.ID, state string) {
	if wasPending := f.setDelete(id, state); wasPending && state == "" {
		f.recent = append(f.recent, apply.Event{Time: f.now, Type: apply.Applied, Action: object.Deleted, Object: &id})
	}
}

func (f *Fold) setDelete(id kinds.ID, state string) (wasPending bool) {
	at := slices.IndexFunc(f.deletes, func(deleting Deleting) bool { return deleting.Object == id })
	switch {
	case at >= 0 && state == "":
		f.deletes = slices.Delete(f.deletes, at, at+1)
	case at >= 0:
		f.deletes[at].Message = state
	case state != "":
		f.deletes = append(f.deletes, Deleting{id, state})
	}
	return at >= 0
}

// setWait records a wait. A retry is reported once for each attempt: it is a wait since the first attempt, for the failure that
// the attempts have in common.
func (f *Fold) setWait(of key, event apply.Event) {
	w := &wait{reportedAt: f.now, Waited: Waited{
		Object: of.id, Hook: of.hook, File: of.file, Node: event.Node, For: cmp.Or(event.Failure, event.Message), Since: event.Time, Why: event.Why, Reason: event.Reason, Effect: event.Effect,
		Retrying: event.IsRetry || event.Type == apply.Retrying,
	}}
	before := f.waits[of]
	switch {
	case event.Since != nil:
		w.Since = *event.Since
	case before != nil:
		w.Since = before.Since
	}
	if item := f.items[of.manifest()]; item != nil {
		w.Node = item.node.name
	}
	f.waits[of] = w
}

// Progress returns how far the apply is.
func (f *Fold) Progress() Progress {
	p := Progress{
		Title: f.plan.Title, Began: f.plan.Began, Now: f.now, Failures: slices.Clone(f.failures), Deletes: slices.Clone(f.deletes), Recent: slices.Clone(f.recent),
	}
	if f.end.After(f.now) {
		p.Left = f.end.Sub(f.now)
	}
	waiting, counted := map[*node]int{}, map[*item]bool{}
	for of, w := range f.waits {
		p.Waits = append(p.Waits, w.Waited)
		if each := f.items[of.manifest()]; each != nil && each.isDone && !counted[each] {
			counted[each] = true
			waiting[each.node]++
		}
	}
	slices.SortFunc(p.Waits, func(a, b Waited) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name(), b.Name()))
	})
	for _, l := range f.levels {
		level := Level{Name: l.name}
		for _, n := range l.nodes {
			waits := min(waiting[n], n.done-n.failed)
			counts := StateCounts{Total: n.total, Done: n.done - n.failed - waits, Waiting: waits, Failed: n.failed}
			level.Components = append(level.Components, Component{n.component, n.name, n.isRunning, n.began, f.plan.Nodes[n.name], counts})
			level.StateCounts = level.Add(counts)
		}
		p.Levels, p.StateCounts = append(p.Levels, level), p.Add(level.StateCounts)
	}
	return p
}
