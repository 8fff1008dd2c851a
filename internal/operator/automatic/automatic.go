// Package automatic decides when a cluster updates itself, and when it goes back to the version before. It is pure: the
// input is a ClusterVersion, whose annotations have the policy, and the time.
//
// The package never decides against a person: an update that a user has requested stays, and a version that the
// cluster was rolled back from is not taken again. The request of the operator is judged as a person's: the gate may
// refuse it.
//
// Start with Decide.
package automatic

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/config/clusteroperator/v1helpers"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// An Action is a change of spec.desiredUpdate.
type Action string

// The actions. No action is needed if it is empty.
const (
	Take     Action = "Take"     // request an update
	RollBack Action = "RollBack" // request the version before an update
	Test     Action = "Test"     // run the tests of the current release
	Withdraw Action = "Withdraw" // remove the request, which is complete or no longer wanted
)

// A Decision is what should happen now, and why.
type Decision struct {
	Action  Action
	Release configv1.Release // release to request, or whose preflight is needed
	// Reason and Message are those of the condition AutomaticUpdates. They are empty if automatic updates are off.
	Reason, Message string
	IsHeld          bool      // automatic updates wait for a person, or for a preflight that passes
	ChangesAt       time.Time // when the decision may change without another input; zero for never
}

// The reasons of decisions.
const (
	InvalidAnnotations = "InvalidAnnotations"
	RequestedByUser    = "RequestedByUser"
	NoUpdate           = "NoUpdate"
	Waiting            = "Waiting"
	RunningPreflight   = "RunningPreflight"
	FailedPreflight    = "FailedPreflight"
	Updating           = "Updating"
	RunningTests       = "RunningTests"
	FailedTests        = "FailedTests"
	RollingBack        = "RollingBack"
)

// An Input is a ClusterVersion at a time.
type Input struct {
	Version *configv1.ClusterVersion
	Now     time.Time
	// IsAnswered is true if the updates of the status are the answer of the update service. An older one may have
	// an update which was halted since.
	IsAnswered bool
	Tests      *Tests // tests of the current release; nil if it has none, or all have passed
	// Preflight is that of the release of the last decision; nil if none was needed.
	Preflight *clusterversion.Preflight
}

// Tests are the tests of a release that have not all passed.
type Tests struct {
	HasBegun bool
	Failure  string // the failed ones; empty until they have ended
}

// Decide returns what should happen to a cluster.
func Decide(input Input) Decision {
	d := decider{Input: input, history: input.Version.Status.History}
	var err error
	d.policy, err = readPolicy(input.Version.Annotations)
	d.isOff = err != nil || d.policy.updates == off
	decision := d.decide()
	if err != nil {
		decision.Reason, decision.Message = InvalidAnnotations, "No automatic updates: "+err.Error()
		decision.IsHeld = true
	}
	return decision
}

// A decider decides by the policy of a cluster.
type decider struct {
	Input
	policy  policy
	isOff   bool             // no update may begin, and none goes back
	own     *configv1.Update // request of the operator in spec.desiredUpdate; nil if there is none
	history []configv1.UpdateHistory
}

func (d *decider) decide() Decision {
	own, others := requested(d.Version)
	d.own = own
	isBegun := len(d.history) > 0 && own != nil && own.Image == d.history[0].Image
	switch {
	case isBegun && !IsRollback(d.history):
		return d.followUpdate()
	case isBegun, own != nil && len(d.history) > 0 && compare(own.Version, d.history[0].Version) < 0:
		return d.followRollback(isBegun)
	case d.isOff:
		return d.refuse(Decision{})
	case others != "":
		return Decision{Reason: RequestedByUser, IsHeld: true, Message: fmt.Sprintf(
			"No automatic updates while spec.desiredUpdate has the request of a user (set by %s): remove it, as with "+
				"oc adm upgrade --clear", others)}
	default:
		return d.choose()
	}
}

// refuse returns a decision for no update, which withdraws a request that has not begun.
func (d *decider) refuse(decision Decision) Decision {
	if d.own != nil {
		decision.Action = Withdraw
	}
	return decision
}

