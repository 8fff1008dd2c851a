package clusterversion

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// The names of risks. Those of ClusterOperators and admin gates are about an object.
const (
	RiskUpdating  = "ClusterVersionUpdating"
	RiskOverrides = "ClusterVersionOverrides"
	RiskDeletes   = "ResourceDeletionInProgress"
	RiskAdminAck  = precondition.AdminAck
	RiskOperator  = "ClusterOperatorUpgradeable"
	RiskMissing   = "ClusterOperatorMissing"
)

// risk returns the finding of a risk, which blocks updates to another minor version.
func risk(check, of, message string) precondition.CheckFinding {
	return precondition.CheckFinding{
		Check: check, Of: of, Severity: precondition.Blocks, Message: message,
		Resolution: "the end of the risk in condition Upgradeable",
	}
}

// Risks returns what blocks updates to another minor version: an update in progress, overrides, pending deletes, gates
// that no administrator has acknowledged, and ClusterOperators with Upgradeable=False.
func Risks(seen Seen) []precondition.CheckFinding {
	var all []precondition.CheckFinding
	if seen.Applied != nil && !seen.Applied.wasCompleted() {
		all = append(all, risk(RiskUpdating, "",
			"An update is already in progress and the details are in the Progressing condition."))
	}
	all = append(all, overrideRisks(seen.Overrides)...)
	if seen.Applied != nil {
		all = append(all, deleteRisks(seen.Applied.Deletes)...)
		if missing := seen.Applied.MissingOperators; len(missing) > 0 {
			all = append(all, risk(RiskMissing, "",
				"Not there, though the release has them: ClusterOperator "+strings.Join(missing, ", ")))
		}
	}
	for _, gate := range seen.Gates {
		all = append(all, risk(RiskAdminAck, gate.Name, gate.Message+" (lifted by "+gate.Resolution+")"))
	}
	return append(all, operatorRisks(seen.Operators)...)
}

func overrideRisks(overrides []configv1.ComponentOverride) []precondition.CheckFinding {
	var unmanaged []string
	for _, o := range overrides {
		if o.Unmanaged {
			unmanaged = append(unmanaged,
				kinds.ID{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}.String())
		}
	}
	if len(unmanaged) == 0 {
		return nil
	}
	slices.Sort(unmanaged)
	return []precondition.CheckFinding{risk(RiskOverrides, "",
		"Disabling ownership via cluster version overrides prevents updates between minor or major versions. "+
			"Please remove overrides before requesting a minor or major version update. Unmanaged: "+
			printable.Few(unmanaged, mostNames))}
}

// deleteRisks returns the risk of pending deletes: who holds each of them, and since when.
func deleteRisks(deletes []precondition.Delete) []precondition.CheckFinding {
	var pending []string
	for _, item := range deletes {
		if !item.Seen.IsPending() {
			continue
		}
		name := item.Name
		if item.Namespace != "" {
			name = item.Namespace + "/" + name
		}
		pending = append(pending,
			fmt.Sprintf("%s %q (%s)", strings.ToLower(printable.Line(item.Kind)), printable.Line(name),
				item.DescribeSince()))
	}
	if len(pending) == 0 {
		return nil
	}
	slices.Sort(pending)
	return []precondition.CheckFinding{risk(RiskDeletes, "",
		"Cluster minor or major version upgrades are not allowed while resource deletions are in progress; resources="+
			strings.Join(few(pending), ", "))}
}

func operatorRisks(operators []configv1.ClusterOperator) []precondition.CheckFinding {
	var all []precondition.CheckFinding
	for _, operator := range operators {
		for _, c := range operator.Status.Conditions {
			if c.Type == configv1.OperatorUpgradeable && c.Status == configv1.ConditionFalse {
				all = append(all, risk(RiskOperator, operator.Name, operatorMessage(operator.Name, c)))
			}
		}
	}
	slices.SortFunc(all, func(a, b precondition.CheckFinding) int { return cmp.Compare(a.Of, b.Of) })
	return all
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
	risks := Risks(b.seen)
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
