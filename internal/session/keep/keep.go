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
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"

	"github.com/runlevel/runlevel/internal/cluster"
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
