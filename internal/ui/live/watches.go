package live

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/resourcewatch"
	"github.com/runlevel/runlevel/internal/cluster/waiter"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record/lock"
)

// watches are the watches of a subject, as long as it has subscribers.
type watches struct {
	subject *subject
	ctx     context.Context
	end     context.CancelFunc
	changed chan struct{} // has a value after a change

	mu         sync.Mutex
	running    map[source]*sourceWatch
	locks      map[string]lockState // by namespace and name of the Lease
	partial    bool                 // something could not be read
	blindSince time.Time            // the last time when all changes were seen
}

// A sourceWatch is a running watch.
type sourceWatch struct {
	stop     context.CancelFunc
	isSynced bool
	isBroken bool // changes are not seen
}

func startWatches(ctx context.Context, s *subject) *watches {
	w := &watches{
		subject:    s,
		changed:    make(chan struct{}, 1),
		running:    map[source]*sourceWatch{},
		locks:      map[string]lockState{},
		blindSince: time.Now(),
	}
	w.ctx, w.end = context.WithCancel(ctx)
	return w
}

// The longest pauses before a failed watch restarts. Until then, the topic is polled.
const (
	longestWatchPause = 30 * time.Second
	forbiddenPause    = 5 * time.Minute // without the right to watch
)

// polling is the pause between two reads while changes are not seen. It grows: a missing right is seldom granted.
var polling = waiter.Pause{Shortest: 2 * time.Second, Longest: 30 * time.Second, PerLook: 10, PerWait: 0.25}

// await waits until the topic may have changed. It returns false when the watches end.
func (w *watches) await() bool {
	w.subject.mu.Lock()
	took := w.subject.took
	w.subject.mu.Unlock()
	w.mu.Lock()
	if !w.isBlind() {
		w.blindSince = time.Now()
	}
	poll := time.Now().Add(polling.After(time.Since(w.blindSince), took))
	w.mu.Unlock()
	for {
		left := w.untilRead(poll)
		if left <= 0 {
			return true
		}
		select {
		case <-w.ctx.Done():
			return false
		case <-w.changed:
			return true
		case <-time.After(left):
		}
	}
}

// sleep waits. It returns false if the context ends before.
func sleep(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// untilRead returns the time until the next read without a change: the next poll, or the end of a lock.
func (w *watches) untilRead(poll time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	next, now := time.Hour, w.subject.hub.Cluster.Now()
	if w.isBlind() {
		next = time.Until(poll)
	}
	for name, lock := range w.locks {
		if !lock.isExpired && !lock.expires.IsZero() {
			lock.isExpired = lock.hasExpired(now)
			w.locks[name] = lock
			next = min(next, lock.expires.Sub(now))
		}
	}
	return next
}

// isBlind reports whether a change of a source may not be seen, or the last read was not complete.
func (w *watches) isBlind() bool {
	if w.partial {
		return true
	}
	for _, running := range w.running {
		if running.isBroken || !running.isSynced {
			return true
		}
	}
	return false
}

// signal notes that the topic may have changed.
func (w *watches) signal() {
	select {
	case w.changed <- struct{}{}:
	default: // it has a value already
	}
}

// follow watches sources from now on, and no others.
func (w *watches) follow(wanted []source) {
	w.mu.Lock()
	defer w.mu.Unlock()
	isWanted := map[source]bool{}
	for _, item := range wanted {
		isWanted[item] = true
		if w.running[item] != nil {
			continue
		}
		ctx, stop := context.WithCancel(w.ctx)
		running := &sourceWatch{stop: stop}
		w.running[item] = running
		go item.watch(ctx, w, running)
	}
	for item, running := range w.running {
		if !isWanted[item] {
			running.stop()
			delete(w.running, item)
		}
	}
}

// setSynced notes that a source was listed, or has no objects. When all sources are listed, there is a signal: changes
// since the last read were missed.
func (w *watches) setSynced(running *sourceWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	running.isSynced = true
	for _, other := range w.running {
		if !other.isSynced {
			return
		}
	}
	w.signal()
}

// setComplete notes whether the last read was complete. An incomplete one is a reason to read again.
func (w *watches) setComplete(isComplete bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if isComplete == w.partial {
		w.partial = !isComplete
		if w.partial {
			w.signal()
		}
	}
}

// setBroken notes whether changes of a source are seen. Both are reasons to read.
func (w *watches) setBroken(running *sourceWatch, isBroken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if running.isBroken != isBroken {
		running.isBroken = isBroken
		w.signal()
	}
}

// The shortest and the longest pause until a kind is looked up again that the cluster does not serve.
const (
	shortestKindsPause = 30 * time.Second
	longestKindsPause  = time.Minute
)

// watch watches the objects of a source. A kind that the cluster does not serve has none.
func (s source) watch(ctx context.Context, w *watches, running *sourceWatch) {
	c := w.subject.hub.Cluster
	if s.kind == kinds.Lease {
		leases := c.Client.CoordinationV1().Leases(s.namespace)
		runWatch(ctx, w, running, lockHandler{w, running}, resourcewatch.ListerWatcher[*coordinationv1.LeaseList]{
			List: leases.List, Watch: leases.Watch, Client: c.Client, Labels: s.labels, Fields: s.fields,
		})
		return
	}
	resource, err := c.FindKind(ctx, s.kind)
	for pause := shortestKindsPause; err != nil; pause = min(2*pause, longestKindsPause) {
		if errors.Is(err, cluster.ErrNotServed) && pause == shortestKindsPause {
			w.setSynced(running)
		}
		if !sleep(ctx, pause) {
			return
		}
		w.subject.hub.RefreshKinds()
		resource, err = c.FindKind(ctx, s.kind)
	}
	objects := c.Metadata.Resource(resource.GroupVersionResource).Namespace(s.namespace)
	from := resourcewatch.ListerWatcher[*metav1.PartialObjectMetadataList]{
		List: objects.List, Watch: objects.Watch, Client: c.Metadata, Labels: s.labels, Fields: s.fields, Trim: trim,
	}
	runWatch(ctx, w, running, objectHandler{w, running, s}, from)
}

// trim removes unneeded metadata of an object.
func trim(object any) {
	if metadata, isMetadata := object.(metav1.Object); isMetadata {
		metadata.SetManagedFields(nil)
		metadata.SetAnnotations(nil)
	}
}

// runWatch watches until the context ends, and notes failures.
func runWatch[T resourcewatch.WatchedObject, L runtime.Object](ctx context.Context, w *watches, running *sourceWatch,
	handler resourcewatch.EventHandler[T], from resourcewatch.ListerWatcher[L]) {
	note := func(ctx context.Context, err error) {
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) { // a removed kind has no objects
			w.setBroken(running, true)
		}
		if apierrors.IsForbidden(err) {
			sleep(ctx, forbiddenPause)
		}
	}
	list, open := from.List, from.Watch
	from.List = func(ctx context.Context, options metav1.ListOptions) (L, error) {
		found, err := list(ctx, options)
		note(ctx, err)
		return found, err
	}
	from.Watch = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		opened, err := open(ctx, options)
		note(ctx, err)
		if err == nil {
			w.setBroken(running, false)
		}
		return opened, err
	}
	resourcewatch.Run(ctx, from, handler, longestWatchPause, func(error) {})
}

