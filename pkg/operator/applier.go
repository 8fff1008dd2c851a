package operator

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/rollout"
	"github.com/runlevel/runlevel/pkg/status"
)

// An applier takes the release that is wanted from its source to the cluster, and keeps it in place. Until the next one
// is accepted, the one before stays.
type applier struct {
	cluster  *cluster.Cluster
	options  Options
	releases *releases
	events   *announcer
	changes  chan event.GenericEvent // gets one when what is seen has changed

	mu         sync.Mutex
	session    *rollout.Session // nil until the lock is held
	wanted     *target
	isNew      chan struct{} // closed when another target is wanted
	risks      []status.Risk // that hold back a minor update
	acceptance status.Acceptance
	running    *running // nil until a release is accepted
}

func newApplier(c *cluster.Cluster, o Options) *applier {
	return &applier{
		cluster: c, options: o, releases: newReleases(o), events: newAnnouncer(c),
		changes: make(chan event.GenericEvent, 1), isNew: make(chan struct{}),
	}
}

// retryAcceptance is how long it is until a release that was not accepted is tried again: its registry may be back,
// and what the gate found may be over.
var retryAcceptance = wait.Backoff{Duration: 2 * time.Second, Factor: 2, Steps: 6, Cap: time.Minute}

// run applies what is wanted, until ctx ends or the lock is lost.
func (a *applier) run(ctx context.Context, session *rollout.Session) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.update(func() { a.session = session })
	var kept sync.WaitGroup
	defer kept.Wait()
	keep := func(accepted *running) {
		kept.Go(func() {
			if err := accepted.keep(); err != nil {
				cancel(err)
			}
		})
	}
	var last *target
	backoff := retryAcceptance
	for {
		wanted, isNew := a.next()
		isRetry := wanted == last
		if !isRetry {
			last, backoff = wanted, retryAcceptance
		}
		var retry <-chan time.Time
		if wanted != nil && a.tryAll(ctx, wanted, isNew, isRetry, keep) != nil {
			retry = time.After(backoff.Step())
		}
		var lost <-chan struct{}
		if a.current() == nil { // an apply looks after its lock itself
			lost = session.Held().Done()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-lost:
			return context.Cause(session.Held())
		case <-isNew:
		case <-retry:
		}
	}
}

// tryAll accepts what is wanted. An operator that has just begun goes on with the release that was begun last before
// that: what is wanted may not be accepted for long.
func (a *applier) tryAll(ctx context.Context, wanted *target, isNew <-chan struct{}, isRetry bool, keep func(*running)) error {
	all := []*target{wanted}
	if before := wanted.Before; before != nil && a.current() == nil {
		all = []*target{before, wanted}
	}
	var err error
	for _, one := range all {
		var accepted *running
		if accepted, err = a.accept(ctx, one, isNew, isRetry); accepted != nil {
			keep(accepted)
		}
	}
	return err
}

// current returns the release that is applied, or kept in place; nil if there is none yet.
func (a *applier) current() *running {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running
}

// holds returns whether this process holds the lock of the release.
func (a *applier) holds() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.session != nil && a.session.Held().Err() == nil
}

// want makes a release the one that is wanted. Risks hold back a minor update to it.
func (a *applier) want(t *target, risks []status.Risk) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.risks = risks
	if a.wanted != nil && a.wanted.isSame(t) {
		return
	}
	a.wanted = t
	close(a.isNew)
	a.isNew = make(chan struct{})
}

// next returns what is wanted, and a channel that is closed when that changes.
func (a *applier) next() (*target, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wanted, a.isNew
}

// update changes what is seen of the applier, and has the status computed anew.
func (a *applier) update(change func()) {
	a.mu.Lock()
	change()
	a.mu.Unlock()
	a.notify()
}

// notify has the status computed anew.
func (a *applier) notify() {
	select {
	case a.changes <- event.GenericEvent{Object: &configv1.ClusterVersion{ObjectMeta: theClusterVersion}}:
	default: // it will be anyway
	}
}

// accept takes a release through all that comes before its first object is written. It gives up when another one is
// wanted. It returns what is to be kept in place from now on; nil if that is so already. A retry shows no phases: what
// has stopped the release counts until that is over.
func (a *applier) accept(ctx context.Context, t *target, isNew <-chan struct{}, isRetry bool) (*running, error) {
	current := a.current()
	if current != nil && current.serves(t) {
		a.update(func() {
			a.acceptance = status.Acceptance{Release: current.release, Architecture: architecture, Phase: status.Accepted}
		})
		return nil, nil
	}
	attempt, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-isNew:
			cancel()
		case <-attempt.Done():
		}
	}()
	try := &acceptance{applier: a, target: t, isQuiet: isRetry}
	loaded, err := try.prepare(attempt, current)
	if attempt.Err() != nil {
		return nil, context.Cause(attempt)
	}
	if err != nil {
		try.now.Err = err
		try.publish(ctx)
		ctrl.LoggerFrom(ctx).Info("release not accepted", "image", t.Image, "version", t.Version, "reason", err.Error())
		return nil, err
	}
	next := newRunning(ctx, a, t, loaded)
	next.forced = try.forced()
	if current != nil {
		current.stop(rollout.ErrSuperseded)
	}
	a.update(func() { a.running = next })
	try.now.Phase, try.now.Release = status.Accepted, next.release
	try.publish(ctx)
	return next, nil
}

// seen returns what the status is computed from, as far as the applier knows it.
func (a *applier) seen() (acceptance status.Acceptance, applied *status.AppliedRelease) {
	a.mu.Lock()
	acceptance, current := a.acceptance, a.running
	a.mu.Unlock()
	if current != nil {
		applied = current.seen()
	}
	return acceptance, applied
}
