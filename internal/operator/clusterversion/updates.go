package clusterversion

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// An Offer is the answer of an update service for a version. Updates are sorted, the newest first.
type Offer struct {
	Current     configv1.Release // the version itself, as the service knows it
	Updates     []configv1.Release
	Conditional []configv1.ConditionalUpdate // updates without conditions
	Phased      []PhasedUpdate               // updates that do not open for all clusters at once
	LeftOut     []string                     // rejected updates, and why; a sentence each
	NotOpen     []string                     // updates that are not open for this cluster yet; a sentence each
	Ahead       time.Duration                // how far the clock of this cluster is ahead of the service's
}

// Retrieved are the updates of a version that the update service has last offered.
type Retrieved struct {
	Version     string
	Offer       *Offer    // the last valid response; nil if there was none
	Time        time.Time // time of that response
	Err         error     // why the last request failed; it has a reason
	IsInherited bool      // the offer was read from the status; Time is then the start of the operator
	IsPending   bool      // the service has not responded yet since the query has changed
	Problem     string    // error in the settings of the cluster by which updates open; empty if there is none
	OpensAt     time.Time // when the next update opens for this cluster; zero if no time is known
}

// setUpdates sets the lists of updates and of their risks, and RetrievedUpdates. If the service fails, the last valid
// offer stays.
func (b *builder) setUpdates() {
	r := b.observed.Retrieved
	if r == nil {
		return
	}
	exposure := Expose(b.observed)
	b.setExposure(exposure)
	switch {
	case r.IsPending:
	case r.Err != nil:
		b.set(configv1.RetrievedUpdates, configv1.ConditionFalse, reason.Of(r.Err),
			strings.Join(append([]string{r.failure()}, r.phaseNotes()...), "\n"))
	default:
		b.set(configv1.RetrievedUpdates, configv1.ConditionTrue, "", b.retrievalNotes(exposure))
	}
}

// retrievalNotes returns what an administrator should know about the updates.
func (b *builder) retrievalNotes(exposure Exposure) string {
	notes := b.observed.Retrieved.phaseNotes()
	if len(exposure.Unknown) > 0 {
		notes = append(notes, "Accepted risks that no update has: "+printable.Few(exposure.Unknown, maxNames))
	}
	if m := b.observed.Monitoring; m != nil && m.AlertErr != nil {
		notes = append(notes, "Alerts can't be read: "+m.AlertErr.Error())
	}
	var leftOut []string
	if offer := b.observed.Retrieved.Offer; offer != nil {
		leftOut = slices.Concat(offer.LeftOut, exposure.LeftOut)
	}
	if len(leftOut) > 0 {
		notes = append(notes, list("Updates that are left out", leftOut))
	}
	return strings.Join(notes, "\n")
}

// setExposure sets the updates and their risks. Conditions keep the transition times of before if their status is the
// same.
func (b *builder) setExposure(exposure Exposure) {
	before := map[string][]metav1.Condition{} // by the version and image of an update, and by the name of a risk
	for _, update := range b.next.ConditionalUpdates {
		before[update.Release.Version+" "+update.Release.Image] = update.Conditions
	}
	for _, risk := range b.next.ConditionalUpdateRisks {
		before[risk.Name] = risk.Conditions
	}
	follow := func(key string, conditions []metav1.Condition) []metav1.Condition {
		followed := slices.Clone(before[key])
		for _, condition := range conditions {
			if condition.LastTransitionTime.IsZero() {
				condition.LastTransitionTime = b.now
			}
			meta.SetStatusCondition(&followed, condition)
		}
		return followed
	}
	b.next.AvailableUpdates, b.next.ConditionalUpdates = exposure.Available, exposure.Conditional
	for i, update := range exposure.Conditional {
		key := update.Release.Version + " " + update.Release.Image
		b.next.ConditionalUpdates[i].Conditions = follow(key, update.Conditions)
		update.Risks = slices.Clone(update.Risks)
		for j, risk := range update.Risks {
			update.Risks[j].Conditions = follow(risk.Name, risk.Conditions)
		}
		b.next.ConditionalUpdates[i].Risks = update.Risks
	}
	b.next.ConditionalUpdateRisks = exposure.Risks
	for i, risk := range exposure.Risks {
		b.next.ConditionalUpdateRisks[i].Conditions = follow(risk.Name, risk.Conditions)
	}
}

// failure returns why the request failed, and the time of the last valid response.
func (r *Retrieved) failure() string {
	text := "Unable to retrieve available updates: " + r.Err.Error()
	if r.Offer == nil || len(r.Offer.Updates)+len(r.Offer.Conditional) == 0 {
		return text
	}
	text += "; the updates that are listed were retrieved at " + moment(r.Time)
	if r.IsInherited {
		text += ", or before"
	}
	return text
}

// current returns the release itself, from the offer.
func (r *Retrieved) current() configv1.Release {
	if r == nil || r.Offer == nil {
		return configv1.Release{}
	}
	return r.Offer.Current
}

