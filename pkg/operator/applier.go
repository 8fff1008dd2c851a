package operator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
	"github.com/runlevel/runlevel/pkg/reason"
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
	var last *target
	backoff := retryAcceptance
	for {
		wanted, isNew := a.next()
		if wanted != last {
			last, backoff = wanted, retryAcceptance
		}
		retry := make(<-chan time.Time)
		if wanted != nil {
			accepted, err := a.accept(ctx, session, wanted, isNew)
			switch {
			case err != nil:
				retry = time.After(backoff.Step())
			case accepted != nil:
				kept.Go(func() {
					if err := accepted.keep(); err != nil {
						cancel(err)
					}
				})
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-isNew:
		case <-retry:
		}
	}
}

// want makes a release the one that is wanted. Risks hold back a minor update to it.
func (a *applier) want(t *target, risks []status.Risk) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.risks = risks
	if a.wanted != nil && a.wanted.isSame(t) && a.wanted.Force == t.Force {
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
// wanted. It returns what is to be kept in place from now on; nil if that is so already.
func (a *applier) accept(ctx context.Context, session *rollout.Session, t *target, isNew <-chan struct{}) (*running, error) {
	a.mu.Lock()
	current := a.running
	a.mu.Unlock()
	if current != nil && current.target.isSame(t) {
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
	loaded, err := a.prepare(attempt, session, t, current)
	if err != nil {
		if attempt.Err() == nil {
			a.accepted(ctx, func(now *status.Acceptance) { now.Err = err })
			ctrl.LoggerFrom(ctx).Info("release not accepted", "image", t.Image, "version", t.Version, "reason", err.Error())
		}
		return nil, err
	}
	next := newRunning(ctx, a, session, t, loaded)
	a.begin(ctx, next, current)
	return next, nil
}

// begin makes a release the one that is kept in place.
func (a *applier) begin(ctx context.Context, next, current *running) {
	if current != nil {
		current.stop(rollout.ErrSuperseded)
	}
	a.update(func() { a.running = next })
	a.accepted(ctx, func(now *status.Acceptance) { now.Phase, now.Release, now.Err = status.Accepted, next.release, nil })
}

// accepted changes how far the release that is wanted is, and announces it.
func (a *applier) accepted(ctx context.Context, change func(*status.Acceptance)) {
	var now status.Acceptance
	a.update(func() {
		change(&a.acceptance)
		now = a.acceptance
	})
	a.events.announce(ctx, now)
}

// prepare retrieves, loads and judges a release.
func (a *applier) prepare(ctx context.Context, session *rollout.Session, t *target, current *running) (*payload.Payload, error) {
	a.enter(ctx, t, status.Retrieving)
	opened, err := a.releases.open(ctx, t.Image)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	a.enter(ctx, t, status.Loading)
	var before *payload.Payload
	if current != nil {
		before = current.payload
	}
	loaded, err := a.releases.load(ctx, opened, t, before)
	if err != nil {
		return nil, err
	}
	a.enter(ctx, t, status.Verifying)
	if t.Version != "" && loaded.Version != t.Version {
		return nil, &reason.Error{Reason: "VerifyPayloadVersionFailed", Message: fmt.Sprintf("release image version %s does not match the expected upstream version %s", loaded.Version, t.Version)}
	}
	a.enter(ctx, t, status.Judging)
	findings, err := a.judge(ctx, session, loaded, t)
	a.update(func() { a.acceptance.Findings, a.acceptance.WasJudged = findings, true })
	return loaded, err
}

// enter notes the phase that a release is in.
func (a *applier) enter(ctx context.Context, t *target, phase status.AcceptancePhase) {
	now := status.Acceptance{Release: t.Release, Architecture: architecture, Phase: phase, Forced: t.Force}
	a.accepted(ctx, func(before *status.Acceptance) { *before = now })
}

// judge asks the gate of the release, and for the risks of a minor update. Force overrides what blocks.
func (a *applier) judge(ctx context.Context, session *rollout.Session, p *payload.Payload, t *target) ([]precondition.CheckFinding, error) {
	outcome := session.Inspect(ctx, p, a.rolloutOptions(t))
	if outcome.Err != nil {
		return nil, outcome.Err
	}
	a.mu.Lock()
	risks := a.risks
	a.mu.Unlock()
	findings := append(outcome.Findings, riskFindings(risks, outcome.Previous, p.Version)...)
	if t.Force {
		return findings, nil
	}
	return findings, precondition.Refuse(findings)
}

// seen returns what the status is computed from, as far as the applier knows it, and whether it has begun.
func (a *applier) seen() (acceptance status.Acceptance, applied *status.AppliedRelease, hasBegun bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running != nil {
		applied = a.running.seen()
	}
	return a.acceptance, applied, a.session != nil
}
