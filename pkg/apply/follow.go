package apply

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/ready"
	"github.com/runlevel/runlevel/pkg/reason"
	"github.com/runlevel/runlevel/pkg/vigil"
)

// A follower knows how the objects of a run stand, by watching them as soon as somebody waits
// for them, until the run's end: what was ready once may break. There is one watch for all
// objects of a resource, which starts with the first of them. Nothing is watched before, since
// each change of an object comes with its body: an install applies everything first.
type follower struct {
	ctx     context.Context
	stop    context.CancelFunc
	cluster *cluster.Cluster
	options Options
	told    audience
	isBlind bool // nothing is awaited, and nothing watched

	mu       sync.Mutex
	objects  map[kinds.ID]*watched // by what they are on the cluster
	known    map[*payload.Manifest]*watched
	streams  map[streamKey]*stream
	narrow   map[schema.GroupVersionResource]bool // those that may only be watched namespace by namespace
	services map[types.NamespacedName]*service
	timers   []*time.Timer
	isAwake  bool     // something has changed
	isLate   bool     // what has failed is waited for, too
	news     []func() // to be called as soon as nothing is locked
	running  sync.WaitGroup
}

// An audience is told what a follower sees.
type audience struct {
	// extends is told before anybody goes on that something which extends the API server
	// is ready. It must not ask the follower anything.
	extends  func(object *unstructured.Unstructured)
	ready    func(m *payload.Manifest, waited time.Duration)
	finished func(job *payload.Manifest, uid types.UID)
	unseen   func(w watched) // that nobody can see how it stands
}

// A watched object is one whose readiness matters.
type watched struct {
	manifest  *payload.Manifest
	resource  cluster.Resource
	applied   bool                       // else it is only about to be
	object    *unstructured.Unstructured // as it was last seen, as far as somebody needs it; nil when it was not
	isHollow  bool                       // its body is forgotten, and the verdict stays as it is until it is seen again
	version   string                     // of the resource, when it was last seen, or was missing
	verdict   ready.Verdict
	since     time.Time // when it was first not ready, by this machine's clock
	isAssumed bool      // it needed not be applied
	isQuiet   bool      // it was ready before, and matters no more as long as nothing changes
	isUnseen  bool      // it needed not be applied, and its watch has not shown it yet
	isLate    bool      // nobody waited when it was applied, and its watch has not shown it yet
	isDone    bool      // a Job that has succeeded: that it is removed then changes nothing
	stale     string    // the failure that it had before it was applied
	calls     []types.NamespacedName
	stream    *stream
	groups    []*group // who wait for it
}

func newFollower(ctx context.Context, c *cluster.Cluster, options Options, told audience) *follower {
	ctx, stop := context.WithCancel(ctx)
	return &follower{
		ctx: ctx, stop: stop, cluster: c, options: options, told: told,
		objects: map[kinds.ID]*watched{}, known: map[*payload.Manifest]*watched{}, streams: map[streamKey]*stream{},
		narrow: map[schema.GroupVersionResource]bool{}, services: map[types.NamespacedName]*service{},
	}
}

// close ends all watches, and those that begin because another one has just told something.
func (f *follower) close() {
	f.stop()
	f.mu.Lock()
	for _, timer := range f.timers {
		timer.Stop()
	}
	f.mu.Unlock()
	f.running.Wait()
}

// do changes something, and then tells of it.
func (f *follower) do(change func()) {
	f.mu.Lock()
	change()
	news := f.news
	f.news = nil
	f.mu.Unlock()
	for _, tell := range news {
		tell()
	}
}

// expect takes in an object that is about to be applied. It may be ready before the
// answer is here: whatever is seen of it until then counts.
func (f *follower) expect(m *payload.Manifest, resource cluster.Resource) {
	if f.isBlind || !ready.Awaits(m.Object(), f.options.Standard) {
		return
	}
	f.do(func() {
		w := f.known[m]
		if w == nil {
			w = &watched{manifest: m, since: time.Now()}
			f.known[m] = w
		}
		id := m.ID()
		if !resource.Namespaced {
			id.Namespace = "" // whatever the manifest says
		}
		w.resource = resource
		f.objects[id] = w
	})
}

