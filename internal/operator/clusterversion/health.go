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
	problems := b.problemsBySeverity(applied.Problems)
	switch {
	case len(problems[fails]) > 0:
		failing := slices.Concat(problems[fails], problems[limited]) // a degraded operator counts beside other failures
		slices.SortStableFunc(failing, compareProblems)
		b.setFailing(nameOf(applied.Release), b.wasCompleted, b.summarize(failing))
		return
	case len(problems[slow]) > 0:
		b.set(Failing, configv1.ConditionUnknown, slowReason(problems[slow]), slowMessage(problems[slow]))
	default:
		b.set(Failing, configv1.ConditionFalse, "", "")
	}
	if b.wasCompleted {
		b.setComplete()
		return
	}
	b.setWorking(applied, problems)
}

// problemsBySeverity returns the sorted problems of each severity. Of several that compare as equal, it returns the
// most severe one.
func (b *builder) problemsBySeverity(all []ReleaseProblem) map[severity][]ReleaseProblem {
	ordered := slices.SortedStableFunc(slices.Values(all), func(x, y ReleaseProblem) int {
		return cmp.Or(compareProblems(x, y), cmp.Compare(b.severityOf(y), b.severityOf(x)),
			cmp.Compare(x.Effect, y.Effect), x.Since.Compare(y.Since))
	})
	isSame := func(x, y ReleaseProblem) bool { return compareProblems(x, y) == 0 }
	problems := map[severity][]ReleaseProblem{}
	for _, p := range slices.CompactFunc(ordered, isSame) {
		severity := b.severityOf(p)
		problems[severity] = append(problems[severity], p)
	}
	return problems
}

// setFailing sets Failing and Progressing for a failure of a release.
func (b *builder) setFailing(version string, wasCompleted bool, f failure) {
	b.set(Failing, configv1.ConditionTrue, f.reason, f.message)
	status, title := configv1.ConditionTrue, "Unable to apply "
	if wasCompleted {
		status, title = configv1.ConditionFalse, "Error while reconciling "
	}
	b.set(configv1.OperatorProgressing, status, f.reason, title+version+": "+f.summary)
}

// setComplete sets Progressing for a complete release.
func (b *builder) setComplete() {
	version := nameOf(b.next.Desired)
	if len(b.observed.Invalid) > 0 {
		b.set(configv1.OperatorProgressing, configv1.ConditionFalse, ReasonInvalid,
			"Stopped at "+version+": the cluster version is invalid")
		return
	}
	b.set(configv1.OperatorProgressing, configv1.ConditionFalse, "", "Cluster version is "+version)
}

// setWorking sets Progressing for a release whose apply continues.
func (b *builder) setWorking(applied AppliedRelease, problems map[severity][]ReleaseProblem) {
	reason := waitReason(problems)
	text := joined(": ", "Working towards "+nameOf(applied.Release),
		joined(", ", applied.counts(), waitText(problems)))
	if len(b.observed.Invalid) > 0 {
		reason = ReasonInvalid
		text += "; the cluster version is invalid"
	}
	b.set(configv1.OperatorProgressing, configv1.ConditionTrue, reason, text)
}

// counts returns the progress of an apply. It is empty until the first object is complete.
func (a AppliedRelease) counts() string {
	if a.Done <= 0 || a.Total <= 0 {
		return ""
	}
	done := min(a.Done, a.Total)
	return fmt.Sprintf("%d of %d done (%d%% complete)", done, a.Total, done*100/a.Total)
}

// setBeginning sets Failing and Progressing before the first release is accepted.
func (b *builder) setBeginning() {
	requested := b.observed.Acceptance
	version := nameOf(requested.Release)
	switch {
	case requested.Err != nil:
		b.setFailing(version, false, failure{
			reason:  cmp.Or(reason.Of(requested.Err), string(requested.Phase)),
			summary: "it is not accepted",
			message: requested.message(),
		})
		return
	case len(b.observed.Invalid) > 0:
		b.set(configv1.OperatorProgressing, configv1.ConditionFalse, ReasonInvalid,
			"Stopped: the cluster version is invalid")
	case version == "":
		b.set(configv1.OperatorProgressing, configv1.ConditionFalse, ReasonNoDesiredImage,
			"No release is requested: set spec.desiredUpdate")
	default:
		b.set(configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working towards "+version)
	}
	b.set(Failing, configv1.ConditionFalse, "", "")
}

// waitReason returns the reason of the most severe wait.
func waitReason(problems map[severity][]ReleaseProblem) string {
	for _, severity := range []severity{limited, slow, waits} {
		if len(problems[severity]) == 0 {
			continue
		}
		first := groupByState(problems[severity])[0]
		if len(first) > 1 {
			return pluralReason(first[0].Reason)
		}
		return first[0].Reason
	}
	return ""
}

// waitText returns the message about the waits.
func waitText(problems map[severity][]ReleaseProblem) string {
	var texts []string
	if all := problems[slow]; len(all) > 0 {
		texts = append(texts, slowText(all))
	}
	if all := problems[waits]; len(all) > 0 {
		texts = append(texts, "waiting on "+describeWaits(all))
	}
	if all := problems[limited]; len(all) > 0 {
		texts = append(texts, fmt.Sprintf("waiting up to %.0f minutes on %s", failAfter.Minutes(), names(all)))
	}
	return strings.Join(texts, ", ")
}

// describeWaits names the objects of waits. Other objects than ClusterOperators have their message.
func describeWaits(problems []ReleaseProblem) string {
	var all []string
	for _, p := range problems {
		if p.isOperator() {
			all = append(all, printable.Line(p.ID.Name))
			continue
		}
		detail := p.detail()
		if p.IsRetry {
			detail = cmp.Or(requestFailures[p.Reason], detail)
		}
		all = append(all, p.subject()+inBrackets("; ", detail, p.fileAndTime()))
	}
	return printable.Few(slices.Compact(all), maxNames)
}

// slowText names the objects whose wait is longer than usual.
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

// slowMessage returns a line for each slow object, with its problem.
func slowMessage(problems []ReleaseProblem) string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.line())
	}
	return list(slowText(problems), lines)
}
