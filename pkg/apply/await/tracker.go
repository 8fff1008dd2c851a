// Package await tracks whether the objects of a release are ready: it watches the objects that the run waits
// for, and reports when each becomes ready, fails, or can't be watched.
//
// An object is not watched before the run waits for it, since each change of an object comes with its body: an
// install applies everything first. One watch serves all objects of a resource. Package ready decides when an
// object is ready.
//
// Observations of objects, and the ends of waits for them, come as events (Event). The states of an object are in
// state.go; watches are in watch.go, and those of the Services that the API server calls in services.go. Start with
// New.
package await

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/runlevel/runlevel/internal/text/reason"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Options define what ready means.
type Options struct {
	Release    string                                 // the value of the release label of objects
	Standard   func(*payload.Manifest) ready.Standard // the standard for the readiness of an object
	Installing bool
}

// An Object is the last observed state of a tracked object.
type Object struct {
	Manifest *payload.Manifest
	Resource cluster.Resource
	// the last observed state, without fields that readiness does not depend on; nil if there is none, or it was
	// missing
	Live    *unstructured.Unstructured
	Verdict ready.Verdict
	Since   time.Time // the begin of the wait for the object, by this machine's clock
	// CallsServices is true if the object is ready only while the Services are that the API server calls for it.
	CallsServices bool
}

// A Tracker tracks the objects of a release until it is closed, also those that were ready once: they may break.
type Tracker struct {
	ctx     context.Context
	stop    context.CancelFunc
	cluster *cluster.Cluster
	options Options
	signal  chan struct{} // receives an element when there are events

	mu                sync.Mutex
	objects           map[kinds.ID]*trackedObject // keyed by the names on the cluster
	known             map[kinds.ID]*trackedObject // keyed by the names in manifests
	watches           map[watchKey]*watch
	narrow            map[schema.GroupVersionResource]bool // resources that may only be watched namespace by namespace
	services          map[types.NamespacedName]*service    // called by the API server for objects of the release
	timers            []*time.Timer
	hasChanges        bool // see NoteChange
	toleratesFailures bool // see TolerateFailures
	hasAskedNodes     bool
	simulates         bool // the nodes are simulated: see settle
	events            []Event
	hasVerdict        bool // a verdict has changed since the last signal
	running           sync.WaitGroup
}

// New returns a Tracker. Its watches end with the context.
func New(ctx context.Context, c *cluster.Cluster, options Options) *Tracker {
	ctx, stop := context.WithCancel(ctx)
	return &Tracker{
		ctx: ctx, stop: stop, cluster: c, options: options, signal: make(chan struct{}, 1),
		objects: map[kinds.ID]*trackedObject{}, known: map[kinds.ID]*trackedObject{}, watches: map[watchKey]*watch{},
		narrow: map[schema.GroupVersionResource]bool{}, services: map[types.NamespacedName]*service{},
	}
}

// Close ends all watches, and waits for their goroutines.
func (t *Tracker) Close() {
	t.stop()
	t.mu.Lock()
	for _, timer := range t.timers {
		timer.Stop()
	}
	for _, o := range t.known {
		if o.settling != nil {
			o.settling.Stop()
		}
	}
	t.mu.Unlock()
	t.running.Wait()
}

// do runs a change under the lock, and signals the events and verdicts that it has caused.
func (t *Tracker) do(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
	if len(t.events) > 0 || t.hasVerdict {
		t.hasVerdict = false
		select {
		case t.signal <- struct{}{}:
		default: // the channel has an element already
		}
	}
}

// Expect begins to track an object before its apply, or before the apply is found to be unnecessary. The object
// may become ready before the API server has answered, so a watch may show it earlier. Objects whose readiness
// does not matter are ignored.
func (t *Tracker) Expect(m *payload.Manifest, resource cluster.Resource) {
	standard := t.options.Standard(m)
	if !ready.Awaits(m.Object(), standard) {
		return
	}
	t.do(func() {
		o := t.known[m.ID()]
		if o == nil {
			o = &trackedObject{Object: Object{Manifest: m, Since: time.Now()}, standard: standard}
			t.known[m.ID()] = o
		}
		o.Resource = resource
		t.objects[resource.Scoped(m.ID())] = o
	})
}

// NoteApplied notes that an object was applied. Live is the server's answer.
func (t *Tracker) NoteApplied(m *payload.Manifest, live *unstructured.Unstructured) {
	t.do(func() {
		o := t.known[m.ID()]
		if o == nil {
			return
		}
		o.state, o.isDone, o.isSettled = applied, false, true
		t.observeFirst(o, trimmedCopy(live))
		if o.watch != nil || isAlwaysWatched(o) {
			t.watchObject(o, isUnlabelled(live, t.options.Release))
		}
	})
}

// Assume notes that an object needs no apply. If it was ready before, and was not written since, it is taken for
// ready; otherwise its watch shows its state.
func (t *Tracker) Assume(m *payload.Manifest, wasReady bool) {
	t.do(func() {
		o := t.known[m.ID()]
		if o == nil {
			return
		}
		o.isDone, o.isSettled = false, true
		if wasReady {
			before := o.Verdict
			o.state, o.Verdict = trusted, ready.Verdict{State: ready.Ready}
			o.countVerdict(t, before)
			return
		}
		o.assume()
		t.judge(o)
		if isAlwaysWatched(o) {
			t.startWatching(o)
		}
	})
}

// NoteChange notes that the run has changed an object: objects that were taken for ready are watched again.
func (t *Tracker) NoteChange() { t.do(func() { t.hasChanges = true }) }

// TolerateFailures makes objects that have failed count as not ready yet.
func (t *Tracker) TolerateFailures() { t.do(func() { t.toleratesFailures = true }) }