// add takes in an object that was just applied, and expected before.
func (f *follower) add(m *payload.Manifest, object *unstructured.Unstructured) {
	f.do(func() {
		w := f.known[m]
		if w == nil {
			return
		}
		w.applied, w.isDone, w.isAssumed, w.isQuiet = true, false, false, false
		f.meet(w, lean(object))
		if w.stream != nil || mattersAlways(w) {
			f.stream(w, f.isForeign(object))
		}
	})
}

// meet takes in an object that is seen for the first time since it was applied.
func (f *follower) meet(w *watched, object *unstructured.Unstructured) {
	w.isUnseen, w.calls, w.stale = false, nil, stalled(object)
	if f.options.Standard == ready.Full {
		w.calls = kinds.CalledServices(object)
	}
	for _, called := range w.calls {
		f.callOf(called)
	}
	f.see(w, object)
	if w.stale != "" {
		f.forgive(w, object)
	}
}

// find is the object of a manifest, if its readiness matters.
func (f *follower) find(m *payload.Manifest) *watched {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.known[m]; w != nil && w.applied {
		return w
	}
	return nil
}

// see takes in an object as it is now. What is older than what is known already is left
// aside: watches may begin with the past, and there may be two.
func (f *follower) see(w *watched, object *unstructured.Unstructured) {
	if w.isUnseen {
		w.since = time.Now() // nobody has waited for it until now
		f.meet(w, object)
		return
	}
	if w.isLate {
		w.isLate, w.since = false, time.Now()
	}
	if !vigil.IsOlder(object.GetResourceVersion(), w.version) {
		w.object, w.version, w.isHollow = object, object.GetResourceVersion(), false
	}
	f.judge(w)
	f.forget(w)
}

// miss takes in that an object is not there.
func (f *follower) miss(w *watched, version string) {
	if (w.object != nil || w.isUnseen) && !vigil.IsOlder(version, w.version) {
		w.object, w.version, w.isUnseen, w.isHollow = nil, version, false, false
		f.judge(w)
	}
}

// judge asks whether an object is ready, and tells those who wait.
func (f *follower) judge(w *watched) {
	if !w.applied || w.isHollow {
		return
	}
	before := w.verdict
	w.verdict = f.verdict(w)
	switch {
	case before.State == w.verdict.State:
	case w.verdict.State == ready.Ready:
		f.becameReady(w)
	case before.State == ready.Ready:
		w.since = time.Now()
	}
	was, is := f.counts(before), f.counts(w.verdict)
	if was == is {
		return
	}
	for _, g := range w.groups {
		g.count(was, -1)
		g.count(is, 1)
		f.news = append(f.news, g.tell)
	}
}

// verdict is what there is to say of an object.
func (f *follower) verdict(w *watched) ready.Verdict {
	if w.isDone {
		return ready.Verdict{State: ready.Ready}
	}
	if w.isUnseen {
		return ready.Verdict{State: ready.Waiting, Message: "nothing is known yet of how it stands"}
	}
	if w.object == nil {
		return ready.Verdict{State: ready.Waiting, Message: "somebody has deleted it after it was applied"}
	}
	verdict := ready.Check(w.object, f.options.Standard, ready.Around{
		Manifest: w.manifest.Object(), Serving: f.serving(w.calls), Installing: f.options.Mode == graph.Install,
	})
	_, isMarked := w.object.GetAnnotations()[ready.Annotation]
	if ready.HasSucceeded(w.object) && (verdict.State == ready.Ready || !isMarked) {
		w.isDone = true
		job, uid := w.manifest, w.object.GetUID()
		f.news = append(f.news, func() { f.told.finished(job, uid) })
		return ready.Verdict{State: ready.Ready}
	}
	if verdict.State == ready.Failed && w.stale != "" && stalled(w.object) == w.stale {
		verdict.State = ready.Waiting
	}
	return verdict
}

