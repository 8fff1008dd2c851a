package operator

import (
	"context"
	"errors"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A running is a release that was accepted: it is applied, and then kept in place, until stop is called.
type running struct {
	applier *applier
	target  *target
	payload *payload.Payload
	release configv1.Release
	forced  []string // the risks that were accepted
	signed  verification
	packed  *files.Packed // the files of the release, which are kept on the cluster
	ctx     context.Context
	stop    context.CancelCauseFunc

	// The following fields are guarded by the applier.
	mode       graph.Mode
	intent     progress.Intent
	state      *apply.RunState      // of the last apply; nil before it has begun
	done       int                  // the highest count of applied manifests in it
	before     []apply.RunStepState // that have failed in previous applies
	hasBegun   bool                 // the gate has passed the current apply
	isRecorded bool                 // the record has an apply of the release
	backoff    wait.Backoff         // of applies that fail
	isComplete bool
	err        error // why the last apply ended
}

// newRunning returns a release that is to be applied, until ctx ends or stop is called.
func newRunning(ctx context.Context, a *applier, t *target, p *payload.Payload) *running {
	r := &running{applier: a, target: t, payload: p, release: describe(t, p), backoff: retryApply}
	r.ctx, r.stop = context.WithCancelCause(ctx)
	return r
}

// matches reports whether the release is the one of a target. A target with force does not match a release without.
func (r *running) matches(t *target) bool {
	isVersion := t.Version == "" || t.Version == r.release.Version
	isForced := r.target.Force || !t.Force
	return isVersion && isForced && t.hasSameObjects(r.target)
}

// accepted returns the acceptance of the release, without new findings.
func (r *running) accepted() clusterversion.Acceptance {
	accepted := r.target.at(clusterversion.Accepted)
	accepted.Release, accepted.Unverified = r.release, r.signed.unverified
	return accepted
}

// retryApply is the backoff of an apply that has failed.
var retryApply = wait.Backoff{Duration: 5 * time.Second, Factor: 1.5, Steps: 8, Cap: 2 * time.Minute}

// explainEvery is how often pods that do not become ready are diagnosed, which costs requests.
const explainEvery = 10 * time.Second

// pauseHooks is how long a rollout is left alone that a lifecycle hook has stopped. To try it again each time that the
// release is applied would scale a Deployment to 0 for its mid hook every two minutes.
const pauseHooks = 30 * time.Minute

// keep applies the release and keeps it in place, again and again, until it is stopped. It returns an error if another
// process has the lock, or has applied something else. A lock that was lost, and that no other process has taken, is
// acquired again by the next apply.
func (r *running) keep() error {
	for {
		outcome := r.applier.session.Apply(r.ctx, r.payload, r.options())
		switch {
		case r.ctx.Err() != nil, errors.Is(outcome.Err, session.ErrSuperseded):
			return nil
		case lock.IsTaken(outcome.Err), errors.As(outcome.Err, new(*lock.HeldError)),
			errors.Is(outcome.Err, session.ErrYielded):
			return outcome.Err
		}
		select {
		case <-r.ctx.Done():
			return nil
		case <-time.After(r.setEnded(outcome.Err)):
		}
	}
}

// failures returns the steps that have failed: in this apply, and in those before it until this one has done the same
// steps. Otherwise, conditions would change with each attempt. A failure that recurs keeps the time of the first one.
func (r *running) failures() []apply.RunStepState {
	now := map[object.StepID]apply.RunStepState{}
	var all []apply.RunStepState
	for _, step := range r.state.Steps() {
		now[step.StepID()] = step
		if step.IsFailing() {
			all = append(all, step)
		}
	}
	for _, before := range r.before {
		step, isKnown := now[before.StepID()]
		at := slices.IndexFunc(all, func(failed apply.RunStepState) bool { return failed.StepID() == before.StepID() })
		switch {
		case at >= 0 && all[at].Reason == before.Reason:
			all[at].Since = before.Since
		case at < 0 && (!isKnown || isUnresolved(before, step)):
			all = append(all, before)
		}
	}
	return all
}

// isUnresolved reports whether a step that has failed before has not been done since. An object that never became
// ready, and that this apply has not changed, has failed until it is ready.
func isUnresolved(before, now apply.RunStepState) bool {
	switch now.Phase {
	case apply.Done, apply.Skipped:
		return false
	case apply.InWait:
		return before.Action != object.Failed && now.Action == object.Unchanged
	default:
		return true
	}
}

// setEnded notes why an apply has ended, and returns how long it is until the next one.
func (r *running) setEnded(err error) (pause time.Duration) {
	r.applier.update(func() {
		if !r.hasBegun { // the state is of the previous apply
			r.state = nil
		}
		r.err, r.isComplete, r.hasBegun, r.before = err, false, false, nil
		pause = r.backoff.Step()
	})
	return pause
}

// options returns how the release is applied and kept in place.
func (r *running) options() session.Options {
	o := r.applier.sessionOptions(r.target)
	o.Verified, o.Files.Packed = r.signed.isVerified, r.packed
	if r.signed.risk != "" {
		o.Forced = []string{signature.VerificationFailed}
	}
	o.Observer = r
	o.Apply.OnEvent, o.Apply.ReportStates = r.onEvent, true
	o.Keep = &keep.Options{OnEvent: func(e keep.Event) { r.applier.kept(e) }}
	return o
}

// onEvent notes an event of the apply.
func (r *running) onEvent(e apply.Event) {
	if e.Type == apply.StateChanged {
		r.applier.update(func() { r.state = e.State })
		return
	}
	r.applier.monitor.applied(r.release.Version, e)
}

// OnOutcome notes the outcome of the apply until now, or that an outage has interrupted it.
func (r *running) OnOutcome(outcome *session.Outcome) {
	if outcome.IsInterrupted {
		r.applier.update(func() { r.err = outcome.Err })
		return
	}
	r.applier.update(func() {
		r.before = nil // all failures have recurred in this attempt by now
		r.err, r.isComplete, r.before = outcome.Err, outcome.Err == nil, r.failures()
		if r.isComplete {
			r.backoff = retryApply
		}
	})
	if outcome.Err == nil {
		r.applier.monitor.setFullPass()
		select {
		case r.applier.completed <- struct{}{}:
		default: // the settings are to be watched anyway
		}
	}
	logWarnings(outcome)
	releaseMemory()
}

// logWarnings logs the warnings of the API server in an apply, such as unknown fields, and why files are not kept.
func logWarnings(outcome *session.Outcome) {
	log := ctrl.Log.WithName("apply")
	for _, warning := range outcome.FileWarnings {
		log.Info("the files of the release are not kept for later, or others are", "reason", warning)
	}
	if outcome.Report == nil {
		return
	}
	for _, warning := range outcome.Report.Warnings {
		log.Info("the API server warns", "warning", warning.Text, "files", warning.Files)
	}
}

// OnBegin notes that an apply begins.
func (r *running) OnBegin(outcome *session.Outcome) error {
	r.applier.update(func() {
		r.before = r.failures()
		r.mode, r.hasBegun, r.done, r.state = outcome.Mode, true, 0, nil
		r.intent = progress.IntentOf(outcome.Mode, r.payload.Manifests, outcome.Durations)
	})
	return nil
}

// OnRecorded notes that the record has the apply, and creates the ClusterOperators before the other objects.
func (r *running) OnRecorded(ctx context.Context, c *cluster.Cluster) error {
	r.applier.update(func() { r.isRecorded, r.err = true, nil })
	return precreate(ctx, c, r.payload)
}

// sessionOptions returns how a release is applied. Fields that the cluster does not know are dropped, as by the
// cluster-version operator: releases that were made for it have some.
func (a *applier) sessionOptions(t *target) session.Options {
	return session.Options{
		Namespace: a.options.Namespace, Source: t.Image, Own: a.options.Payload, Force: t.Force, Notify: a.sender,
		Apply: apply.Options{
			Options:    object.Options{Standard: a.options.Standard, DropUnknownFields: true},
			PauseHooks: pauseHooks,
			AskWhy:     explainEvery,
		},
	}
}

// seen returns the state of the release. The caller holds the lock of the applier.
func (r *running) seen() *clusterversion.AppliedRelease {
	applied := &clusterversion.AppliedRelease{
		Release: r.release, Hash: r.packed.Digest, Forced: r.signed.acceptedRisks(r.forced),
		Verified: r.signed.isVerified,
		Total:    len(r.payload.Manifests), IsComplete: r.isComplete,
	}
	if r.isRecorded {
		applied.Mode = r.mode
	}
	if filter := r.payload.Filter.Capabilities; filter != nil {
		applied.Capabilities, applied.Implicit = knownOf(*filter), implicitOf(r.target, r.payload)
	} else {
		all := configv1.KnownClusterVersionCapabilities
		applied.Capabilities = configv1.ClusterVersionCapabilitiesStatus{
			KnownCapabilities:   all,
			EnabledCapabilities: all,
		}
	}
	far := progress.Of(r.intent, r.state)
	r.done = max(r.done, far.Done) // an object that was ready may break, and is not applied less for that
	applied.Done = r.done
	if !r.isComplete {
		applied.Problems = problemsOf(far.Waits, r.failures(), r.err)
	}
	for _, event := range r.applier.session.Kept().Problems() {
		applied.Problems = append(applied.Problems, clusterversion.ReleaseProblem{
			Wait: apply.Wait{
				ID:     *event.Object,
				File:   event.File,
				For:    event.Message,
				Reason: event.Reason,
				Since:  event.Time,
			},
		})
	}
	return applied
}

// problemsOf returns the problems of an incomplete apply: its waits, its failures, and otherwise the error with which
// it has ended.
func problemsOf(waits []apply.Wait, failures []apply.RunStepState, ended error) []clusterversion.ReleaseProblem {
	var all []clusterversion.ReleaseProblem
	for _, wait := range waits {
		all = append(all, clusterversion.ReleaseProblem{Wait: wait, IsWait: true})
	}
	for _, failed := range failures {
		all = append(all, clusterversion.ReleaseProblem{Wait: failed.Wait})
	}
	isOfObject := func(p clusterversion.ReleaseProblem) bool { return !p.IsWait }
	if ended != nil && !slices.ContainsFunc(all, isOfObject) && !errors.As(ended, new(*object.Failure)) &&
		!errors.Is(ended, apply.ErrTimeout) {
		all = append(all, clusterversion.ReleaseProblem{Wait: apply.Wait{
			For:    ended.Error(),
			Reason: reason.Of(ended),
			Effect: reason.EffectOf(ended),
		}})
	}
	return all
}