// followUpdate decides on an update that the operator has requested and begun. With rollbacks, it is judged until the
// time for it has passed. It goes back if it is not complete, or Failing, for that long.
func (d *decider) followUpdate() Decision {
	update, after := d.history[0], d.policy.rollbackAfter
	failing := v1helpers.FindStatusCondition(d.Version.Status.Conditions, clusterversion.Failing)
	isFailing := failing != nil && failing.Status == configv1.ConditionTrue
	isComplete := update.State == configv1.CompletedUpdate
	since, text := update.StartedTime.Time, "Updates itself to "+update.Version
	if isComplete {
		text = "Has updated itself to " + update.Version
		if isFailing && failing.LastTransitionTime.After(since) {
			since = failing.LastTransitionTime.Time
		}
	}
	before, deadline := clusterversion.LastCompleted(d.history[1:]), since.Add(after)
	isDue := !d.Now.Before(deadline)
	switch {
	case isComplete && !d.isOff && d.Tests != nil:
		return d.followTests(text, before)
	case isComplete && (d.isOff || after == 0 || !isFailing && isDue):
		return Decision{Action: Withdraw, Reason: Updating, Message: text}
	case d.isOff || after == 0:
		return Decision{Reason: Updating, Message: text}
	case before == nil || before.Image == "":
		return Decision{Reason: Updating, Message: text + ". It can't go back: the version before is not known"}
	case !isDue:
		text += fmt.Sprintf(", and goes back to %s if it ", before.Version)
		switch {
		case !isComplete:
			text += "is not complete at " + moment(deadline)
		case isFailing:
			text += "still fails at " + moment(deadline)
		default:
			text += fmt.Sprintf("begins to fail before %s, and fails for %s", moment(deadline), after)
		}
		return Decision{Reason: Updating, Message: text, ChangesAt: deadline}
	}
	why := "it is not complete"
	if isFailing {
		why = failing.Reason + ": " + failing.Message
	}
	return Decision{
		Action: RollBack, Release: configv1.Release{Version: before.Version, Image: before.Image}, Reason: RollingBack,
		Message: fmt.Sprintf("Goes back from %s to %s after %s: %s", update.Version, before.Version, after, why),
	}
}

// followTests decides on a complete update whose tests have not all passed. A failed test does not heal, so
// the update goes back at once, if it may.
func (d *decider) followTests(text string, before *configv1.UpdateHistory) Decision {
	updated := d.history[0].Version
	switch {
	case d.Tests.Failure == "" && d.Tests.HasBegun:
		return Decision{Reason: RunningTests, Message: text + ", and runs its tests"}
	case d.Tests.Failure == "":
		return Decision{Action: Test, Reason: RunningTests, Message: text + ", and runs its tests"}
	case d.policy.rollbackAfter == 0 || before == nil || before.Image == "":
		return Decision{Reason: FailedTests, IsHeld: true, Message: fmt.Sprintf(
			"No automatic updates, since tests of %s failed: %s. Remove the request to continue, as with "+
				"oc adm upgrade --clear", updated, d.Tests.Failure)}
	}
	return Decision{
		Action: RollBack, Release: configv1.Release{Version: before.Version, Image: before.Image}, Reason: RollingBack,
		Message: fmt.Sprintf("Goes back from %s to %s, since tests failed: %s", updated, before.Version,
			d.Tests.Failure),
	}
}

// followRollback decides on a rollback that the operator has requested. The request is withdrawn once the rollback is
// complete. It is also withdrawn if the gate has not accepted it, and the update is complete and well by now; its tests
// run again if an operator that was restarted does not know that they have passed.
func (d *decider) followRollback(isBegun bool) Decision {
	decision := Decision{Reason: RollingBack, Message: "Goes back to " + d.own.Version}
	isComplete := d.history[0].State == configv1.CompletedUpdate
	isWell := !v1helpers.IsStatusConditionTrue(d.Version.Status.Conditions, clusterversion.Failing)
	if !isBegun {
		decision.Message += ", unless the gate refuses it: see ReleaseAccepted"
	}
	switch {
	case isBegun && isComplete, !isBegun && (d.isOff || isComplete && isWell && d.Tests == nil):
		decision.Action = Withdraw
	case !isBegun && isComplete && isWell && !d.Tests.HasBegun:
		decision.Action = Test
	}
	return decision
}

