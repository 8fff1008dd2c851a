package operator

import (
	"cmp"
	"slices"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// riskFindings returns the risks that hold back an update: those of a minor or a major one. An update that was begun
// goes on, and may be corrected by a patch. If the record is lost, previous is the version that was applied before. A
// patch does not update objects that overrides leave unmanaged, which is a warning.
func riskFindings(risks []precondition.CheckFinding, found *session.Outcome,
	previous string) []precondition.CheckFinding {
	from := cmp.Or(found.Previous, previous)
	if !precondition.IsMinor(from, found.Version) ||
		found.Begun != from && !precondition.IsMinor(cmp.Or(found.Begun, from), found.Version) {
		return overrideFindings(risks, found, from)
	}
	var findings []precondition.CheckFinding
	for _, risk := range risks {
		// the gate has checks of its own for these
		if risk.Check != clusterversion.RiskDeletes && risk.Check != clusterversion.RiskAdminAck {
			findings = append(findings, risk)
		}
	}
	isBegun := found.Begun != "" && found.Begun != from && found.Begun != found.Version
	if isUpdating := func(f precondition.CheckFinding) bool {
		return f.Check == clusterversion.RiskUpdating
	}; isBegun && !slices.ContainsFunc(findings, isUpdating) {
		findings = append(findings, precondition.CheckFinding{ // which a new leader has not observed yet
			Check: clusterversion.RiskUpdating, Severity: precondition.Blocks,
			Message: "The update to " + found.Begun + " is not complete.", Resolution: "its end",
		})
	}
	return findings
}

// overrideFindings warns of overrides in a patch.
func overrideFindings(risks []precondition.CheckFinding, found *session.Outcome,
	from string) []precondition.CheckFinding {
	at := slices.IndexFunc(risks, func(r precondition.CheckFinding) bool {
		return r.Check == clusterversion.RiskOverrides
	})
	if at < 0 || from == "" || from == found.Version {
		return nil
	}
	return []precondition.CheckFinding{{
		Check: clusterversion.RiskOverrides, Severity: precondition.Warns,
		Resolution: "an administrator, who removes the overrides",
		Message:    "The patch does not update the objects that overrides leave unmanaged. " + risks[at].Message,
	}}
}
