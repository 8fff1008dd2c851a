package operator

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/notify"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// An applier applies the target from its source to the cluster, and keeps it in place. Until the next target is
// accepted, the previous release stays.
//
//	target     retrieving  loading  verifying  judging  accepted   each refusal is retried from the beginning
//	release                                             applying   kept   again after a failure, and in the next apply
//
// One loop accepts targets (run), and one keeps the accepted release (running.keep). The reconciler sets what is
// wanted, and reads State.
type applier struct {
	cluster  *cluster.Cluster
	options  Options
	releases *releases
	events   *announcer
	monitor  *monitor
	updates  *updates
	health   *health
	sender   *notify.Sender          // of notifications; nil without receivers
	changes  chan event.GenericEvent // receives an element when the observed state has changed

	settingsChanged atomic.Bool   // settings of the cluster are to be read again
	completed       chan struct{} // receives an element when a release is complete

	mu         sync.Mutex
	session    *session.Session            // nil until the lock is held
	wanted     *target                     // of the ClusterVersion
	tried      *target                     // wanted, once the risks are known
	changed    chan struct{}               // closed when another target is to be tried
	risks      []precondition.CheckFinding // that hold back a minor update
	riskGone   chan struct{}               // receives an element when one of them is gone: the gate may be open now
	acceptance clusterversion.Acceptance
	running    *running // nil until a release is accepted
}

func newApplier(c *cluster.Cluster, o Options) *applier {
	a := &applier{
		cluster: c, options: o, releases: newReleases(c, o), events: newAnnouncer(c), health: newHealth(o.limits),
		changes: make(chan event.GenericEvent, 1), changed: make(chan struct{}), riskGone: make(chan struct{}, 1),
		completed: make(chan struct{}, 1),
	}
	a.monitor = newMonitor(a)
	a.updates = newUpdates(o.Source.Insecure, a.notify)
	return a
}

// retryAcceptance is the backoff of a release that was not accepted: its registry may be back, and the findings of the
// gate may be over.
var retryAcceptance = wait.Backoff{Duration: 2 * time.Second, Factor: 2, Steps: 6, Cap: time.Minute}

// run applies the target, until ctx ends or the lock is lost.
func (a *applier) run(ctx context.Context, s *session.Session) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var kept sync.WaitGroup
	defer func() { // all that kept waits for ends with the context
		cancel(nil)
		kept.Wait()
	}()
	a.update(func() { a.session = s })
	kept.Go(func() { a.watchSettings(ctx) })
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
		wanted, changed := a.next()
		isRetry := wanted == last
		if !isRetry {
			last, backoff = wanted, retryAcceptance
		}
		var retry <-chan time.Time
		var riskGone <-chan struct{}
		if err := a.tryAll(ctx, wanted, changed, isRetry, keep); err != nil {
			retry = time.After(backoff.Step())
			riskGone = a.retryOnRiskGone(err)
		}
		if err := a.await(ctx, changed, riskGone, retry); err != nil {
			return err
		}
	}
}

// await waits until there is a reason to try again. It returns an error when ctx ends, and when the lock is lost.
func (a *applier) await(ctx context.Context, changed, riskGone <-chan struct{}, retry <-chan time.Time) error {
	var lost <-chan struct{}
	if a.current() == nil { // an apply watches its lock itself
		lost = a.session.Held().Done()
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-lost:
		return context.Cause(a.session.Held())
	case <-changed:
	case <-riskGone:
	case <-retry:
	}
	return nil
}

// retryOnRiskGone returns the channel of risks that are gone, for a release that the gate refused; nil for
// others.
func (a *applier) retryOnRiskGone(err error) <-chan struct{} {
	if reason.Of(err) == precondition.ReasonFailed {
		return a.riskGone
	}
	return nil
}

