package show

import (
	"fmt"
	"strings"

	"github.com/runlevel/runlevel/internal/review/plan"
)

// hooks returns the lines about the lifecycle hooks of a Deployment.
func (v Printer) hooks(e plan.ObjectPlan) []string {
	var lines []string
	running := e.RunningHooks()
	if len(running) > 0 {
		lines = append(lines, v.verb("runs its hooks: ", "would run its hooks: ")+hookNames(running))
	}
	for _, hookPlan := range e.Hooks {
		switch {
		case hookPlan.Change == plan.HookRemoved:
			lines = append(lines, fmt.Sprintf("its %s hook is removed", hookPlan.Stage))
		case hookPlan.Runs:
		case hookPlan.Change == plan.HookAdded:
			lines = append(lines, fmt.Sprintf("its %s hook (%s) is new, and does not run yet: %s", hookPlan.Stage,
				hookPlan.FailurePolicy, hookPlan.Why))
		case hookPlan.Change == plan.HookChanged:
			lines = append(lines, fmt.Sprintf("its %s hook (%s) is changed, and does not run: %s", hookPlan.Stage,
				hookPlan.FailurePolicy, hookPlan.Why))
		case len(running) > 0:
			lines = append(lines, fmt.Sprintf("its %s hook (%s) does not run: %s", hookPlan.Stage,
				hookPlan.FailurePolicy, hookPlan.Why))
		case len(lines) == 0:
			lines = append(lines, "no hook runs: "+hookPlan.Why)
		}
	}
	return lines
}

// verb returns the first text for a plan of two releases, and the second for one of a cluster.
func (v Printer) verb(definite, conditional string) string {
	if v.Plan.Cluster != nil {
		return conditional
	}
	return definite
}

// hookNames names hooks with their failure policies: "pre (Abort), post (Retry)".
func hookNames(hooks []plan.HookPlan) string {
	var names []string
	for _, hookPlan := range hooks {
		names = append(names, fmt.Sprintf("%s (%s)", hookPlan.Stage, hookPlan.FailurePolicy))
	}
	return strings.Join(names, ", ")
}
