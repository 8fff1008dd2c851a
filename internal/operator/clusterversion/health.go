package clusterversion

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// setHealth sets Failing and Progressing.
func (b *builder) setHealth(applied AppliedRelease) {
	found := b.sort(applied)
	switch {
	case len(found[fails]) > 0: // beside which a degraded operator counts as well
		b.setFailing(applied,
			b.summarize(slices.SortedStableFunc(slices.Values(slices.Concat(found[fails], found[limited])),
				compareProblems), applied.wasCompleted()))
		return
	case len(found[slow]) > 0:
		b.set(Failing, configv1.ConditionUnknown, slowReason(found[slow]), slowMessage(found[slow]))
	default:
		b.set(Failing, configv1.ConditionFalse, "", "")
	}
	if applied.wasCompleted() {
		b.setKept()
		return
	}
	b.setWorking(applied, found)
}

// sort returns the problems by severity, in order. Of several that compare as equal, the gravest counts.
func (b *builder) sort(applied AppliedRelease) map[severity][]ReleaseProblem {
	severityOf := func(p ReleaseProblem) severity { return p.severity(applied.wasCompleted(), b.seen.Now) }
	ordered := slices.SortedStableFunc(slices.Values(applied.Problems), func(x, y ReleaseProblem) int {
		return cmp.Or(compareProblems(x, y), cmp.Compare(severityOf(y), severityOf(x)), cmp.Compare(x.Effect, y.Effect),
			x.Since.Compare(y.Since))
	})
	found := map[severity][]ReleaseProblem{}
	for _, p := range slices.CompactFunc(ordered, func(x, y ReleaseProblem) bool {
		return compareProblems(x, y) == 0
	}) {
		found[severityOf(p)] = append(found[severityOf(p)], p)
	}
	return found
}

func (b *builder) setFailing(applied AppliedRelease, of failure) {
	b.set(Failing, configv1.ConditionTrue, of.reason, of.message)
	version := nameOf(applied.Release)
	if applied.wasCompleted() {
		b.set(configv1.OperatorProgressing, configv1.ConditionFalse, of.reason,
			"Error while reconciling "+version+": "+of.summary)
		return
	}
	b.set(configv1.OperatorProgressing, configv1.ConditionTrue, of.reason, "Unable to apply "+version+": "+of.summary)
}

// setKept sets Progressing of a release that is complete.
func (b *builder) setKept() {
	version := nameOf(b.next.Desired)
	if len(b.seen.Invalid) > 0 {
		b.set(configv1.OperatorProgressing, configv1.ConditionFalse, ReasonInvalid,
			"Stopped at "+version+": the cluster version is invalid")
		return
	}
	b.set(configv1.OperatorProgressing, configv1.ConditionFalse, "", "Cluster version is "+version)
}

// setWorking sets Progressing of a release that is being applied, and goes on.
func (b *builder) setWorking(applied AppliedRelease, found map[severity][]ReleaseProblem) {
	why := waitReason(found)
	text := "Working towards " + nameOf(applied.Release)
	if wait := waitText(found); wait != "" && applied.counts() != "" {
		text += ": " + applied.counts() + ", " + wait
	} else if all := wait + applied.counts(); all != "" {
		text += ": " + all
	}
	if len(b.seen.Invalid) > 0 {
		why, text = ReasonInvalid, text+"; the cluster version is invalid"
	}
	b.set(configv1.OperatorProgressing, configv1.ConditionTrue, why, text)
}

// counts returns the progress of an apply; empty before the first object is done.
func (a AppliedRelease) counts() string {
	if a.Done <= 0 || a.Total <= 0 {
		return ""
	}
	done := min(a.Done, a.Total)
	return fmt.Sprintf("%d of %d done (%d%% complete)", done, a.Total, done*100/a.Total)
}

// setBeginning sets Failing and Progressing while there was never a release.
func (b *builder) setBeginning() {
	requested := b.seen.Acceptance
	version := nameOf(requested.Release)
	switch {
	case requested.Err != nil:
		why := reason.Of(requested.Err)
		if why == "" {
			why = string(requested.Phase)
		}
		b.set(Failing, configv1.ConditionTrue, why, requested.message())
		b.set(configv1.OperatorProgressing, configv1.ConditionTrue, why,
			"Unable to apply "+version+": it is not accepted")
		return
	case len(b.seen.Invalid) > 0:
		b.set(configv1.OperatorProgressing, configv1.ConditionFalse, ReasonInvalid,
			"Stopped: the cluster version is invalid")
	case version == "":
		b.set(configv1.OperatorProgressing, configv1.ConditionFalse, ReasonNoDesiredImage,
			"No release is asked for: set spec.desiredUpdate")
	default:
		b.set(configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working towards "+version)
	}
	b.set(Failing, configv1.ConditionFalse, "", "")
}

// waitReason returns the reason of the gravest wait.
func waitReason(found map[severity][]ReleaseProblem) string {
	for _, of := range []severity{limited, slow, waits} {
		if len(found[of]) == 0 {
			continue
		}
		first := byState(found[of])[0]
		if len(first) > 1 {
			return pluralReason(first[0].Reason)
		}
		return first[0].Reason
	}
	return ""
}

// waitText returns the message on the waits.
func waitText(found map[severity][]ReleaseProblem) string {
	var texts []string
	if all := found[slow]; len(all) > 0 {
		texts = append(texts, slowText(all))
	}
	if all := found[waits]; len(all) > 0 {
		texts = append(texts, "waiting on "+waitedFor(all))
	}
	if all := found[limited]; len(all) > 0 {
		texts = append(texts, fmt.Sprintf("waiting up to %.0f minutes on %s", failAfter.Minutes(), names(all)))
	}
	return strings.Join(texts, ", ")
}

// waitedFor names the objects that are waited for: other objects than ClusterOperators with their message.
func waitedFor(problems []ReleaseProblem) string {
	var all []string
	for _, p := range problems {
		switch {
		case p.isOperator():
			all = append(all, printable.Line(p.ID.Name))
		default:
			detail := p.detail()
			if p.IsRetry {
				detail = cmp.Or(requestFailures[p.Reason], detail)
			}
			all = append(all, p.subject()+inBrackets("; ", detail, p.place()))
		}
	}
	return printable.Few(slices.Compact(all), mostNames)
}

// slowText names the objects that have been waited for longer than is usual.
func slowText(problems []ReleaseProblem) string {
	var others []ReleaseProblem
	clause := ""
	for _, p := range problems {
		if p.slowAfter() == slowAfterMachineConfig {
			clause = fmt.Sprintf("%s over %.0f minutes", machineConfig, slowAfterMachineConfig.Minutes())
			continue
		}
		others = append(others, p)
	}
	if len(others) > 0 {
		clause = joined(" and ", fmt.Sprintf("%s over %.0f minutes", names(others), slowAfter.Minutes()), clause)
	}
	return "waiting on " + clause + " which is longer than expected"
}

func slowReason(problems []ReleaseProblem) string {
	if problems[0].isOperator() {
		return ReasonSlowOperator
	}
	return ReasonSlowObject
}

// slowMessage returns a line on each slow object, with what it waits for.
func slowMessage(problems []ReleaseProblem) string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, capitalized(p.sentence())+p.where())
	}
	return list(slowText(problems), lines)
}
