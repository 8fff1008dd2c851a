// Package live is the live view of an apply on a terminal: how far each level is, what runs
// and what it waits for, what has failed, and when it may be over.
//
// A Model takes what happens and makes a screen of it: events in, lines of text out. It knows
// no terminal and no clock, so that it can be tested with values. A View puts it on a
// terminal, a few times a second, below whatever was printed before. Neither decides anything
// about the apply, nor asks the cluster for anything.
//
// NewModel is the call to start from, and Start for a terminal. What happens is in model.go,
// the screen in screen.go with the parts of levels.go and running.go, the time that is left
// in left.go.
package live

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/printable"
)

// A Plan is what is about to be done.
type Plan struct {
	Title string
	Items []Item    // in the order of the release
	Began time.Time // by the clock of the events
	// InOrder says that a level waits until the one before it is ready.
	InOrder bool
	// Earlier is how long it took the last time, and Nodes how long its nodes did that took a
	// while. Both are empty if nobody knows.
	Earlier time.Duration
	Nodes   map[string]time.Duration
}

// An Item is a manifest that is to be applied.
type Item struct {
	Level, Component string // both empty, if its file says neither
	File             string
	ID               kinds.ID
}

// A Model is what is known of an apply.
type Model struct {
	plan   Plan
	now    time.Time
	items  map[key]*item
	levels []*level
	nodes  map[string]*node

	waits    map[key]*wait
	failures []string
	deletes  []pending
	recent   []string // what happened last, the latest last
	done     int
	lastDone time.Time

	end  time.Time // when it may be over; zero if that can't be said
	told time.Time // when that was reckoned last
}

// A key is what events know a manifest by.
type key struct {
	file string
	id   kinds.ID
}

type item struct {
	node      *node
	isDone    bool // whatever came of it
	hasFailed bool
}

// A level is a row of nodes.
type level struct {
	name  string
	nodes []*node
}

// A node is a component of a level.
type node struct {
	component           string
	name                string
	total, done, failed int
	isRunning, isOver   bool
	began               time.Time
}

// A wait is something that is waited for.
type wait struct {
	apply.Event
	isRetry bool
	told    time.Time
}

// A pending delete is one that was asked for and is not done.
type pending struct {
	id    kinds.ID
	state string
}

// mostRecent is how much of what happened is kept: more than any screen shows.
const mostRecent = 100

// NewModel is a model of something that has not begun.
func NewModel(plan Plan) *Model {
	m := &Model{plan: plan, now: plan.Began, items: map[key]*item{}, nodes: map[string]*node{}, waits: map[key]*wait{}}
	byName := map[string]*level{}
	for _, one := range plan.Items {
		l := byName[one.Level]
		if l == nil {
			l = &level{name: one.Level}
			byName[one.Level] = l
			m.levels = append(m.levels, l)
		}
		name := nodeName(one)
		n := m.nodes[name]
		if n == nil {
			n = &node{component: one.Component, name: name}
			m.nodes[name] = n
			l.nodes = append(l.nodes, n)
		}
		n.total++
		m.items[key{one.File, one.ID}] = &item{node: n}
	}
	slices.SortStableFunc(m.levels, func(a, b *level) int { return byNumber(a.name, b.name) })
	return m
}