// tryAll accepts the target, if there is one. An operator that has just started first continues the release that was
// begun last: the target may not be accepted for long, and only that release defines who must have signed it. Force
// does without.
func (a *applier) tryAll(ctx context.Context, wanted *target, changed <-chan struct{}, isRetry bool,
	keep func(*running)) error {
	if wanted == nil {
		return nil
	}
	all := []*target{wanted}
	if before := wanted.Before; before != nil && a.current() == nil {
		all = []*target{before, wanted}
	}
	for _, item := range all {
		accepted, err := a.accept(ctx, item, changed, isRetry)
		if accepted != nil {
			keep(accepted)
		}
		if err != nil && (item == wanted || !wanted.Force) {
			return err
		}
	}
	return nil
}

// current returns the release that is applied, or kept in place; nil if there is none yet.
func (a *applier) current() *running {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running
}

// holds reports whether this process holds the lock of the release.
func (a *applier) holds() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.session != nil && a.session.Held().Err() == nil
}

// An applierState is what an applier does at one moment.
type applierState struct {
	Acceptance clusterversion.Acceptance      // of the target
	Applied    *clusterversion.AppliedRelease // the release that is applied, or kept in place; nil if there is none yet
}

// State returns the present state.
func (a *applier) State() applierState {
	a.mu.Lock()
	defer a.mu.Unlock()
	state := applierState{Acceptance: a.acceptance}
	if a.running != nil {
		state.Applied = a.running.seen()
	}
	return state
}

// want sets the target of the status, and returns the state. It is tried once it is known what holds it back.
func (a *applier) want(t *target) applierState {
	a.mu.Lock()
	if a.wanted == nil || !a.wanted.isSame(t) {
		a.wanted, a.acceptance = t, t.at(clusterversion.Retrieving) // the previous acceptance is about another target
		if a.running != nil && a.running.matches(t) {
			a.acceptance = a.running.accepted()
		}
	}
	a.mu.Unlock()
	return a.State()
}

// tryWith sets the risks that hold back a minor update, and has a new target tried with them.
func (a *applier) tryWith(risks []precondition.CheckFinding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	isGone := func(old precondition.CheckFinding) bool {
		return !slices.ContainsFunc(risks, func(r precondition.CheckFinding) bool { return r.Name() == old.Name() })
	}
	if slices.ContainsFunc(a.risks, isGone) {
		select {
		case a.riskGone <- struct{}{}:
		default: // it is tried anyway
		}
	}
	if a.risks = risks; a.tried != a.wanted {
		a.tried = a.wanted
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// next returns the target to try, and a channel that is closed when it changes.
func (a *applier) next() (*target, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tried, a.changed
}

// update changes the observed state of the applier, and has the status computed again.
func (a *applier) update(change func()) {
	a.mu.Lock()
	change()
	a.mu.Unlock()
	a.notify()
}

// notify has the status computed again.
func (a *applier) notify() {
	select {
	case a.changes <- event.GenericEvent{Object: &configv1.ClusterVersion{ObjectMeta: clusterVersionMeta}}:
	default: // it is queued already
	}
}

// accept runs all phases of a release before its first object is written. It gives up when the target changes, and
// when the lock is lost. It returns the release to keep in place from now on; nil if it is kept already. A retry
// publishes no phases: the last error of the release counts until it is over.
func (a *applier) accept(ctx context.Context, t *target, changed <-chan struct{}, isRetry bool) (*running, error) {
	current := a.current()
	if current != nil && current.matches(t) {
		a.update(func() {
			if a.wanted == t {
				a.acceptance = current.accepted()
			}
		})
		return nil, nil
	}
	held := a.session.Held()
	if held.Err() != nil { // another leader may have another target by now
		return nil, context.Cause(held)
	}
	attempt, cancel := withCancelOn(ctx, changed)
	defer cancel()
	defer context.AfterFunc(held, cancel)()
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
	next.forced, next.signed, next.packed = try.acceptedRisks(), try.signed, try.packed
	if current != nil {
		current.stop(session.ErrSuperseded)
	}
	a.update(func() { a.running = next })
	try.now.Phase, try.now.Release = clusterversion.Accepted, next.release
	try.now.Unverified, try.now.AcceptedRisk = try.signed.unverified, try.signed.risk
	try.publish(ctx)
	return next, nil
}

// withCancelOn returns a context that ends with another one, or when a channel is closed.
func withCancelOn(ctx context.Context, closed <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
