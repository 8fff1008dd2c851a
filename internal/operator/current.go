package operator

import (
	"context"
	"errors"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/config/clusteroperator/v1helpers"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/operator/automatic"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record"
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

// retryApply is the backoff of an apply that has failed.
var retryApply = wait.Backoff{Duration: 5 * time.Second, Factor: 1.5, Steps: 8, Cap: 2 * time.Minute}

// explainEvery is the time from one diagnosis of pods that do not become ready to the next: each one costs requests.
const explainEvery = 10 * time.Second

// pauseHooks is the pause after a lifecycle hook has stopped the rollout of a Deployment. A retry with each apply would
// scale a Deployment to 0 for its mid hook every two minutes.
const pauseHooks = 30 * time.Minute

// A currentRelease applies the current release, and keeps it in place.
type currentRelease struct {
	machine *stateMachine
	release targetRelease           // does not change
	ctx     context.Context         // of run, and of the tests
	stop    context.CancelCauseFunc // ends run

	// The following fields are guarded by the mutex of the machine.
	state      currentState
	mode       graph.Mode
	intent     progress.Intent
	steps      *apply.RunState      // steps of the last apply; nil before it has begun
	progress   progress.Progress    // progress of the steps
	done       int                  // the highest count of applied manifests in the progress
	before     []apply.RunStepState // steps that have failed in previous applies
	isRecorded bool                 // the record has an apply of the release
	backoff    wait.Backoff         // pauses between applies that fail
	err        error                // error of the last apply that has ended
	tests      *automatic.Tests     // those that have not all passed
}

// A currentState is a state of the current release: see stateMachine.
type currentState string

const (
	pending  currentState = "pending"
	applying currentState = "applying"
	keeping  currentState = "keeping"
)

// run applies the release and keeps it in place, again and again, until its context ends. It returns an error if
// another process has the lock, or has applied something else. The next apply acquires a lost lock that no other
// process has taken.
func (r *currentRelease) run() error {
	for {
		err := r.machine.session.Apply(r.ctx, r.release.payload, r.applyOptions()).Err
		switch {
		case r.ctx.Err() != nil, errors.Is(err, session.ErrSuperseded):
			return nil
		case lock.IsTaken(err), errors.As(err, new(*lock.HeldError)), errors.Is(err, session.ErrYielded):
			return err
		}
		object.Pause(r.ctx, r.setEnded(err))
	}
}

// inspectOptions returns the options of an inspection of a target. Unknown fields are dropped, as by the
// cluster-version operator: its releases have some.
func (m *stateMachine) inspectOptions(t *target) session.Options {
	o := m.options
	return session.Options{
		Namespace: o.Namespace, Source: t.Image, Own: o.Payload, Force: t.Force, Notify: m.sender,
		Apply: apply.Options{
			Options:    object.Options{Standard: o.Standard, DropUnknownFields: true},
			PauseHooks: pauseHooks,
			AskWhy:     explainEvery,
		},
	}
}

// applyOptions returns the options of an apply that keeps the release in place.
func (r *currentRelease) applyOptions() session.Options {
	o := r.machine.inspectOptions(r.release.target)
	o.Verified, o.Files.Packed = r.release.signed.isVerified, r.release.packed
	if r.release.signed.risk != "" {
		o.Forced = []string{signature.VerificationFailed}
	}
	o.Observer, o.LeftOut = r, r.release.unread.err()
	o.Apply.OnEvent, o.Apply.ReportStates = r.noteApply, true
	o.Keep = &keep.Options{OnEvent: r.noteKept}
	return o
}

// OnBegin notes that the session's gate has let an apply pass.
func (r *currentRelease) OnBegin(outcome *session.Outcome) error {
	r.machine.update(func() {
		if r.state == pending { // otherwise the session applies the release again after an outage
			r.state = applying
		}
		r.before = r.failures()
		r.mode, r.done = outcome.Mode, 0
		r.intent = progress.IntentOf(outcome.Mode, r.release.payload.Manifests, outcome.Durations)
		r.setSteps(nil)
	})
	return nil
}

// OnRecorded notes that the record has the apply, and creates the ClusterOperators before the other objects.
func (r *currentRelease) OnRecorded(ctx context.Context, c *cluster.Cluster) error {
	r.machine.update(func() { r.isRecorded, r.err = true, nil })
	return precreate(ctx, c, r.release.payload)
}

// setSteps sets the steps of the apply, and their progress. An object that was ready may break, and counts as applied
// all the same. The caller holds the mutex of the machine.
func (r *currentRelease) setSteps(steps *apply.RunState) {
	r.steps = steps
	r.progress = progress.Of(r.intent, steps)
	r.done = max(r.done, r.progress.Done)
}

// OnOutcome sets the outcome of an apply whose objects are ready, or were not ready in time, or which an outage has
// interrupted.
func (r *currentRelease) OnOutcome(outcome *session.Outcome) {
	if outcome.IsInterrupted {
		r.machine.update(func() { r.err = outcome.Err })
		return
	}
	r.machine.update(func() {
		r.before = nil // all failures have recurred in this attempt by now
		r.before = r.failures()
		r.state, r.err = applying, outcome.Err
		if outcome.Err == nil || reason.Of(outcome.Err) == record.ReasonLeftOut {
			r.state, r.backoff = keeping, retryApply
			r.machine.fullPass = r.machine.cluster.Now()
			r.machine.settings.restart() // the release may have brought their kinds
		}
	})
	logWarnings(outcome)
	releaseMemory()
}

// setEnded notes why an apply has ended, and returns the pause before the next one.
func (r *currentRelease) setEnded(err error) (pause time.Duration) {
	r.machine.update(func() {
		if r.state == pending { // the steps are those of the previous apply
			r.setSteps(nil)
		}
		r.state, r.err, r.before = pending, err, nil
		pause = r.backoff.Step()
	})
	return pause
}

// noteApply sets the steps of the apply, and counts its failures in the metrics.
func (r *currentRelease) noteApply(event apply.Event) {
	switch event.Type {
	case apply.StateChanged:
		r.machine.update(func() { r.setSteps(event.State) })
	case apply.Retrying, apply.Failing:
		r.machine.counters.Failed(r.release.payload.Version)
	}
}

// noteKept logs and counts an event of the keeper of the release.
func (r *currentRelease) noteKept(event keep.Event) {
	log := ctrl.Log.WithName("keep")
	if event.Object != nil {
		log = log.WithValues("object", event.Object.String())
	}
	log.Info(string(event.Type), "action", string(event.Action), "message", event.Message)
	r.machine.update(func() {
		switch event.Type {
		case keep.Repaired:
			r.machine.counters.Repaired(event.Object.GroupKind())
		case keep.Missed:
			r.machine.counters.Missed()
		case keep.Passed:
			r.machine.fullPass = r.machine.cluster.Now()
		}
	})
}

// logWarnings logs the warnings of the API server about an apply, and why files could not be stored.
func logWarnings(outcome *session.Outcome) {
	log := ctrl.Log.WithName("apply")
	for _, warning := range outcome.FileWarnings {
		log.Info("the files of the release could not be stored", "reason", warning)
	}
	if outcome.Report == nil {
		return
	}
	for _, warning := range outcome.Report.Warnings {
		log.Info("the API server warns", "warning", warning.Text, "files", warning.Files)
	}
}

// failures returns the failed steps of this apply, and those of applies before until this one has done the same steps:
// conditions would otherwise change with each attempt. A failure that recurs keeps the time of the first one.
func (r *currentRelease) failures() []apply.RunStepState {
	current := map[object.StepID]apply.RunStepState{}
	var all []apply.RunStepState
	for _, step := range r.steps.Steps() {
		current[step.StepID()] = step
		if step.IsFailing() {
			all = append(all, step)
		}
	}
	for _, before := range r.before {
		step, isKnown := current[before.StepID()]
		index := slices.IndexFunc(all, func(failed apply.RunStepState) bool {
			return failed.StepID() == before.StepID()
		})
		switch {
		case index >= 0 && all[index].Reason == before.Reason:
			all[index].Since = before.Since
		case index < 0 && (!isKnown || isUnresolved(before, step)):
			all = append(all, before)
		}
	}
	return all
}

// isUnresolved reports whether a failed step of a previous apply was not done since. An object that did not become
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

// status returns the state of the release.
func (r *currentRelease) status() *clusterversion.AppliedRelease {
	isWhole := r.release.unread.err() == nil
	applied := &clusterversion.AppliedRelease{
		Release:    r.release.acceptance.Release,
		Hash:       r.release.packed.Digest,
		Forced:     r.release.signed.acceptedRisks(r.release.acceptedRisks()),
		Verified:   r.release.signed.isVerified,
		Done:       r.done,
		Total:      len(r.release.payload.Manifests),
		Deletes:    r.machine.input.deletes,
		IsKept:     r.state == keeping,
		IsComplete: r.state == keeping && isWhole,
	}
	if r.isRecorded {
		applied.Mode = r.mode
	}
	applied.Capabilities.KnownCapabilities = configv1.KnownClusterVersionCapabilities
	applied.Capabilities.EnabledCapabilities = configv1.KnownClusterVersionCapabilities
	if filter := r.release.payload.Filter.Capabilities; filter != nil {
		applied.Capabilities, applied.Implicit = knownOf(*filter), implicitOf(r.release.target, r.release.payload)
	}
	if r.state != keeping || !isWhole {
		applied.Problems = r.problems()
	}
	for _, event := range r.machine.session.Kept().Problems() {
		wait := apply.Wait{
			ID: *event.Object, File: event.File, For: event.Message, Reason: event.Reason, Since: event.Time,
		}
		isContested := event.Type == keep.Contested
		applied.Problems = append(applied.Problems, clusterversion.ReleaseProblem{Wait: wait, IsContested: isContested})
	}
	return applied
}

// problems returns the problems of an incomplete apply: its waits and its failures, or else its error.
func (r *currentRelease) problems() []clusterversion.ReleaseProblem {
	var all []clusterversion.ReleaseProblem
	for _, wait := range r.progress.Waits {
		all = append(all, clusterversion.ReleaseProblem{Wait: wait, IsWait: true})
	}
	failures := r.failures()
	for _, failed := range failures {
		all = append(all, clusterversion.ReleaseProblem{Wait: failed.Wait})
	}
	isOfObject := len(failures) > 0 || errors.As(r.err, new(*object.Failure)) || errors.Is(r.err, apply.ErrTimeout)
	if r.err != nil && !isOfObject {
		wait := apply.Wait{For: r.err.Error(), Reason: reason.Of(r.err), Effect: reason.EffectOf(r.err)}
		all = append(all, clusterversion.ReleaseProblem{Wait: wait})
	}
	return all
}

// operatorsOf returns the manifests of the ClusterOperators of a release.
func operatorsOf(p *payload.Payload) []*payload.Manifest {
	return slices.DeleteFunc(slices.Clone(p.Manifests), func(m *payload.Manifest) bool {
		return m.ID().GroupKind() != kinds.ClusterOperator || m.IsTombstone()
	})
}

// addOperators adds to the state of the release the problems that its ClusterOperators report, and the missing ones,
// once it is kept in place.
func (r *currentRelease) addOperators(
	applied *clusterversion.AppliedRelease, operators []configv1.ClusterOperator, isInstall bool,
) {
	if !applied.IsKept {
		return
	}
	for _, m := range operatorsOf(r.release.payload) {
		index := slices.IndexFunc(operators, func(o configv1.ClusterOperator) bool { return o.Name == m.ID().Name })
		if index < 0 {
			applied.MissingOperators = append(applied.MissingOperators, m.ID().Name)
			continue
		}
		if problem, found := operatorProblem(m, &operators[index], isInstall); found {
			applied.Problems = append(applied.Problems, problem)
		}
	}
}

// operatorProblem returns the problem that a ClusterOperator of the release reports.
func operatorProblem(
	m *payload.Manifest, reported *configv1.ClusterOperator, isInstall bool,
) (problem clusterversion.ReleaseProblem, found bool) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(reported)
	if err != nil {
		return problem, false // this can't happen: the ClusterOperator came from the API server
	}
	live := &unstructured.Unstructured{Object: fields}
	live.SetGroupVersionKind(configv1.GroupVersion.WithKind(kinds.ClusterOperator.Kind)) // typed objects have none
	verdict := ready.Check(live, ready.Upstream, ready.Related{Manifest: m.Object(), Installing: isInstall})
	if verdict.State == ready.Ready {
		return problem, false
	}
	return clusterversion.ReleaseProblem{IsWait: true, Wait: apply.Wait{
		ID: m.ID(), File: m.Path, For: verdict.Message, Reason: verdict.Reason, Effect: verdict.Effect,
		Since: lastTransition(reported).Time,
	}}, true
}

// lastTransition returns when a ClusterOperator last changed whether it is available, or degraded.
func lastTransition(operator *configv1.ClusterOperator) (last metav1.Time) {
	for _, kind := range []configv1.ClusterStatusConditionType{configv1.OperatorAvailable, configv1.OperatorDegraded} {
		condition := v1helpers.FindStatusCondition(operator.Status.Conditions, kind)
		if condition != nil && last.Before(&condition.LastTransitionTime) {
			last = condition.LastTransitionTime
		}
	}
	return last
}
