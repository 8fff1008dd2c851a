package clusterversion

import (
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// A Preflight is the state and the result of a preflight: a check of an update that is not begun. The findings of the
// acceptance are those of the gate and of dry runs.
type Preflight struct {
	Acceptance
	IsForced bool     // the update would override the gate
	Effects  *Effects // nil until there is a result
	// earlier are the risks in the status, until there is a result.
	earlier []configv1.ConditionalUpdateRisk
}

// Effects are what an update would do to the objects of the cluster.
type Effects struct {
	Created, Changed, Refused int
	Deleted, Recreated        []kinds.ID
	Restarted                 []kinds.ID // changed workloads whose pods would be replaced
}

// The reasons of PreflightPassed beside the phases.
const (
	ReasonPreflightPassed = "UpdatePossible"
	ReasonRefused         = "ObjectsRefused"
)

// setPreflight sets PreflightPassed, which is Unknown until the outcome is known. During a repetition, or after a
// restart, the previous outcome stays, unless the spec has changed: the outcome may be one of another request.
func (b *builder) setPreflight() {
	p := b.observed.Preflight
	switch {
	case p == nil:
		b.remove(PreflightPassed)
	case p.hasEnded():
		b.set(p.verdict())
	case b.isSameSpec && b.isDecided(PreflightPassed, p.Acceptance):
		pending := *p
		pending.earlier = slices.DeleteFunc(slices.Clone(b.next.ConditionalUpdateRisks),
			func(risk configv1.ConditionalUpdateRisk) bool { return !isPreflightRisk(risk) })
		b.observed.Preflight = &pending
	default:
		b.set(PreflightPassed, configv1.ConditionUnknown, string(p.Phase), p.message())
	}
}

// Result returns the outcome with its description. It is Unknown until there is one.
func (p *Preflight) Result() (status configv1.ConditionStatus, message string) {
	if !p.hasEnded() {
		return configv1.ConditionUnknown, p.message()
	}
	_, status, _, message = p.verdict()
	return status, message
}

func (p *Preflight) hasEnded() bool { return p.Err != nil || p.Effects != nil }

// verdict returns the condition of a result. Its message has the effects of the update, and lists the findings, those
// that stop the update first.
func (p *Preflight) verdict() (
	kind configv1.ClusterStatusConditionType, status configv1.ConditionStatus, reason, message string,
) {
	if p.Err != nil {
		return PreflightPassed, configv1.ConditionFalse, string(p.Phase), p.message()
	}
	status, reason = configv1.ConditionTrue, ReasonPreflightPassed
	says := "nothing known stops the update"
	switch blocking := len(precondition.Blocking(p.Findings)); {
	case blocking > 0 && !p.IsForced:
		status, reason = configv1.ConditionFalse, string(Judging)
		says = "the gate blocks the update with " + printable.Count(blocking, "finding")
		if p.Effects.Refused > 0 {
			says += ", and the cluster refuses " + printable.Count(p.Effects.Refused, "object")
		}
	case p.Effects.Refused > 0:
		status, reason = configv1.ConditionFalse, ReasonRefused
		says = "the update would fail: the cluster refuses " + printable.Count(p.Effects.Refused, "object")
	case blocking > 0:
		says = "force overrides " + printable.Count(blocking, "finding") + " of the gate"
	}
	message = fmt.Sprintf("Preflight of %s: %s. %s", p.payload(), says, p.Effects.summary())
	for _, line := range few(p.lines()) {
		message += "\n* " + line
	}
	return PreflightPassed, status, reason, message
}

// lines returns a line for each finding, those that stop the update first, and one each for unread parts of the release
// and for a missing verification.
func (p *Preflight) lines() []string {
	findings := slices.Clone(p.Findings)
	slices.SortStableFunc(findings, func(a, b precondition.Finding) int { return severityRank(a) - severityRank(b) })
	var lines []string
	if p.AcceptedRisk != "" {
		lines = append(lines, inLine(p.AcceptedRisk))
	}
	if len(p.Unread) > 0 {
		lines = append(lines, strings.TrimPrefix(p.unread(), "; "))
	}
	for _, found := range findings {
		lines = append(lines, printable.Truncate(inLine(found.Text()), longestReport))
	}
	if p.Unverified != "" {
		lines = append(lines, strings.TrimPrefix(notVerified, "; ")+inLine(p.Unverified))
	}
	return lines
}

func severityRank(found precondition.Finding) int {
	return slices.Index([]precondition.Severity{precondition.Blocks, precondition.Fails, precondition.Warns},
		found.Severity)
}

// summary returns the effects in a sentence each.
func (e *Effects) summary() string {
	text := fmt.Sprintf("The update creates %s, changes %d, and deletes %s.", printable.Count(e.Created, "object"),
		e.Changed, counted(e.Deleted))
	if len(e.Recreated) > 0 {
		text += " It deletes and creates again " + counted(e.Recreated) + "."
	}
	if len(e.Restarted) > 0 {
		text += " It replaces the pods of " + counted(e.Restarted) + "."
	}
	return text
}

// counted counts objects, and names the first ones.
func counted(objects []kinds.ID) string {
	if len(objects) == 0 {
		return "0"
	}
	var names []string
	for _, id := range objects {
		names = append(names, id.String())
	}
	return fmt.Sprintf("%d (%s)", len(names), printable.Line(printable.Few(names, maxNames)))
}

// preflightURL describes the risks of a preflight, and distinguishes them from those of the update service.
const preflightURL = "https://github.com/runlevel/runlevel/blob/main/docs/operator.md#preflight"

func isPreflightRisk(risk configv1.ConditionalUpdateRisk) bool { return risk.URL == preflightURL }

// risks returns the findings that stop the update as risks of a conditional update, one for each check. The gate's
// findings that are risks of the cluster keep their names.
func (p *Preflight) risks() []configv1.ConditionalUpdateRisk {
	if p == nil {
		return nil
	}
	all := slices.Clone(p.earlier)
	more := map[string]int{}
	for _, found := range p.Findings {
		if found.Severity == precondition.Warns {
			continue
		}
		name := "Preflight" + found.Check
		if slices.Contains(clusterChecks, found.Check) {
			name = found.Name()
		}
		more[name]++
		if more[name] > 1 {
			continue
		}
		all = append(all, configv1.ConditionalUpdateRisk{
			Name: printable.Truncate(name, maxRiskName), URL: preflightURL,
			Message:       printable.Truncate(inLine(found.Message), longestReport),
			MatchingRules: []configv1.ClusterCondition{{Type: "Always"}},
		})
	}
	for i := range all {
		if n := more[all[i].Name]; n > 1 {
			all[i].Message += fmt.Sprintf(" (and %d more)", n-1)
		}
	}
	return all
}
