// Package keep keeps a release in place: it watches the applied objects, and repairs an object that was changed,
// deleted, or has lost its label. It reads metadata only. Package apply/object decides whether an object can have
// changed, and repairs it.
//
// Unchanged objects cost only watches. A resync checks all objects from time to time, for changes that the watches have
// missed. Another writer that reverts repairs is reported, and its object is repaired after growing pauses.
//
// Take receives objects as they are applied. The state of an object is in object.go, its hand-over in handover.go, the
// watches in watch.go, repairs in repair.go, other writers in contention.go, and the resync in resync.go. Start with
// Start.
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
	Apply object.Options // options of the apply of the release
	// WasComplete is set if the release was complete before the apply: an object that the apply changes has drifted
	// while no process kept it in place.
	WasComplete bool
	Every       time.Duration // interval between resyncs; 0 means an hour, and a negative value no resync
	// OnEvent is called with each event, one after the other. It may be nil.
	OnEvent func(Event)
}

// workers limits how many objects are repaired at a time.
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
	queue    workqueue.TypedRateLimitingInterface[*objectState] // the queue of guarded
	emitting sync.Mutex                                         // serializes events
	running  sync.WaitGroup
	guarded  lockedObjects // only for lock
}

// Start begins to keep the objects of a release that are passed to Take in place, until ctx ends.
func Start(ctx context.Context, c *cluster.Cluster, release *payload.Payload, options Options) *Keeper {
	options = options.withDefaults()
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[*objectState](firstPause, longestPause),
	)
	steps := map[object.StepID]*objectState{}
	for _, manifest := range release.Manifests {
		if !manifest.IsTombstone() {
			steps[object.StepOf(manifest)] = &objectState{manifest: manifest, id: manifest.ID()}
		}
	}
	k := &Keeper{
		ctx: ctx, cluster: c, options: options, repairer: object.NewRepairer(ctx, c, release, options.Apply),
		queue: queue,
		guarded: lockedObjects{
			queue: queue, steps: steps, byID: map[kinds.ID]*objectState{}, failing: map[*objectState]bool{},
		},
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
	objects := k.lock()
	count, groupKinds := 0, map[schema.GroupKind]bool{}
	for _, o := range objects.steps {
		if o.phase != untouched {
			count++
			groupKinds[o.id.GroupKind()] = true
		}
	}
	objects.unlock()
	k.emit(Event{
		Type:    Keeping,
		Message: fmt.Sprintf("%s of %s", printable.Count(count, "object"), printable.Count(len(groupKinds), "kind")),
	})
}

// An EventType is the type of an Event.
type EventType string

// The events.
const (
	Keeping   EventType = "keeping"   // the release is kept in place from now on
	Repaired  EventType = "repaired"  // Action repaired an object; Lost has the lost values of other managers
	Contested EventType = "contested" // others revert the repairs of an object again and again
	Failing   EventType = "failing"   // the repair of an object fails, and is retried
	Recovered EventType = "recovered" // a contested or failing object matches the release again
	Unwatched EventType = "unwatched" // changes of a kind are not seen
	Watched   EventType = "watched"   // changes of the kind are seen again
	Missed    EventType = "missed"    // a resync has repaired an object whose difference no watch had shown
	Passed    EventType = "passed"    // a resync has ended
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

// Problems returns the last reports on objects that are contested or failing now, in order. A nil Keeper has none.
func (k *Keeper) Problems() []Event {
	if k == nil {
		return nil
	}
	objects := k.lock()
	defer objects.unlock()
	var problems []Event
	for _, o := range objects.kept {
		if o.problem != nil {
			problems = append(problems, *o.problem)
		}
	}
	slices.SortFunc(problems, func(a, b Event) int {
		return cmp.Or(kinds.Compare(*a.Object, *b.Object), cmp.Compare(a.File, b.File))
	})
	return problems
}

// UnwatchedKinds returns the number of kinds whose changes are not seen now.
func (k *Keeper) UnwatchedKinds() int {
	if k == nil {
		return 0
	}
	objects := k.lock()
	defer objects.unlock()
	unwatched := 0
	for _, w := range objects.watches {
		if len(w.errs) > 0 {
			unwatched++
		}
	}
	return unwatched
}

// report reports a problem of an object. The problem lasts until endProblem ends it.
func (k *Keeper) report(o *objectState, problem Event) {
	problem.Time = k.cluster.Now().UTC()
	objects := k.lock()
	o.problem = &problem
	objects.unlock()
	k.emit(problem)
}

// endProblem ends the problem of an object, and reports the end, if the object matches the release and no other writer
// has changed the object for a while.
func (k *Keeper) endProblem(o *objectState) {
	objects := k.lock()
	remaining := o.contention.remaining(time.Now())
	isOver := o.problem != nil && !o.live.mayDiffer && !o.live.isTerminating && !objects.failing[o] && remaining <= 0
	switch {
	case isOver:
		o.problem, o.contention = nil, contention{}
	case o.problem != nil && remaining > 0:
		k.queue.AddAfter(o, remaining)
	}
	objects.unlock()
	if isOver {
		k.emit(Event{Type: Recovered, Object: &o.id, File: o.manifest.Path, Message: "it matches the release again"})
	}
}
