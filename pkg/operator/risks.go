package operator

import (
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/runlevel/runlevel/pkg/precondition"
	"github.com/runlevel/runlevel/pkg/status"
)

// deletionRisk is the risk that the gate finds itself.
const deletionRisk = "ResourceDeletionInProgress"

// riskFindings returns the risks that hold back an update: those of a minor or a major one.
func riskFindings(risks []status.Risk, from, to string) []precondition.CheckFinding {
	if !isMinor(from, to) {
		return nil
	}
	var findings []precondition.CheckFinding
	for _, risk := range risks {
		if risk.Name != deletionRisk {
			findings = append(findings, precondition.CheckFinding{
				Check: risk.Name, Severity: precondition.Blocks, Message: risk.Message, Lifts: "the end of what Upgradeable=False tells of",
			})
		}
	}
	return findings
}

// isMinor returns whether an update changes the minor version, or the major one. An install changes none.
func isMinor(from, to string) bool {
	before, err := version.ParseSemantic(from)
	if err != nil {
		return false
	}
	after, err := version.ParseSemantic(to)
	return err != nil || before.Major() != after.Major() || before.Minor() != after.Minor()
}