// byNumber compares levels, which are digits only. What has none comes last.
func byNumber(a, b string) int {
	if (a == "") != (b == "") {
		return cmp.Compare(len(b), len(a))
	}
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// nodeName is how events call the node of an item.
func nodeName(one Item) string {
	if one.Component == "" {
		return ""
	}
	return "level " + one.Level + ", " + one.Component
}

// Now says what time it is, by the clock of the events.
func (m *Model) Now(now time.Time) {
	if now.After(m.now) {
		m.now = now
	}
	for of, w := range m.waits {
		if m.now.Sub(w.told) > forgetAfter {
			delete(m.waits, of)
		}
	}
	m.reckon()
}

// forgetAfter is how long a wait counts that is not told of again: longer than it takes to
// ask pods why.
const forgetAfter = 8 * time.Second

// Event takes in what has happened.
func (m *Model) Event(event apply.Event) {
	if event.Time.After(m.now) {
		m.now = event.Time
	}
	if event.Type == apply.Began || event.Type == apply.Ended {
		m.turn(event)
		return
	}
	if event.Object == nil {
		return
	}
	of := key{event.File, *event.Object}
	switch event.Type {
	case apply.Applied:
		m.settle(of, false)
		delete(m.waits, of)
		m.deletion(event)
	case apply.Failing:
		m.settle(of, true)
		delete(m.waits, of)
		m.failures = append(m.failures, strings.TrimPrefix(Line(event), word(string(event.Type))))
	case apply.BeReady:
		m.settle(of, false)
		delete(m.waits, of)
	case apply.Waiting, apply.Retrying:
		m.wait(of, event)
	}
	if isRecent(event) {
		m.recent = append(m.recent, Line(event))
		m.recent = m.recent[max(0, len(m.recent)-mostRecent):]
	}
}

// isRecent says whether an event is listed as one of the latest. Waits, failures and pending deletes
// have lists of their own, where their age is that of now.
func isRecent(event apply.Event) bool {
	switch event.Action {
	case object.Unchanged, object.Absent, object.Pending:
		return false
	default:
		return event.Type != apply.Waiting && event.Type != apply.Failing
	}
}

// turn takes in that a node begins or ends.
func (m *Model) turn(event apply.Event) {
	n := m.nodes[event.Node]
	if n == nil {
		return
	}
	n.isRunning, n.isOver = event.Type == apply.Began, event.Type == apply.Ended && event.Action == ""
	if n.began.IsZero() {
		n.began = event.Time
	}
}

// settle takes in that a manifest has had its turn, and whether it has failed then or later.
func (m *Model) settle(of key, hasFailed bool) {
	one := m.items[of]
	if one == nil {
		return
	}
	if !one.isDone {
		one.isDone = true
		m.done++
		m.lastDone = m.now
		one.node.done++
	}
	if hasFailed != one.hasFailed {
		one.hasFailed = hasFailed
		one.node.failed += map[bool]int{true: 1, false: -1}[hasFailed]
	}
}

// deletion takes in what came of a delete.
func (m *Model) deletion(event apply.Event) {
	m.deletes = slices.DeleteFunc(m.deletes, func(one pending) bool { return one.id == *event.Object })
	if event.Action == object.Pending {
		m.deletes = append(m.deletes, pending{*event.Object, event.Message})
	}
}

// Delete takes in how a pending delete stands; "" if it is over.
func (m *Model) Delete(id kinds.ID, state string) {
	at := slices.IndexFunc(m.deletes, func(one pending) bool { return one.id == id })
	switch {
	case at >= 0 && state == "":
		m.deletes = slices.Delete(m.deletes, at, at+1)
		m.recent = append(m.recent, word(string(object.Deleted))+id.String())
	case at >= 0:
		m.deletes[at].state = state
	case state != "":
		m.deletes = append(m.deletes, pending{id, state})
	}
}

// wait takes in a wait. That a step is tried again says how often it was, which is told once;
// after that it is only a wait like others.
func (m *Model) wait(of key, event apply.Event) {
	w := &wait{Event: event, told: m.now}
	if one := m.items[of]; one != nil {
		w.isRetry = !one.isDone
	}
	if w.Since == nil {
		since := event.Time
		if before := m.waits[of]; before != nil {
			since = *before.Since
		}
		w.Since = &since
	}
	m.waits[of] = w
}

// Line is an event in a line, as it is told where there is no live view.
func Line(event apply.Event) string {
	what := string(event.Type)
	if event.Type == apply.Applied {
		what = string(event.Action)
	}
	text := word(what) + event.Object.String()
	if event.Message != "" {
		text += ": " + event.Message
	}
	if event.Type == apply.Failing || event.Type == apply.Warned {
		text += " (" + printable.Line(event.File) + ")"
	}
	return text
}
