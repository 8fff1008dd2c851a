// Package keep watches what was applied, and makes it again what the release says: an object
// that was changed, deleted, or has lost its label. It reads metadata only. Whether an object
// can have changed, and how it is repaired, package apply says.
//
// What does not change costs nothing but watches. What they may have missed, a slow pass over
// all objects finds. A writer that never gives in is named, and given longer and longer pauses.
//
// Start is the call to start from, and Take gives it objects as they are applied. What is known of an
// object is in object.go, how it is taken over in take.go, the watches in watch.go, mending in mend.go,
// quarrels with other writers in quarrel.go, and the slow pass in pass.go.
package keep

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
)

// Options say how to keep a release in place.
type Options struct {
	Apply object.Options // as it was applied with
	// Every is how long it is from one slow pass to the next; an hour if it is 0, and never if
	// it is less.
	Every time.Duration
	// Workers are how many objects are repaired at a time; 8 if it is 0.
	Workers int
	// Tell is told of each thing that happens, one after the other. Nil tells nobody.
	Tell func(Event)
}

func (o Options) withDefaults() Options {
	if o.Every == 0 {
		o.Every = time.Hour
	}
	if o.Workers == 0 {
		o.Workers = 8
	}
	if o.Tell == nil {
		o.Tell = func(Event) {}
	}
	return o
}

// A Keeper keeps one release in place.
type Keeper struct {
	ctx      context.Context
	cluster  *cluster.Cluster
	options  Options
	repairer *object.Repairer
	queue    workqueue.TypedRateLimitingInterface[*kept] // of objects that may need mending
	told     sync.Mutex                                  // so that one thing is told after the other
	running  sync.WaitGroup                              // of all that it does

	mu       sync.Mutex                  // guards what follows, and what is known of objects
	payload  map[*payload.Manifest]*kept // all objects of the release
	objects  map[kinds.ID]*kept          // those of the kinds that are watched
	inOrder  []*kept                     // that are kept
	troubled map[*kept]bool              // that could not be repaired
	views    []*view
}

// Start begins to keep objects of a release in place, those that Take is given, until ctx ends.
func Start(ctx context.Context, c *cluster.Cluster, release *payload.Payload, options Options) *Keeper {
	options = options.withDefaults()
	k := &Keeper{
		ctx: ctx, cluster: c, options: options, repairer: object.NewRepairer(ctx, c, release, options.Apply),
		payload: map[*payload.Manifest]*kept{}, objects: map[kinds.ID]*kept{}, troubled: map[*kept]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[*kept](firstPause, longestPause)),
	}
	for _, manifest := range release.Manifests {
		if !manifest.IsTombstone() {
			k.payload[manifest] = &kept{manifest: manifest, id: manifest.ID()}
		}
	}
	context.AfterFunc(ctx, k.queue.ShutDown)
	for range options.Workers {
		k.running.Go(k.work)
	}
	k.running.Go(func() { k.pass(ctx) })
	return k
}

// Wait waits until ctx has ended, and nothing is repaired any more. It says why ctx has ended.
func (k *Keeper) Wait() error {
	k.running.Wait()
	k.repairer.Close()
	return context.Cause(k.ctx)
}

// Announce tells how many objects are kept in place by now.
func (k *Keeper) Announce() {
	k.mu.Lock()
	objects, of := 0, map[schema.GroupKind]bool{}
	for _, o := range k.payload {
		if o.applied != nil {
			objects++
			of[o.id.GroupKind()] = true
		}
	}
	k.mu.Unlock()
	k.tell(Event{Type: Keeping, Message: fmt.Sprintf("%s of %s", printable.Count(objects, "object"), printable.Count(len(of), "kind"))})
}
