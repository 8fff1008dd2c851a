package show

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// Limits of Text, unless All is set.
const (
	maxFields   = 40 // fields of an object
	maxWarnings = 20 // warnings with the same reason
)

// Text writes the plan for a terminal.
func (pr Printer) Text(out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "%s\n%s\n", printable.Line(pr.Impact()), printable.Line(pr.Title()))
	if nothing := pr.ReasonOfNoChange(); nothing != "" {
		fmt.Fprintf(w, "  %s\n", nothing)
	}
	pr.textCounts(w)
	pr.textWarnings(w)
	for _, g := range pr.Groups() {
		pr.textGroup(w, g)
	}
	return w.Flush()
}

// textCounts writes the counts of actions, with their signs.
func (pr Printer) textCounts(w io.Writer) {
	for _, action := range plan.Actions() {
		if count := pr.Plan.Counts[action]; count > 0 {
			fmt.Fprintf(w, "  %s %5d %s\n", sign(action), count, CountWords(action, count))
		}
	}
}

// textWarnings writes the warnings and notes.
func (pr Printer) textWarnings(w io.Writer) {
	notes := pr.Notes()
	if len(pr.Plan.Warnings) == 0 && len(notes) == 0 {
		return
	}
	fmt.Fprintf(w, "\nneeds attention\n")
	for _, line := range notes {
		fmt.Fprintf(w, "  %s\n", printable.Line(line))
	}
	shown := map[plan.Reason]int{}
	for _, warning := range pr.Plan.Warnings {
		if shown[warning.Reason]++; pr.All || shown[warning.Reason] <= maxWarnings {
			fmt.Fprintf(w, "  %s: %s\n", warning.ID, printable.Line(warning.Message))
		}
	}
	for _, reason := range plan.Reasons() {
		if more := shown[reason] - maxWarnings; more > 0 && !pr.All {
			fmt.Fprintf(w, "  and %d more for the reason %s: --all lists them\n", more, reason)
		}
	}
}

func (pr Printer) textGroup(w io.Writer, g *Group) {
	if len(g.Entries) == 0 {
		return
	}
	var parts []string
	if g.IsGone {
		parts = append(parts, "no longer in the release")
	}
	if g.From != "" {
		parts = append(parts, "from "+g.From)
	}
	if g.Hidden > 0 {
		parts = append(parts, fmt.Sprintf("%d unchanged", g.Hidden))
	}
	fmt.Fprintf(w, "\n%s", g.Title)
	if len(parts) > 0 {
		fmt.Fprintf(w, "  (%s)", strings.Join(parts, ", "))
	}
	fmt.Fprintln(w)
	for _, e := range g.Entries {
		pr.textEntry(w, g, e)
	}
}

func (pr Printer) textEntry(w io.Writer, g *Group, e plan.ObjectPlan) {
	fmt.Fprintf(w, "  %s %s", sign(e.Action), e.ID)
	d := pr.Details(g, e, pr.Limit())
	if d.Why != "" {
		fmt.Fprintf(w, "  (%s)", d.Why)
	}
	fmt.Fprintln(w)
	for _, line := range d.Hooks {
		fmt.Fprintf(w, "      %s\n", line)
	}
	writeChanges(w, "      ", d)
	if d.Rest != "" {
		fmt.Fprintf(w, "      %s\n", d.Rest)
	}
	if d.Tombstone != "" {
		fmt.Fprintf(w, "      to delete it, put this into %s:\n", printable.Line(d.File))
		writeLines(w, "        ", d.Tombstone)
	}
}

// Limit returns how many fields of an object are shown; 0 if all are.
func (pr Printer) Limit() int {
	if pr.All {
		return 0
	}
	return maxFields
}

// writeChanges writes the changed fields of an object, and those of other managers that stay.
func writeChanges(w io.Writer, indent string, details Details) {
	for _, d := range details.Changes {
		fmt.Fprintf(w, "%s%s: %s → %s", indent, d.Path, d.Old, d.New)
		if d.Remark != "" {
			fmt.Fprintf(w, "  (%s)", d.Remark)
		}
		fmt.Fprintln(w)
		for _, line := range d.Lines {
			fmt.Fprintf(w, "%s  %s\n", indent, line)
		}
	}
	for _, line := range details.Foreign {
		fmt.Fprintf(w, "%s%s\n", indent, printable.Line(line))
	}
}

// writeLines writes the lines of a text, indented.
func writeLines(w io.Writer, indent, text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(w, "%s%s\n", indent, printable.Line(strings.TrimSuffix(line, "\n")))
	}
}

// hooks returns the lines about the lifecycle hooks of a Deployment.
func (pr Printer) hooks(e plan.ObjectPlan) []string {
	var lines []string
	running := e.RunningHooks()
	if len(running) > 0 {
		lines = append(lines, pr.verb("runs its hooks: ", "would run its hooks: ")+hookNames(running))
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
func (pr Printer) verb(definite, conditional string) string {
	if pr.Plan.Cluster != nil {
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
