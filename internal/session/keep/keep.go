// Package keep keeps a release in place: it watches the applied objects, and repairs an object that was changed,
// deleted, or has lost its label. It reads metadata only. Package apply/object decides whether an object can have
// changed, and repairs it.
//
// Unchanged objects cost only watches. A resync checks all objects from time to time, for changes that the watches have
// missed. Another writer that reverts repairs is reported, and its object is repaired after growing pauses.
//
// Start is the call to start from, and Take gives it objects as they are applied. The state of an object is in
// object.go, its hand-over in handover.go, the watches in watch.go, repairs in repair.go, other writers in
// contention.go, and the resync in resync.go.
package keep

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Options configure how a release is kept in place.
type Options struct {
	Apply object.Options // as it was applied with
	// WasComplete is set if the release was complete before the apply: an object that the apply changes has drifted
	// while no process kept it in place.
	WasComplete bool
	// Every is the time from one resync to the next; an hour if it is 0, and never if
	// it is less.
	Every time.Duration
	// OnEvent is called with each event, one after the other. It may be nil.
	OnEvent func(Event)
}

// workers is how many objects are repaired at a time.
const workers = 8

func (o Options) withDefaults() Options {
	if o.Every == 0 {
		o.Every = time.Hour
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	return o
}

// A Keeper keeps one release in place.
type Keeper struct {
	ctx      context.Context
	cluster  *cluster.Cluster
	options  Options
	repairer *object.Repairer
	queue    workqueue.TypedRateLimitingInterface[*objectState] // of objects that may have to be repaired
	emitting sync.Mutex                                         // serializes events
	running  sync.WaitGroup

	mu      sync.Mutex                     // guards the following fields, and each objectState
	steps   map[object.StepID]*objectState // all objects of the release
	objects map[kinds.ID]*objectState      // those of the kinds that are watched
	inOrder []*objectState                 // the objects that are kept
	failing map[*objectState]bool          // the objects that could not be repaired
	watches []*kindWatch
}

// Start begins to keep the objects of a release that are passed to Take in place, until ctx ends.
func Start(ctx context.Context, c *cluster.Cluster, release *payload.Payload, options Options) *Keeper {
	options = options.withDefaults()
	k := &Keeper{
		ctx: ctx, cluster: c, options: options, repairer: object.NewRepairer(ctx, c, release, options.Apply),
		steps: map[object.StepID]*objectState{}, objects: map[kinds.ID]*objectState{}, failing: map[*objectState]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[*objectState](firstPause, longestPause),
		),
	}
	for _, manifest := range release.Manifests {
		if !manifest.IsTombstone() {
			k.steps[object.StepOf(manifest)] = &objectState{manifest: manifest, id: manifest.ID()}
		}
	}
	context.AfterFunc(ctx, k.queue.ShutDown)
	for range workers {
		k.running.Go(k.work)
	}
	k.running.Go(func() { k.resyncAll(ctx) })
	return k
}

// Wait waits until ctx has ended, and nothing is repaired any more. It returns why ctx has ended.
func (k *Keeper) Wait() error {
	k.running.Wait()
	k.repairer.Close()
	return context.Cause(k.ctx)
}

// Announce reports how many objects are kept in place by now.
func (k *Keeper) Announce() {
	k.mu.Lock()
	objects, groupKinds := 0, map[schema.GroupKind]bool{}
	for _, o := range k.steps {
		if o.phase != untouched {
			objects++
			groupKinds[o.id.GroupKind()] = true
		}
	}
	k.mu.Unlock()
	k.emit(Event{
		Type:    Keeping,
		Message: fmt.Sprintf("%s of %s", printable.Count(objects, "object"), printable.Count(len(groupKinds), "kind")),
	})
}

// An EventType is the type of an Event.
type EventType string

// The events.
const (
	Keeping   EventType = "keeping"   // from now on
	Repaired  EventType = "repaired"  // an object, with Action; Lost has the lost values of other managers
	Contested EventType = "contested" // an object whose repairs others revert again and again
	Failing   EventType = "failing"   // an object that can't be repaired; it is tried again
	Recovered EventType = "recovered" // an object that was contested or failing, and matches the release again
	Unwatched EventType = "unwatched" // changes of a kind are not seen
	Watched   EventType = "watched"   // they are again
	Missed    EventType = "missed"    // an object that a resync has repaired, and no watch had shown
	Passed    EventType = "passed"    // a resync is over
)

// An Event is one thing that happened.
type Event struct {
	Time    time.Time            `json:"time"`
	Type    EventType            `json:"type"`
	Action  object.Action        `json:"action,omitempty"`
	Object  *kinds.ID            `json:"object,omitempty"`
	File    string               `json:"file,omitempty"`
	Reason  string               `json:"reason,omitempty"`
	Message string               `json:"message,omitempty"`
	Lost    []ownership.Conflict `json:"lost,omitempty"`
}

// emit calls OnEvent. Events come one after the other.
func (k *Keeper) emit(event Event) {
	if event.Time.IsZero() {
		event.Time = k.cluster.Now().UTC()
	}
	k.emitting.Lock()
	defer k.emitting.Unlock()
	k.options.OnEvent(event)
}

// Problems returns the objects that are contested or failing now, as they were reported, in order. A nil Keeper has
// none.
func (k *Keeper) Problems() []Event {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var problems []Event
	for _, o := range k.inOrder {
		if o.problem != nil {
			problems = append(problems, *o.problem)
		}
	}
	slices.SortFunc(problems, func(a, b Event) int {
		return cmp.Or(kinds.Compare(*a.Object, *b.Object), cmp.Compare(a.File, b.File))
	})
	return problems
}

// UnwatchedKinds returns how many kinds have changes that are not seen now.
func (k *Keeper) UnwatchedKinds() int {
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	unwatched := 0
	for _, w := range k.watches {
		if len(w.errs) > 0 {
			unwatched++
		}
	}
	return unwatched
}

// report reports a problem of an object, which lasts until endProblem finds that it is over.
func (k *Keeper) report(o *objectState, problem Event) {
	problem.Time = k.cluster.Now().UTC()
	k.mu.Lock()
	o.problem = &problem
	k.mu.Unlock()
	k.emit(problem)
}

// endProblem reports that the problem of an object is over, if it is: the object matches the release, and no other
// writer has changed it for a while.
func (k *Keeper) endProblem(o *objectState) {
	k.mu.Lock()
	remaining := o.contention.left(time.Now())
	isOver := o.problem != nil && !o.mayDiffer && !o.isTerminating && !k.failing[o] && remaining <= 0
	switch {
	case isOver:
		o.problem, o.contention = nil, contention{}
	case o.problem != nil && remaining > 0:
		k.queue.AddAfter(o, remaining)
	}
	k.mu.Unlock()
	if isOver {
		k.emit(Event{Type: Recovered, Object: &o.id, File: o.manifest.Path, Message: "it matches the release again"})
	}
}