// choose decides which update to begin.
func (d *decider) choose() Decision {
	window, begin, end := next(d.policy.windows, d.Now)
	isOpen := !d.Now.Before(begin)
	switch {
	case len(d.history) == 0 || d.history[0].State != configv1.CompletedUpdate:
		return d.refuse(Decision{Reason: Waiting, Message: "Waits until the current release is complete"})
	case !d.IsAnswered && isOpen: // a request of before stays
		return Decision{Reason: Waiting, Message: waitsForAnswer, ChangesAt: end}
	case !d.IsAnswered:
		return d.refuse(Decision{Reason: Waiting, Message: waitsForAnswer})
	}
	best, skipped := d.best()
	if best == nil {
		text := fmt.Sprintf("No %s update is available", d.policy.updates)
		if len(skipped) > 0 {
			text += ": " + strings.Join(skipped[:min(len(skipped), maxSkipped)], "; ")
		}
		return d.refuse(Decision{Reason: NoUpdate, Message: text})
	}
	text := "Updates itself to " + best.Version
	if !isOpen {
		return d.refuse(Decision{Reason: Waiting, ChangesAt: begin, Message: fmt.Sprintf(
			"%s in the window from %s (%s)", text, begin.Format(time.RFC3339), window.text)})
	}
	decision := d.begin(*best)
	decision.Release, decision.ChangesAt = *best, end
	return decision
}

// begin decides on an update that may begin. It begins when its preflight, which the operator repeats, has passed.
func (d *decider) begin(update configv1.Release) Decision {
	text := "Updates itself to " + update.Version
	if d.own != nil && d.own.Image == update.Image {
		return Decision{Reason: Updating, Message: text}
	}
	running := Decision{Reason: RunningPreflight, Message: text + " when its preflight has passed"}
	if d.own != nil || d.Preflight == nil || d.Preflight.Release.Image != update.Image {
		return d.refuse(running)
	}
	switch status, message := d.Preflight.Result(); status {
	case configv1.ConditionTrue:
		return Decision{Action: Take, Reason: Updating, Message: text}
	case configv1.ConditionFalse:
		return Decision{Reason: FailedPreflight, IsHeld: true, Message: fmt.Sprintf(
			"No automatic update to %s until its preflight passes: %s", update.Version, message)}
	default:
		return running
	}
}

const waitsForAnswer = "Waits for an answer of the update service: see RetrievedUpdates"

// maxSkipped is the maximum number of skipped versions that a message explains.
const maxSkipped = 5

// best returns the newest available update that the policy allows, or nil, and why newer ones are skipped.
func (d *decider) best() (best *configv1.Release, skipped []string) {
	current := d.history[0].Version
	isUpgradeable := !v1helpers.IsStatusConditionFalse(d.Version.Status.Conditions, configv1.OperatorUpgradeable)
	available := slices.Clone(d.Version.Status.AvailableUpdates)
	slices.SortFunc(available, func(a, b configv1.Release) int { return compare(b.Version, a.Version) })
	for i, release := range available {
		isMinor := precondition.IsMinor(current, release.Version)
		switch {
		case compare(release.Version, current) <= 0, isMinor && d.policy.updates != minor, !d.isRecommended(release):
		case isMajor(current, release.Version):
			skipped = append(skipped, release.Version+" is another major version")
		case d.wasRolledBack(release.Version):
			skipped = append(skipped, release.Version+" was rolled back before")
		case isMinor && !isUpgradeable:
			skipped = append(skipped, release.Version+" is another minor version, and Upgradeable is False")
		default:
			return &available[i], nil
		}
	}
	return nil, skipped
}

// isRecommended reports whether no risk of a conditional update counts.
func (d *decider) isRecommended(release configv1.Release) bool {
	return !slices.ContainsFunc(d.Version.Status.ConditionalUpdates, func(u configv1.ConditionalUpdate) bool {
		return u.Release.Version == release.Version && !meta.IsStatusConditionTrue(u.Conditions, "Recommended")
	})
}

// wasRolledBack reports whether an older version was applied after a version.
func (d *decider) wasRolledBack(version string) bool {
	for i := range d.history {
		if d.history[i].Version == version {
			return slices.ContainsFunc(d.history[:i], func(h configv1.UpdateHistory) bool {
				return compare(h.Version, version) < 0
			})
		}
	}
	return false
}

// IsRollback reports whether the newest version in a history is older than the one before it.
func IsRollback(history []configv1.UpdateHistory) bool {
	return len(history) > 1 && compare(history[0].Version, history[1].Version) < 0
}

// compare compares versions; those that are not semantic ones are older than others.
func compare(a, b string) int {
	parsedA, _ := semver.Parse(a)
	parsedB, _ := semver.Parse(b)
	return parsedA.Compare(parsedB)
}

func isMajor(a, b string) bool {
	parsedA, _ := semver.Parse(a)
	parsedB, _ := semver.Parse(b)
	return parsedA.Major != parsedB.Major
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }
