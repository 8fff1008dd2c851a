package operator

import (
	"context"
	"slices"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/operator/metrics"
	"github.com/runlevel/runlevel/internal/operator/prometheus"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/notify"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// A stateMachine takes the release of its input from its source to the cluster, and keeps it in place. It has up to two
// releases: the requested one, and the current one, which stays in place until the requested one is accepted.
//
//	requested    the machine                             leaves the state for
//	Retrieving   verifies signatures, pulls the image    Loading
//	Loading      reads the manifests                     Verifying
//	Verifying    compares the version                    Judging
//	Judging      runs the gate                           Accepted
//	refused      waits                                   Retrieving, after a pause, or when a risk has ended that the
//	                                                     gate has found
//	Accepted     has made it the current release         -
//
//	current      the machine                             leaves the state for
//	pending      waits for the session's gate, and       applying
//	             after a failure for a pause before it
//	applying     applies objects, waits until ready      keeping; pending, if the apply fails
//	keeping      repairs objects                         applying, if objects stay unready; pending, if it fails
//
// Each state from Retrieving to Judging is left for refused if it fails. Another target in the input is Retrieving at
// once, whatever the state was, or Accepted if the current release matches it. A current release ends when another one
// is accepted. Acceptance of the output has the state of the requested release, and Applied that of the current one.
//
// The machine ends with its context, when another process takes the lock or applies something else, and when the lock
// is lost before there is a current release: a session that applies acquires a lost lock again.
type stateMachine struct {
	cluster    *cluster.Cluster
	options    Options
	releases   *releases
	events     *announcer
	settings   *settingsReader
	updates    *updates
	reporter   *reporter
	prometheus *prometheus.Follower // reads the Prometheus; nil without one
	health     *health
	counters   *metrics.Counters
	sender     *notify.Sender // sends notifications; nil without receivers

	outputChanged chan event.GenericEvent // receives an element when the output has changed
	inputChanged  chan struct{}           // receives an element when the input was set
	group         *errgroup.Group         // goroutines of run

	mu          sync.Mutex             // locked before the mutex of the session, and after that of the keeper's events
	session     *session.Session       // nil until the lock is held
	input       machineInput           // has no target until it is set
	risks       []precondition.Finding // risks that block a minor update
	risksAtGate []precondition.Finding // risks when the gate ran last
	acceptance  clusterversion.Acceptance
	preflight   *clusterversion.Preflight // nil if none is requested; replaced as a whole
	current     *currentRelease           // nil until a release is accepted
	fullPass    time.Time
	// cancelAttempt ends the attempt to accept a target.
	cancelAttempt context.CancelFunc
}

// A machineInput is the requested release, and the observed state of the cluster.
type machineInput struct {
	target   *target // includes the settings of the cluster
	record   *record.Record
	deletes  []precondition.Delete      // the pending ones of the record
	observed clusterversion.Observation // lacks the fields that the output adds
}

// A machineOutput is the state of a machine at one moment.
type machineOutput struct {
	Acceptance clusterversion.Acceptance
	Preflight  *clusterversion.Preflight      // nil if none is requested
	Applied    *clusterversion.AppliedRelease // nil until a release is accepted
	Unwatched  int                            // kinds of the current release whose changes are not seen
	FullPass   time.Time                      // time of the last apply or check of all objects of the release
	Record     *record.Record                 // record of the input; nil until it is set
}

func newStateMachine(c *cluster.Cluster, o Options) *stateMachine {
	m := &stateMachine{
		cluster:       c,
		options:       o,
		releases:      newReleases(c, o),
		events:        newAnnouncer(c),
		health:        newHealth(o.limits),
		counters:      metrics.NewCounters(),
		outputChanged: make(chan event.GenericEvent, 1),
		inputChanged:  make(chan struct{}, 1),
		cancelAttempt: func() {},
	}
	m.settings = &settingsReader{cluster: c, notify: m.notify}
	m.updates = newUpdates(o.Source.Insecure, m.notify)
	m.updates.now = c.Now
	m.reporter = newReporter(o.Source.Insecure)
	return m
}

// run applies the target of the input, until ctx ends or the lock is lost.
func (m *stateMachine) run(ctx context.Context, s *session.Session) error {
	m.group, ctx = errgroup.WithContext(ctx)
	m.update(func() { m.session = s })
	m.group.Go(func() error { return m.settings.watch(ctx) })
	m.group.Go(func() error { return m.acceptTargets(ctx) })
	return m.group.Wait()
}

// set sets the input, and returns the output with the problems of the observed ClusterOperators. The same request as
// before does not replace the target.
func (m *stateMachine) set(input machineInput) machineOutput {
	m.mu.Lock()
	defer m.mu.Unlock()
	isInstall := input.target.Previous == ""
	if before := m.input.target; before != nil && before.isSame(input.target) {
		input.target = before
	} else {
		m.acceptance = input.target.at(clusterversion.Retrieving)
		if m.current != nil && m.current.release.matches(input.target) {
			m.acceptance = m.current.release.acceptance
		}
		m.preflight = nil
		if p := input.target.Preflight; p != nil {
			m.preflight = &clusterversion.Preflight{Acceptance: p.at(clusterversion.Retrieving)}
		}
		m.cancelAttempt()
	}
	m.input = input
	out := m.state()
	if out.Applied != nil {
		m.current.addOperators(out.Applied, input.observed.Operators, isInstall)
	}
	m.input.observed.Applied = out.Applied
	m.risks = clusterversion.Risks(m.input.observed)
	select {
	case m.inputChanged <- struct{}{}:
	default: // the machine has not read the last change yet
	}
	return out
}

// output returns the present state.
func (m *stateMachine) output() machineOutput {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state()
}

// state returns the output. The caller holds the mutex.
func (m *stateMachine) state() machineOutput {
	out := machineOutput{
		Acceptance: m.acceptance, Preflight: m.preflight, FullPass: m.fullPass, Record: m.input.record,
	}
	if m.current != nil {
		out.Applied, out.Unwatched = m.current.status(), m.session.Kept().UnwatchedKinds()
	}
	return out
}

// held returns a context that ends when the lock of the release is lost; nil before the lock was held.
func (m *stateMachine) held() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session == nil {
		return nil
	}
	return m.session.Held()
}

