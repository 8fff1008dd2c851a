// Package keep watches what was applied, and makes it again what the release says: an object
// that was changed, deleted, or has lost its label. It reads metadata only. Whether an object
// can have changed, and how it is mended, package apply says.
//
// What does not change costs nothing but watches. What they may have missed, a slow pass over
// all objects finds. A writer that never gives in is named, and given longer and longer pauses.
//
// Run is the call to start from. What is known of an object is in object.go, the watches in
// watch.go, mending in mend.go, quarrels with other writers in quarrel.go, and the slow pass
// in pass.go.
package keep

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
)

// Options say how to keep a release in place.
type Options struct {
	Apply apply.Options // as it was applied with
	// Every is how long it is from one slow pass to the next; an hour if it is 0, and never if
	// it is less.
	Every time.Duration
	// Workers are how many objects are mended at a time; 8 if it is 0.
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

// A keeper keeps one release in place.
type keeper struct {
	ctx     context.Context
	cluster *cluster.Cluster
	options Options
	mender  *apply.Mender
	queue   workqueue.TypedRateLimitingInterface[*object] // of objects that may need mending
	told    sync.Mutex                                    // so that one thing is told after the other

	mu       sync.Mutex // guards what follows, and what is known of objects
	objects  map[kinds.ID]*object
	inOrder  []*object        // of the payload
	troubled map[*object]bool // that could not be mended
	views    []*view
}

// Run keeps a release in place that was just applied, until ctx ends, and says why that is.
func Run(ctx context.Context, c *cluster.Cluster, release *payload.Payload, applied *apply.Report, options Options) error {
	mender, err := apply.NewMender(ctx, c, release, applied, options.Apply)
	if err != nil {
		return err
	}
	defer mender.Close()
	options = options.withDefaults()
	var group sync.WaitGroup
	k := &keeper{
		ctx: ctx, cluster: c, options: options, mender: mender, objects: map[kinds.ID]*object{}, troubled: map[*object]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[*object](firstPause, longestPause)),
	}
	defer k.queue.ShutDown()
	for _, manifest := range release.Manifests {
		if err := k.take(manifest); err != nil {
			return err
		}
	}
	k.tell(Event{Type: Keeping, Message: fmt.Sprintf("%s of %s", printable.Count(len(k.objects), "object"), printable.Count(len(k.views), "kind"))})
	for _, view := range k.views {
		group.Go(func() { view.watch(ctx) })
	}
	for range options.Workers {
		group.Go(k.work)
	}
	group.Go(func() { k.pass(ctx) })
	<-ctx.Done()
	k.queue.ShutDown()
	group.Wait()
	return context.Cause(ctx)
}

// placedWithin is how long a server may take to say where objects of a kind are, which it knew a
// moment ago.
const placedWithin = 30 * time.Second

// place says where the object of a manifest is.
func (k *keeper) place(manifest *payload.Manifest) (in cluster.Resource, err error) {
	isPlaced := func(context.Context) (bool, error) {
		in, err = k.mender.Place(manifest)
		return err == nil, nil
	}
	if timeout := wait.PollUntilContextTimeout(k.ctx, time.Second, placedWithin, true, isPlaced); timeout != nil && err == nil {
		err = timeout
	}
	return in, err
}

// take takes in an object that is to be kept.
func (k *keeper) take(manifest *payload.Manifest) error {
	if manifest.IsTombstone() {
		return nil
	}
	resource, err := k.place(manifest)
	if err != nil {
		return err
	}
	o := &object{manifest: manifest, resource: resource, id: manifest.ID()}
	if !resource.Namespaced {
		o.id.Namespace = "" // whatever the manifest says
	}
	k.objects[o.id] = o
	k.inOrder = append(k.inOrder, o)
	i := slices.IndexFunc(k.views, func(v *view) bool { return v.resource.GroupKind() == resource.GroupKind() })
	if i < 0 {
		i = len(k.views)
		k.views = append(k.views, &view{keeper: k, resource: resource})
	}
	o.view = k.views[i]
	return nil
}
