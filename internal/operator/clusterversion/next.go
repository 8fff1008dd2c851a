package clusterversion

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/config/clusteroperator/v1helpers"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// Next returns the status that follows from the previous one and from the observed state. It does not change unknown
// fields and conditions. If nothing has changed, it returns the previous status.
//
// Until there is a current release, a status with a history does not change: an operator that has just started knows
// less than its predecessor. If it can't read the release, Failing is True.
func Next(previous configv1.ClusterVersionStatus, observed Observation) configv1.ClusterVersionStatus {
	now := metav1.NewTime(observed.Now.UTC().Truncate(time.Second))
	b := builder{next: *previous.DeepCopy(), observed: observed, now: now}
	b.isSameSpec = previous.ObservedGeneration == observed.Generation
	b.next.ObservedGeneration = observed.Generation
	b.removeObsolete()
	b.setInvalid()
	b.setReleaseAccepted()
	b.setPreflight()
	switch {
	case observed.Applied != nil:
		b.setApplied(*observed.Applied)
	case len(b.next.History) == 0:
		b.setNothingApplied()
	case observed.Acceptance.Err != nil:
		b.setUnreadable()
	}
	b.setUpdates()
	return b.next
}

// WithAutomaticUpdates returns a status with the condition AutomaticUpdates, or without it if the reason is empty.
func WithAutomaticUpdates(status configv1.ClusterVersionStatus, now time.Time, isHeld bool,
	reason, message string) configv1.ClusterVersionStatus {
	b := builder{next: *status.DeepCopy(), now: metav1.NewTime(now.UTC().Truncate(time.Second))}
	switch {
	case reason == "":
		b.remove(AutomaticUpdates)
	case isHeld:
		b.set(AutomaticUpdates, configv1.ConditionFalse, reason, message)
	default:
		b.set(AutomaticUpdates, configv1.ConditionTrue, reason, message)
	}
	return b.next
}

// wasCompleted reports whether all objects of the release were applied and ready, now or before.
func (a AppliedRelease) wasCompleted() bool { return a.IsComplete || a.Mode == graph.Reconcile }

// A builder changes a copy of the previous status to the next one.
type builder struct {
	next     configv1.ClusterVersionStatus
	observed Observation
	now      metav1.Time // whole seconds, like all times of a status

	isSameSpec   bool // the previous status is of the observed spec
	wasCompleted bool // the current release, now or before
}

// setApplied sets the fields and conditions of the current release.
//
// Until its mode is known, a release with the same files that the history has as completed is kept in place: an
// operator that has just started does not begin an update. Until the record has the apply of another release, the
// desired release and the history do not change. If the gate refuses other settings of the release, such as feature
// gates, the release has a problem: the cluster-version operator would apply it, and fail.
func (b *builder) setApplied(applied AppliedRelease) {
	applied.Release = b.complete(applied.Release)
	history := b.next.History
	isNewest := len(history) > 0 && isAbout(history[0], applied.Release)
	if applied.Mode == "" && isNewest && isCompleted(history[0]) && applied.Hash == b.next.VersionHash {
		applied.Mode = graph.Reconcile
		b.observed.Applied = &applied
	}
	if applied.Mode != "" || isNewest || len(history) == 0 {
		b.next.Desired, b.next.Capabilities = applied.Release, *applied.Capabilities.DeepCopy()
		b.setHistory(applied)
		b.setImplicitCapabilities(applied.Implicit)
	}
	if applied.Mode != "" || len(history) == 0 {
		b.next.VersionHash = cmp.Or(applied.Hash, b.next.VersionHash)
	}
	if refused := b.observed.Acceptance; refused.Err != nil && refused.Phase == Judging &&
		refused.Release.Image == applied.Release.Image {
		applied.Problems = append(applied.Problems,
			ReleaseProblem{Wait: apply.Wait{For: refused.message(), Reason: reason.Of(refused.Err)}})
	}
	b.wasCompleted = applied.wasCompleted()
	b.setAvailable(applied)
	b.setHealth(applied)
	b.setUpgradeable()
}

// setNothingApplied sets the status before the first release is accepted.
func (b *builder) setNothingApplied() {
	b.next.Desired = b.complete(b.observed.Acceptance.Release)
	b.setDefault(configv1.OperatorAvailable, configv1.ConditionFalse)
	b.setBeginning()
	b.setUpgradeable()
}

// setUnreadable sets the status while the operator can't read the release of the history, and does not keep it in
// place.
func (b *builder) setUnreadable() {
	refused := b.observed.Acceptance
	newest := b.next.History[0]
	if !isAbout(newest, b.next.Desired) { // the command line has applied it
		b.next.Desired = b.complete(configv1.Release{Version: newest.Version, Image: newest.Image})
		b.setAvailable(AppliedRelease{IsComplete: isCompleted(newest)})
	}
	version := nameOf(b.next.Desired)
	b.setFailing(version, isCompleted(newest), failure{
		reason:  string(refused.Phase) + "Failed",
		summary: "it is not kept in place",
		message: fmt.Sprintf("%s is not kept in place: %s", version, inLine(refused.Err.Error())),
	})
}

// complete returns a release with the version, URL and channels that the previous status has for the same image.
func (b *builder) complete(release configv1.Release) configv1.Release {
	known := append([]configv1.Release{b.observed.Retrieved.current(), b.next.Desired}, b.next.AvailableUpdates...)
	for _, update := range b.next.ConditionalUpdates {
		known = append(known, update.Release)
	}
	full := *release.DeepCopy()
	for _, item := range known {
		if item.Image == "" || item.Image != release.Image {
			continue
		}
		full.Version = cmp.Or(full.Version, item.Version)
		full.URL = cmp.Or(full.URL, item.URL)
		if full.Channels == nil {
			full.Channels = item.Channels
		}
	}
	return full
}