// The checks of risks. The subject of RiskAdminAck and RiskOperator is an object.
const (
	RiskUpdating  = "ClusterVersionUpdating"
	RiskOverrides = "ClusterVersionOverrides"
	RiskDeletes   = "ResourceDeletionInProgress"
	RiskAdminAck  = precondition.AdminAck
	RiskOperator  = "ClusterOperatorUpgradeable"
	RiskMissing   = "ClusterOperatorMissing"
)

var clusterChecks = []string{RiskUpdating, RiskOverrides, RiskDeletes, RiskAdminAck, RiskOperator, RiskMissing}

// Risks returns the risks that block updates to another minor version: an update in progress, overrides, pending
// deletes, missing ClusterOperators, admin gates without an acknowledgement, and ClusterOperators with
// Upgradeable=False.
func Risks(observed Observation) []precondition.Finding {
	var all []precondition.Finding
	add := func(check, subject, message string) {
		all = append(all, precondition.Finding{
			Check: check, Of: subject, Severity: precondition.Blocks, Message: message,
			Resolution: "removing the risk in condition Upgradeable",
		})
	}
	applied := cmp.Or(observed.Applied, &AppliedRelease{IsComplete: true})
	if !applied.wasCompleted() && !applied.IsKept { // otherwise only another release ends the update
		add(RiskUpdating, "", "An update is already in progress and the details are in the Progressing condition.")
	}
	if unmanaged := unmanagedObjects(observed.Overrides); len(unmanaged) > 0 {
		add(RiskOverrides, "", "Disabling ownership via cluster version overrides prevents updates between minor or "+
			"major versions. Please remove overrides before requesting a minor or major version update. Unmanaged: "+
			printable.Few(unmanaged, maxNames))
	}
	if pending := pendingDeletes(applied.Deletes); len(pending) > 0 {
		add(RiskDeletes, "", "Cluster minor or major version upgrades are not allowed while resource deletions are in "+
			"progress; resources="+strings.Join(few(pending), ", "))
	}
	if missing := applied.MissingOperators; len(missing) > 0 {
		add(RiskMissing, "", "Missing, although the release has them: ClusterOperator "+strings.Join(missing, ", "))
	}
	for _, gate := range observed.Gates {
		add(RiskAdminAck, gate.Name, gate.Message+" (resolve by: "+gate.Resolution+")")
	}
	operators := slices.SortedFunc(slices.Values(observed.Operators), func(a, b configv1.ClusterOperator) int {
		return cmp.Compare(a.Name, b.Name)
	})
	for _, operator := range operators {
		for _, c := range operator.Status.Conditions {
			if c.Type == configv1.OperatorUpgradeable && c.Status == configv1.ConditionFalse {
				add(RiskOperator, operator.Name, operatorMessage(operator.Name, c))
			}
		}
	}
	return all
}

// unmanagedObjects returns the sorted names of the objects that overrides leave unmanaged.
func unmanagedObjects(overrides []configv1.ComponentOverride) []string {
	var unmanaged []string
	for _, o := range overrides {
		if o.Unmanaged {
			id := kinds.ID{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
			unmanaged = append(unmanaged, id.String())
		}
	}
	slices.Sort(unmanaged)
	return unmanaged
}

// pendingDeletes returns a sorted line for each pending delete, with its holder and its beginning.
func pendingDeletes(deletes []precondition.Delete) []string {
	var pending []string
	for _, item := range deletes {
		if item.Seen.IsPending() {
			name := printable.Line(strings.TrimPrefix(item.Namespace+"/"+item.Name, "/"))
			kind := strings.ToLower(printable.Line(item.Kind))
			pending = append(pending, fmt.Sprintf("%s %q (%s)", kind, name, item.DescribeSince()))
		}
	}
	slices.Sort(pending)
	return pending
}

func operatorMessage(name string, c configv1.ClusterOperatorStatusCondition) string {
	text := "Cluster operator " + printable.Line(name) + " should not be upgraded between minor or major versions"
	if !c.LastTransitionTime.IsZero() {
		text += " since " + moment(c.LastTransitionTime.Time)
	}
	return printable.Truncate(joined(": ", text, printable.Line(c.Reason), inLine(c.Message)), longestReport)
}

// setUpgradeable sets Upgradeable while there are risks.
func (b *builder) setUpgradeable() {
	risks := Risks(b.observed)
	switch len(risks) {
	case 0:
		b.remove(configv1.OperatorUpgradeable)
	case 1:
		b.set(configv1.OperatorUpgradeable, configv1.ConditionFalse, risks[0].Check, risks[0].Message)
	default:
		var messages []string
		for _, risk := range risks {
			messages = append(messages, risk.Message)
		}
		b.set(configv1.OperatorUpgradeable, configv1.ConditionFalse, ReasonMultipleReasons,
			list("Cluster should not be upgraded between minor or major versions for multiple reasons", messages))
	}
}