// holds reports whether this process holds the lock of the release.
func (m *stateMachine) holds() bool {
	held := m.held()
	return held != nil && held.Err() == nil
}

// requested returns the target of the input; nil before it was set.
func (m *stateMachine) requested() *target {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.input.target
}

// currentRelease returns the current release, or nil.
func (m *stateMachine) currentRelease() *currentRelease {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

// update changes the state of the machine, and has the status computed again.
func (m *stateMachine) update(change func()) {
	m.mu.Lock()
	change()
	m.mu.Unlock()
	m.notify()
}

// notify requests a new computation of the status.
func (m *stateMachine) notify() {
	select {
	case m.outputChanged <- event.GenericEvent{Object: &configv1.ClusterVersion{ObjectMeta: clusterVersionMeta}}:
	default: // a reconcile is queued already
	}
}

// retryAcceptance is the backoff of a release that was refused: its registry may answer again, and the findings of the
// gate may be resolved.
var retryAcceptance = wait.Backoff{Duration: 2 * time.Second, Factor: 2, Steps: 6, Cap: time.Minute}

// acceptTargets accepts the target of the input, and each one that replaces it, until ctx ends. A refused target is
// tried again, and so is a preflight.
func (m *stateMachine) acceptTargets(ctx context.Context) error {
	var last *target
	backoff := retryAcceptance
	for {
		requested := m.requested()
		isRetry := requested == last
		isReplaced := !isRetry && last != nil && last.Preflight != nil
		if !isRetry {
			last, backoff = requested, retryAcceptance
		}
		var retry <-chan time.Time
		refusal := m.acceptTarget(ctx, requested, isRetry)
		switch {
		case refusal != nil:
			m.refusePreflight(ctx, requested, refusal)
			retry = time.After(backoff.Step())
		case requested == nil || requested.Preflight == nil:
		case isReplaced:
			retry = time.After(settlePreflight)
		default:
			retry = time.After(m.runPreflight(ctx, requested, isRetry, &backoff))
		}
		if err := m.awaitReason(ctx, requested, refusal, retry); err != nil {
			return err
		}
	}
}

// awaitReason waits for a reason to try again. It returns an error when ctx ends, and when the lock is lost before
// there is a current release: an apply acquires a lost lock again.
func (m *stateMachine) awaitReason(ctx context.Context, last *target, refusal error, retry <-chan time.Time) error {
	var lost <-chan struct{}
	held := m.held()
	if m.currentRelease() == nil {
		lost = held.Done()
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-lost:
			return context.Cause(held)
		case <-retry:
			return nil
		case <-m.inputChanged:
			if m.isDue(last, refusal) {
				return nil
			}
		}
	}
}