// An objectHandler handles the events on the metadata of objects.
type objectHandler struct {
	*watches
	running *sourceWatch
	source  source
}

// OnChange handles a change of an object.
func (h objectHandler) OnChange(*metav1.PartialObjectMetadata, bool) {
	if h.source.kind == kinds.CustomResourceDefinition || strings.HasPrefix(h.source.labels, lock.Label) {
		h.subject.hub.refreshKinds(true) // also after changes of a record, whose release may define kinds
	}
	h.signal()
}

// OnList handles a list. Definitions may have been created since the kinds were discovered.
func (h objectHandler) OnList([]*metav1.PartialObjectMetadata, string) {
	if h.source.kind == kinds.CustomResourceDefinition {
		h.subject.hub.refreshKinds(true)
	}
	h.setSynced(h.running)
}

// A lockState is what matters of a Lease: who holds it, and when it expires.
type lockState struct {
	holder    string
	since     time.Time
	expires   time.Time // by the clock of the server; zero if nobody holds it
	isExpired bool      // subscribers were notified of it
}

// clockTolerance is the largest expected error of our estimate of the clock of the server.
const clockTolerance = 2 * time.Second

func lockStateOf(lease *coordinationv1.Lease) lockState {
	var state lockState
	spec := lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" {
		return state
	}
	state.holder = *spec.HolderIdentity
	if spec.AcquireTime != nil {
		state.since = spec.AcquireTime.Time
	}
	if spec.RenewTime != nil && spec.LeaseDurationSeconds != nil {
		duration := time.Duration(*spec.LeaseDurationSeconds) * time.Second
		state.expires = spec.RenewTime.Add(duration + clockTolerance)
	}
	return state
}

func (l lockState) hasExpired(now time.Time) bool {
	return !l.expires.IsZero() && !now.Before(l.expires)
}

// A lockHandler handles the events on the Leases of locks, which are renewed every few seconds.
type lockHandler struct {
	*watches
	running *sourceWatch
}

// OnChange handles a change of a Lease. A renewal is none.
func (h lockHandler) OnChange(lease *coordinationv1.Lease, exists bool) {
	if h.note(lease, exists) {
		h.signal()
	}
}

// OnList handles a list.
func (h lockHandler) OnList(leases []*coordinationv1.Lease, _ string) {
	for _, lease := range leases {
		h.note(lease, true)
	}
	h.setSynced(h.running)
}

// note notes the state of a Lease, and reports whether it is another one.
func (h lockHandler) note(lease *coordinationv1.Lease, exists bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := lease.Namespace + "/" + lease.Name
	before, wasKnown := h.locks[name]
	if !exists {
		delete(h.locks, name)
		return true
	}
	now := lockStateOf(lease)
	now.isExpired = now.hasExpired(h.subject.hub.Cluster.Now())
	h.locks[name] = now
	return !wasKnown || before.holder != now.holder || !before.since.Equal(now.since) ||
		before.isExpired != now.isExpired
}