// Ready returns the objects that are ready and were seen.
func (t *Tracker) Ready() []Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Object
	for _, o := range t.objects {
		if o.state != expected && o.Verdict.State == ready.Ready && o.Live != nil {
			all = append(all, o.Object)
		}
	}
	return all
}

// Waiting returns the watched objects that are not ready, in the order of the payload. If an object can't be
// watched, its verdict has the reason.
func (t *Tracker) Waiting() []Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	var waiting []Object
	for _, o := range t.objects {
		if o.state != expected && o.watch != nil && o.Verdict.State != ready.Ready {
			waiting = append(waiting, o.forReport(t))
		}
	}
	slices.SortFunc(waiting, func(a, b Object) int { return payload.InOrder(a.Manifest, b.Manifest) })
	return waiting
}

// forReport returns an object for a report. If it can't be watched, the reason for that replaces its message.
func (o *trackedObject) forReport(t *Tracker) Object {
	reported := o.Object
	if unwatched := o.whyUnwatched(t); unwatched != "" && o.Verdict.State == ready.Waiting {
		reported.Verdict.Message = unwatched
	}
	return reported
}

// isUnlabelled reports whether an object lacks the label of the release.
func isUnlabelled(object *unstructured.Unstructured, release string) bool {
	return object.GetLabels()[objectmeta.ReleaseLabel] != release
}

// An EventType is the type of an event.
type EventType int

// The events.
const (
	Extended  EventType = iota // a definition or an APIService is ready; it comes before the ends of the waits for it
	Ready                      // an object has become ready
	Finished                   // a Job has succeeded
	Invisible                  // an object can't be watched; the verdict has the reason
	Missing                    // an object was deleted after it was applied
	Ended                      // a GroupWait has ended
)

// An Event is an observation of a Tracker. Object is empty if a wait has ended.
type Event struct {
	Type   EventType
	Object Object
	Waited time.Duration // duration until the object was ready
	Wait   *GroupWait
	Failed []Object // failed objects of a GroupWait that has ended; none if all are ready
}

// Signal returns a channel that receives an element when there are events, or when another verdict has changed.
func (t *Tracker) Signal() <-chan struct{} { return t.signal }

// Events returns the events since the last call, in their order.
func (t *Tracker) Events() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := t.events
	t.events = nil
	return events
}

// emit adds an event about an object.
func (o *trackedObject) emit(t *Tracker, what EventType) {
	t.events = append(t.events, Event{Type: what, Object: o.Object})
}

// A GroupWait is a wait for some objects: until all are ready at the same time, or one has failed.
type GroupWait struct {
	objects         []*trackedObject
	waiting, failed int
	isAtEnd         bool // see Await
	isOver          bool
}

// Await begins to wait for objects. The event Ended may come at once, and does not come after Cancel. By the standard
// of the cluster-version operator, an install continues past a degraded ClusterOperator, but is not complete before the
// operator has recovered: isAtEnd is true for the wait at the end of the apply.
func (t *Tracker) Await(ids []kinds.ID, isAtEnd bool) *GroupWait {
	w := &GroupWait{isAtEnd: isAtEnd}
	t.do(func() {
		for _, id := range ids {
			if o := t.known[id]; o != nil && o.state != expected {
				t.startWatching(o)
				w.objects = append(w.objects, o)
				o.waits = append(o.waits, w)
				w.count(w.counts(t, o, o.Verdict), 1)
			}
		}
		w.check(t)
	})
	return w
}

// startWatching watches an object with the first wait for it. A trusted object is taken for ready until the run changes
// an object, which may break any other except for Namespaces and definitions: all objects in them wait for those, and
// to watch them again would make thousands wait.
func (t *Tracker) startWatching(o *trackedObject) {
	switch {
	case o.watch != nil || o.state == trusted && (!t.hasChanges || kinds.IsContainer(o.Resource.GroupKind())):
	case o.state == applied || o.state == unconfirmed:
		if o.Verdict.State != ready.Ready {
			o.state, o.Since = unconfirmed, time.Now() // the wait begins now
		}
		t.watchObject(o, o.Live != nil && isUnlabelled(o.Live, t.options.Release))
	default:
		if o.assume(); o.state == seen {
			t.observeFirst(o, o.Live)
		} else {
			t.judge(o)
		}
		t.watchObject(o, false)
	}
}

// Cancel ends a wait.
func (t *Tracker) Cancel(w *GroupWait) { t.do(w.drop) }

func (w *GroupWait) count(state ready.State, by int) {
	switch state {
	case ready.Waiting:
		w.waiting += by
	case ready.Failed:
		w.failed += by
	}
}

// check ends a wait if its objects are ready, or one has failed.
func (w *GroupWait) check(t *Tracker) {
	if w.isOver || w.failed == 0 && w.waiting > 0 {
		return
	}
	ended := Event{Type: Ended, Wait: w}
	for _, o := range w.objects {
		if w.failed > 0 && o.Verdict.State == ready.Failed {
			ended.Failed = append(ended.Failed, o.Object)
		}
	}
	t.events = append(t.events, ended)
	w.drop()
}

// drop ends a wait without an event.
func (w *GroupWait) drop() {
	w.isOver = true
	for _, o := range w.objects {
		o.waits = slices.DeleteFunc(o.waits, func(other *GroupWait) bool { return other == w })
	}
}

// counts returns the state of an object as a wait counts it.
func (w *GroupWait) counts(t *Tracker, o *trackedObject, verdict ready.Verdict) ready.State {
	if t.toleratesFailures && verdict.State == ready.Failed {
		return ready.Waiting
	}
	if o.standard == ready.Upstream && verdict.Effect == reason.Report && !w.isAtEnd {
		return ready.Ready
	}
	return verdict.State
}
