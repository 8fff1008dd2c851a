package clusterversion

import (
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/config/clusteroperator/v1helpers"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// The types of conditions that a ClusterVersion has beside those of a ClusterOperator.
const (
	Failing                       configv1.ClusterStatusConditionType = "Failing"
	Invalid                       configv1.ClusterStatusConditionType = "Invalid"
	ReleaseAccepted               configv1.ClusterStatusConditionType = "ReleaseAccepted"
	ImplicitlyEnabledCapabilities configv1.ClusterStatusConditionType = "ImplicitlyEnabledCapabilities"
)

// The reasons of conditions beside those of problems.
const (
	ReasonInvalid         = "InvalidClusterVersion"
	ReasonNoDesiredImage  = "NoDesiredImage"
	ReasonMultipleErrors  = "MultipleErrors"
	ReasonMultipleReasons = "MultipleReasons"
	ReasonSlowOperator    = "SlowClusterOperator"
	ReasonSlowObject      = "SlowObject" // of ours: an object that is no ClusterOperator
)

// mostLines is how many lines a message lists.
const mostLines = 10

// Bounds of messages, in bytes: what a component reports is not to fill the ClusterVersion, which has a limit itself.
const (
	longestReport  = 2_000  // of a ClusterOperator
	longestMessage = 32_768 // of a condition, as metav1.Condition has it
)

// set sets a condition. Its transition time changes only with its status.
func (b *builder) set(kind configv1.ClusterStatusConditionType, status configv1.ConditionStatus, reason,
	message string) {
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

// setDefault sets a condition that does not exist yet.
func (b *builder) setDefault(kind configv1.ClusterStatusConditionType, status configv1.ConditionStatus) {
	if b.find(kind) == nil {
		b.set(kind, status, "", "")
	}
}

func (b *builder) remove(kind configv1.ClusterStatusConditionType) {
	v1helpers.RemoveStatusCondition(&b.next.Conditions, kind)
}

// find returns a condition; nil if there is none.
func (b *builder) find(kind configv1.ClusterStatusConditionType) *configv1.ClusterOperatorStatusCondition {
	return v1helpers.FindStatusCondition(b.next.Conditions, kind)
}

// removeObsolete removes conditions that earlier cluster-version operators have left: parts of Upgradeable, and the
// former name of ImplicitlyEnabledCapabilities.
func (b *builder) removeObsolete() {
	b.next.Conditions = slices.DeleteFunc(b.next.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool {
		isPart := strings.HasPrefix(string(c.Type), string(configv1.OperatorUpgradeable)) &&
			c.Type != configv1.OperatorUpgradeable
		return isPart || c.Type == "ImplicitlyEnabled"
	})
}

func (b *builder) setInvalid() {
	if len(b.seen.Invalid) == 0 {
		b.remove(Invalid)
		return
	}
	b.set(Invalid, configv1.ConditionTrue, ReasonInvalid, list("The cluster version is invalid", b.seen.Invalid))
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

// setAvailable sets Available, which stays true from the first release on that was complete.
func (b *builder) setAvailable(applied AppliedRelease) {
	if applied.wasCompleted() {
		b.set(configv1.OperatorAvailable, configv1.ConditionTrue, "", "Done applying "+nameOf(b.next.Desired))
	}
	// the ClusterVersion was recreated
	if last := LastCompleted(b.next.History); last != nil && b.find(configv1.OperatorAvailable) == nil {
		b.set(configv1.OperatorAvailable, configv1.ConditionTrue, "", "Done applying "+last.Version)
	}
	b.setDefault(configv1.OperatorAvailable, configv1.ConditionFalse)
}

// inLine returns a text in one line: lines that it has are separated by semicolons.
func inLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return printable.Line(joined("; ", lines...))
}

// list returns a title with its lines: a single one in the same line, several as a list.
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
