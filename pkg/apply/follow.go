package apply

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/ready"
	"github.com/runlevel/runlevel/pkg/reason"
)

// A follower knows how the objects of a run stand, by watching those that are not ready.
// There is one watch for all objects of a resource, which starts with the first of them.
type follower struct {
	ctx         context.Context
	cluster     *cluster.Cluster
	options     Options
	becameReady func(w *watched, waited time.Duration)

	mu       sync.Mutex
	objects  map[kinds.ID]*watched
	streams  map[streamKey]context.CancelFunc
	narrow   map[string]bool // resources that may only be watched namespace by namespace
	services map[types.NamespacedName]*service
	groups   map[chan struct{}]bool // of those who wait
	running  sync.WaitGroup
}

// A watched object is one whose readiness matters.
type watched struct {
	manifest *payload.Manifest
	resource cluster.Resource
	object   *unstructured.Unstructured // as it was last seen; nil when it was not
	verdict  ready.Verdict
	since    time.Time // when it was first not ready, by this machine's clock
	calls    []types.NamespacedName
}

func newFollower(ctx context.Context, c *cluster.Cluster, options Options, becameReady func(*watched, time.Duration)) *follower {
	return &follower{
		ctx: ctx, cluster: c, options: options, becameReady: becameReady,
		objects: map[kinds.ID]*watched{}, streams: map[streamKey]context.CancelFunc{}, narrow: map[string]bool{},
		services: map[types.NamespacedName]*service{}, groups: map[chan struct{}]bool{},
	}
}

// close ends all watches.
func (f *follower) close() {
	f.mu.Lock()
	for _, stop := range f.streams {
		stop()
	}
	f.mu.Unlock()
	f.running.Wait()
}

// add takes in an object that was just applied.
func (f *follower) add(m *payload.Manifest, resource cluster.Resource, object *unstructured.Unstructured) {
	if !ready.Awaits(m.Object(), f.options.Standard) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.objects[m.ID()]
	if w == nil {
		w = &watched{manifest: m, since: time.Now()}
		f.objects[m.ID()] = w
	}
	w.resource, w.calls = resource, nil
	if f.options.Standard == ready.Full {
		w.calls = kinds.CalledServices(object)
	}
	for _, called := range w.calls {
		f.callOf(called)
	}
	f.see(w, object)
	if w.verdict.State != ready.Ready {
		f.stream(w)
	}
}

// find is the object of a manifest, if its readiness matters.
func (f *follower) find(m *payload.Manifest) *watched {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects[m.ID()]
}

// see judges an object by what it is now. What is older than what is known already is
// left aside: a watch may begin with the past.
func (f *follower) see(w *watched, object *unstructured.Unstructured) {
	if object != nil && w.object != nil && object.GetUID() == w.object.GetUID() {
		if order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), w.object.GetResourceVersion()); err == nil && order < 0 {
			return
		}
	}
	w.object = object
	f.judge(w)
}

// judge asks whether an object is ready, and tells those who wait.
func (f *follower) judge(w *watched) {
	before := w.verdict
	around := ready.Around{Manifest: w.manifest.Object(), Serving: f.serving(w.calls), Installing: f.options.Mode == "install"}
	w.verdict = ready.Check(w.object, f.options.Standard, around)
	if before == w.verdict {
		return
	}
	switch {
	case w.verdict.State == ready.Ready:
		f.becameReady(w, time.Since(w.since))
	case before.State == ready.Ready:
		w.since = time.Now()
	}
	for group := range f.groups {
		select {
		case group <- struct{}{}:
		default: // it has been told already
		}
	}
}

// await waits until all of some objects are ready at the same time. It gives up when one
// of them never will be.
func (f *follower) await(ctx context.Context, objects []*watched) error {
	changed := make(chan struct{}, 1)
	f.mu.Lock()
	f.groups[changed] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.groups, changed)
	}()
	for {
		if done, err := f.settled(objects); done {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settled says whether there is nothing to wait for any more.
func (f *follower) settled(objects []*watched) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := true
	for _, w := range objects {
		switch w.verdict.State {
		case ready.Failed:
			return true, w.failure()
		case ready.Waiting:
			all = false
		}
	}
	return all, nil
}

// failure is why an object will never be ready.
func (w *watched) failure() error {
	why := w.verdict.Reason
	if why == "" {
		why = reasonWorkloadFailed
	}
	return &reason.Error{Reason: why, Effect: w.verdict.Effect, Message: fmt.Sprintf("%s: %s", w.manifest.ID(), w.verdict.Message)}
}

// waiting are the objects that are not ready, in the order of the payload.
func (f *follower) waiting() []watched {
	f.mu.Lock()
	defer f.mu.Unlock()
	var waiting []watched
	for _, w := range f.objects {
		if w.verdict.State != ready.Ready {
			waiting = append(waiting, *w)
		}
	}
	slices.SortFunc(waiting, func(a, b watched) int { return payload.InOrder(a.manifest, b.manifest) })
	return waiting
}