// isDue reports whether the input has another target than the last attempt, or no longer has one of the risks for which
// the gate has refused the target.
func (m *stateMachine) isDue(last *target, refusal error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	hasEnded := func(judged precondition.Finding) bool {
		isSame := func(risk precondition.Finding) bool { return risk.Name() == judged.Name() }
		return !slices.ContainsFunc(m.risks, isSame)
	}
	isRefusedByGate := reason.Of(refusal) == precondition.ReasonFailed
	return m.input.target != last || isRefusedByGate && slices.ContainsFunc(m.risksAtGate, hasEnded)
}

// acceptTarget accepts the target, if there is one. An operator that has just started first continues the release that
// was begun last: the acceptance of the target may take long, and only the release before defines who must have signed
// the target. With force, the target is accepted even if that release is not.
func (m *stateMachine) acceptTarget(ctx context.Context, requested *target, isRetry bool) error {
	if requested == nil {
		return nil
	}
	if begun := requested.Before; begun != nil && m.currentRelease() == nil {
		if err := m.accept(ctx, begun, requested, isRetry); err != nil && !requested.Force {
			return err
		}
	}
	return m.accept(ctx, requested, requested, isRetry)
}

// accept takes a target through the states until its release is the current one. It gives up when the input has another
// target than the requested one, and when the lock is lost. A retry publishes no states: the output has the last
// refusal until the retry has ended.
func (m *stateMachine) accept(ctx context.Context, t, requested *target, isRetry bool) error {
	current := m.currentRelease()
	if current != nil && current.release.matches(t) {
		m.update(func() {
			if m.input.target == t {
				m.acceptance = current.release.acceptance
			}
		})
		return nil
	}
	next := &candidate{machine: m, targetRelease: targetRelease{target: t}, isRetry: isRetry}
	if err := m.attempt(ctx, next, requested); err != nil {
		return err
	}
	if current != nil {
		current.stop(session.ErrSuperseded)
	}
	next.acceptance.Phase, next.acceptance.Release = clusterversion.Accepted, describe(t, next.payload)
	next.acceptance.Unverified, next.acceptance.AcceptedRisk = next.signed.unverified, next.signed.risk
	r := &currentRelease{
		machine: m, release: next.targetRelease, state: pending, backoff: retryApply, tests: testsOf(next.payload),
	}
	r.ctx, r.stop = context.WithCancelCause(ctx)
	m.update(func() { m.current = r })
	next.publish(ctx)
	m.group.Go(r.run)
	return nil
}

// attempt takes a candidate through the states until it may be accepted, and publishes why it is refused. It gives up
// as accept does.
func (m *stateMachine) attempt(ctx context.Context, next *candidate, requested *target) error {
	held := m.held()
	if held.Err() != nil { // another leader may have another target by now
		return context.Cause(held)
	}
	attempt, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(held, cancel)()
	if !m.beginAttempt(requested, cancel) {
		return context.Canceled
	}
	err := next.prepare(attempt, m.currentRelease())
	if attempt.Err() != nil {
		return context.Cause(attempt)
	}
	if next.acceptance.Err = err; err != nil {
		next.publish(ctx)
		ctrl.LoggerFrom(ctx).Info("release not accepted", "isPreflight", next.isPreflight,
			"image", next.target.Image, "version", next.target.Version, "reason", err.Error())
	}
	return err
}

// beginAttempt stores the function that ends an attempt to accept a target, unless the target is outdated.
func (m *stateMachine) beginAttempt(requested *target, cancel context.CancelFunc) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.input.target != requested {
		return false
	}
	m.cancelAttempt = cancel
	return true
}