// becameReady tells of an object that is ready.
func (f *follower) becameReady(w *watched) {
	m, waited := w.manifest, time.Since(w.since)
	f.news = append(f.news, func() { f.told.ready(m, waited) })
	if w.object == nil {
		return // a Job that is done
	}
	if kind := w.resource.GroupKind(); kind == kinds.CustomResourceDefinition || kind == kinds.APIService {
		f.told.extends(w.object)
	}
}

// counts is what a verdict is to those who wait. The cluster-version operator only reports
// a degraded operator while it installs, and goes on: by its standard, so do we.
func (f *follower) counts(verdict ready.Verdict) ready.State {
	if f.isLate && verdict.State == ready.Failed {
		return ready.Waiting
	}
	if f.options.Standard == ready.Upstream && verdict.Effect == reason.Report {
		return ready.Ready
	}
	return verdict.State
}

// A group is somebody who waits for some objects.
type group struct {
	waiting, failed int
	changed         chan struct{}
}

func (g *group) count(state ready.State, by int) {
	switch state {
	case ready.Waiting:
		g.waiting += by
	case ready.Failed:
		g.failed += by
	}
}

// tell wakes who waits.
func (g *group) tell() {
	select {
	case g.changed <- struct{}{}:
	default: // it has been told already
	}
}

// await waits until all of some objects are ready at the same time. It gives up when some
// of them never will be, and returns those.
func (f *follower) await(ctx context.Context, objects []*watched) ([]watched, error) {
	g := &group{changed: make(chan struct{}, 1)}
	f.do(func() {
		for _, w := range objects {
			f.begin(w)
			w.groups = append(w.groups, g)
			g.count(f.counts(w.verdict), 1)
		}
	})
	defer f.do(func() {
		for _, w := range objects {
			w.groups = slices.DeleteFunc(w.groups, func(other *group) bool { return other == g })
		}
	})
	for {
		if failed, done := f.settled(g, objects); done {
			return failed, nil
		}
		passTurn(ctx)
		select {
		case <-g.changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// settled says whether there is nothing to wait for any more, and what has failed.
func (f *follower) settled(g *group, objects []*watched) (failed []watched, done bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g.failed == 0 {
		return nil, g.waiting == 0
	}
	for _, w := range objects {
		if w.verdict.State == ready.Failed {
			failed = append(failed, *w)
		}
	}
	return failed, true
}

// ready are the objects that are, as they were last seen.
func (f *follower) ready() []watched {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []watched
	for _, w := range f.objects {
		if w.applied && w.verdict.State == ready.Ready && w.object != nil {
			all = append(all, *w)
		}
	}
	return all
}

// waiting are the objects that somebody waits for, in the order of the payload.
func (f *follower) waiting() []watched {
	f.mu.Lock()
	defer f.mu.Unlock()
	var waiting []watched
	for _, w := range f.objects {
		if w.applied && w.stream != nil && w.verdict.State != ready.Ready {
			waiting = append(waiting, f.shown(w))
		}
	}
	slices.SortFunc(waiting, func(a, b watched) int { return payload.InOrder(a.manifest, b.manifest) })
	return waiting
}

// isWaiting says whether the object of a manifest is not ready.
func (f *follower) isWaiting(m *payload.Manifest) bool {
	w := f.find(m)
	if w == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return w.verdict.State != ready.Ready
}

// shown is an object as it is told of: what can't be seen is said instead of what was.
func (f *follower) shown(w *watched) watched {
	shown := *w
	if blind := f.blindness(w); blind != "" && w.verdict.State == ready.Waiting {
		shown.verdict.Message = blind
	}
	return shown
}