// nameOf returns the name of a release in messages: its version, or its image while the version is unknown.
func nameOf(release configv1.Release) string { return cmp.Or(release.Version, release.Image) }

// The types of conditions that a ClusterVersion has beside those of a ClusterOperator.
const (
	Failing                       configv1.ClusterStatusConditionType = "Failing"
	Invalid                       configv1.ClusterStatusConditionType = "Invalid"
	ReleaseAccepted               configv1.ClusterStatusConditionType = "ReleaseAccepted"
	ImplicitlyEnabledCapabilities configv1.ClusterStatusConditionType = "ImplicitlyEnabledCapabilities"

	PreflightPassed  configv1.ClusterStatusConditionType = "PreflightPassed"  // Runlevel's own
	AutomaticUpdates configv1.ClusterStatusConditionType = "AutomaticUpdates" // Runlevel's own
)

// The reasons of conditions beside those of problems.
const (
	ReasonInvalid         = "InvalidClusterVersion"
	ReasonNoDesiredImage  = "NoDesiredImage"
	ReasonMultipleErrors  = "MultipleErrors"
	ReasonMultipleReasons = "MultipleReasons"
	ReasonSlowOperator    = "SlowClusterOperator"
	ReasonSlowObject      = "SlowObject" // Runlevel's own: an object of another kind than ClusterOperator
)

// maxLines is the maximum number of lines in a message.
const maxLines = 10

// Limits of messages, in bytes: the text of one component must not fill the ClusterVersion, whose size is limited.
const (
	longestReport  = 2_000  // message of a ClusterOperator
	longestMessage = 32_768 // message of a condition, as in metav1.Condition
)

// set sets a condition. Its transition time changes only with its status.
func (b *builder) set(
	kind configv1.ClusterStatusConditionType, status configv1.ConditionStatus, reason, message string,
) {
	wanted := configv1.ClusterOperatorStatusCondition{
		Type: kind, Status: status, Reason: reason, Message: printable.Truncate(message, longestMessage),
		LastTransitionTime: b.now,
	}
	before := b.find(kind)
	if before == nil {
		b.next.Conditions = append(b.next.Conditions, wanted)
		return
	}
	if before.Status == status && !before.LastTransitionTime.IsZero() {
		wanted.LastTransitionTime = before.LastTransitionTime
	}
	*before = wanted
}

// setDefault sets a condition unless it exists.
func (b *builder) setDefault(kind configv1.ClusterStatusConditionType, status configv1.ConditionStatus) {
	if b.find(kind) == nil {
		b.set(kind, status, "", "")
	}
}

func (b *builder) remove(kind configv1.ClusterStatusConditionType) {
	v1helpers.RemoveStatusCondition(&b.next.Conditions, kind)
}

// find returns a condition, or nil.
func (b *builder) find(kind configv1.ClusterStatusConditionType) *configv1.ClusterOperatorStatusCondition {
	return v1helpers.FindStatusCondition(b.next.Conditions, kind)
}

// removeObsolete removes conditions of earlier cluster-version operators: parts of Upgradeable, and the former name of
// ImplicitlyEnabledCapabilities.
func (b *builder) removeObsolete() {
	b.next.Conditions = slices.DeleteFunc(b.next.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool {
		isPart := strings.HasPrefix(string(c.Type), string(configv1.OperatorUpgradeable)) &&
			c.Type != configv1.OperatorUpgradeable
		return isPart || c.Type == "ImplicitlyEnabled"
	})
}

func (b *builder) setInvalid() {
	if len(b.observed.Invalid) == 0 {
		b.remove(Invalid)
		return
	}
	b.set(Invalid, configv1.ConditionTrue, ReasonInvalid, list("The cluster version is invalid", b.observed.Invalid))
}

func (b *builder) setImplicitCapabilities(implicit []configv1.ClusterVersionCapability) {
	if len(implicit) == 0 {
		b.set(ImplicitlyEnabledCapabilities, configv1.ConditionFalse, "AsExpected",
			"Capabilities match configured spec")
		return
	}
	var names []string
	for _, capability := range implicit {
		names = append(names, string(capability))
	}
	slices.Sort(names)
	b.set(ImplicitlyEnabledCapabilities, configv1.ConditionTrue, "CapabilitiesImplicitlyEnabled",
		"The following capabilities could not be disabled: "+strings.Join(names, ", "))
}

// setAvailable sets Available, which stays True once a release was complete.
func (b *builder) setAvailable(applied AppliedRelease) {
	if applied.wasCompleted() {
		b.set(configv1.OperatorAvailable, configv1.ConditionTrue, "", "Done applying "+nameOf(b.next.Desired))
	}
	last := LastCompleted(b.next.History)
	if last != nil && b.find(configv1.OperatorAvailable) == nil { // the ClusterVersion was recreated
		b.set(configv1.OperatorAvailable, configv1.ConditionTrue, "", "Done applying "+last.Version)
	}
	b.setDefault(configv1.OperatorAvailable, configv1.ConditionFalse)
}

// inLine returns a text in one line. Semicolons separate its lines.
func inLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return printable.Line(joined("; ", lines...))
}

// list returns a title with lines: one line follows the title, several lines are a list below it.
func list(title string, lines []string) string {
	if len(lines) == 1 {
		return title + ": " + inLine(lines[0])
	}
	text := title + ":"
	for _, line := range few(lines) {
		text += "\n* " + inLine(line)
	}
	return text
}
