package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// repeatPreflight is the pause after a preflight with a result, and settlePreflight the one before a preflight that
// replaces another: each of several edits would begin the dry runs again. maxPreflight limits the time of a preflight:
// it is shorter than the time after which a probe fails.
const (
	repeatPreflight = 5 * time.Minute
	settlePreflight = 2 * time.Second
	maxPreflight    = 12 * time.Minute
)

// runPreflight takes the preflight of a target through the states, and returns the pause before it is repeated. If it
// has no result, it is repeated as soon as a refused target is, unless it takes too long.
func (m *stateMachine) runPreflight(
	ctx context.Context, requested *target, isRetry bool, backoff *wait.Backoff,
) (pause time.Duration) {
	next := &candidate{
		machine: m, targetRelease: targetRelease{target: requested.Preflight}, isRetry: isRetry, isPreflight: true,
	}
	limited, cancel := context.WithTimeoutCause(ctx, maxPreflight,
		fmt.Errorf("the preflight did not end: %w after %s", apply.ErrTimeout, maxPreflight))
	defer cancel()
	err := m.attempt(limited, next, requested)
	releaseMemory()
	switch {
	case err == nil:
		*backoff = retryAcceptance
	case errors.Is(err, apply.ErrTimeout):
		next.acceptance.Err = err
	default:
		return backoff.Step()
	}
	next.publish(ctx)
	return repeatPreflight
}

// refusePreflight publishes that the preflight of a target does not run, since the current release is not accepted.
func (m *stateMachine) refusePreflight(ctx context.Context, requested *target, refusal error) {
	if requested.Preflight == nil || ctx.Err() != nil || !m.holds() {
		return
	}
	c := &candidate{machine: m, targetRelease: targetRelease{target: requested.Preflight}}
	c.acceptance = c.target.at(clusterversion.Retrieving)
	c.acceptance.Err = fmt.Errorf("not checked: the current release is not accepted: %w", refusal)
	c.publishPreflight()
}

// publishPreflight sets the preflight of the output, unless the target is outdated. An outage does not replace a
// result.
func (c *candidate) publishPreflight() {
	m := c.machine
	m.update(func() {
		isKept := m.preflight != nil && m.preflight.Effects != nil && cluster.IsOutage(c.acceptance.Err)
		if m.input.target.Preflight == c.target && !isKept {
			m.preflight = &clusterversion.Preflight{
				Acceptance: c.acceptance, IsForced: c.target.Force, Effects: c.effects,
			}
		}
	})
}

// inspect returns what an apply would find, with the findings of the gate, and for a preflight also those of dry runs.
// The error is nil if all checks and dry runs have ended.
func (c *candidate) inspect(ctx context.Context, s *session.Session) (*session.Outcome, error) {
	options := c.machine.inspectOptions(c.target)
	options.LeftOut = c.unread.err()
	c.acceptance.Unread = c.unread.lines(c.machine.options.UnknownFlags)
	if !c.isPreflight {
		outcome := s.Inspect(ctx, c.payload, options)
		return outcome, outcome.Err
	}
	c.acceptance.Release.Version = c.payload.Version
	effects := &clusterversion.Effects{}
	options.Apply.OnPreview = func(change *object.Change) { note(effects, change) }
	outcome := s.Preview(ctx, c.payload, options)
	isUndone := func(change object.Change) bool {
		return change.Action == object.NotDone || change.Err != nil && cluster.IsNoAnswer(change.Err)
	}
	switch {
	case outcome.Report == nil:
		return nil, outcome.Err
	case outcome.Report.Err != nil && len(outcome.Report.Changes) == 0: // no dry run has begun
		return nil, outcome.Report.Err
	case slices.ContainsFunc(outcome.Report.Changes, isUndone):
		return nil, fmt.Errorf("the dry runs of the preflight did not end: %w", outcome.Err)
	}
	for _, objects := range [][]kinds.ID{effects.Deleted, effects.Recreated, effects.Restarted} {
		slices.SortFunc(objects, kinds.Compare) // dry runs end in any order
	}
	c.effects = effects
	c.acceptance.Unverified, c.acceptance.AcceptedRisk = c.signed.unverified, c.signed.risk
	outcome.Findings = outcome.PreviewFindings()
	return outcome, nil
}

// note adds what an update would do to an object, by its dry run. It drops the states of the object: those of a large
// release take more memory than its update.
func note(effects *clusterversion.Effects, change *object.Change) {
	switch {
	case change.Err != nil: // also of a hook's pod
		effects.Refused++
	case change.Hook != "":
	case change.Action == object.Created:
		effects.Created++
	case change.Action == object.Deleted:
		effects.Deleted = append(effects.Deleted, change.ID)
	case change.Action == object.Recreated:
		effects.Recreated = append(effects.Recreated, change.ID)
	case change.Action == object.Configured:
		effects.Changed++
		if replacesPods(change) {
			effects.Restarted = append(effects.Restarted, change.ID)
		}
	}
	change.Look = nil
}

// rolledOut are the kinds whose controllers replace pods when the template changes.
var rolledOut = []schema.GroupKind{kinds.DaemonSet, kinds.Deployment, kinds.StatefulSet}

// replacesPods reports whether a change of a workload replaces its pods.
func replacesPods(change *object.Change) bool {
	if !slices.Contains(rolledOut, change.ID.GroupKind()) || change.Look == nil || change.Look.Live == nil {
		return false
	}
	live, _, _ := unstructured.NestedFieldNoCopy(change.Look.Live.Object, "spec", "template")
	would, _, _ := unstructured.NestedFieldNoCopy(change.Look.Would.Object, "spec", "template")
	return !equality.Semantic.DeepEqual(live, would)
}
