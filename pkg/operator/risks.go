package operator

import (
	"cmp"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/runlevel/runlevel/pkg/precondition"
	"github.com/runlevel/runlevel/pkg/rollout"
	"github.com/runlevel/runlevel/pkg/status"
)

// riskFindings returns the risks that hold back an update: those of a minor or a major one. One that was begun goes on,
// and may be corrected by a patch. If the record is lost, previous is the version that was applied before.
func riskFindings(risks []status.Risk, found *rollout.Outcome, previous string) []precondition.CheckFinding {
	from := cmp.Or(found.Previous, previous)
	if !isMinor(from, found.Version) || found.Begun != from && !isMinor(cmp.Or(found.Begun, from), found.Version) {
		return nil
	}
	var findings []precondition.CheckFinding
	for _, risk := range risks {
		if risk.Name != status.RiskDeletes { // which the gate finds itself
			findings = append(findings, precondition.CheckFinding{
				Check: risk.Name, Severity: precondition.Blocks, Message: risk.Message, Lifts: "the end of what Upgradeable=False tells of",
			})
		}
	}
	return findings
}

// isMinor returns whether an update changes the minor version, or the major one. An install changes none, and of
// versions that can't be compared it is to be feared.
func isMinor(from, to string) bool {
	if from == "" || from == to {
		return false
	}
	before, err := version.ParseSemantic(from)
	if err != nil {
		return true
	}
	after, err := version.ParseSemantic(to)
	return err != nil || before.Major() != after.Major() || before.Minor() != after.Minor()
}
