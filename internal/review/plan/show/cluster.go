package show

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// clusterTitle returns the title of the plan of a cluster.
func (pr Printer) clusterTitle() string {
	p := pr.Plan
	title := fmt.Sprintf("%s of release %s", p.Cluster.Mode, p.To.Name)
	if p.To.Version != "" {
		title += " " + p.To.Version
	}
	title += " on the cluster"
	if p.From.Version == "" || p.From.Version == p.To.Version {
		return title
	}
	title += ", after " + p.From.Version
	if p.Update == plan.Unknown {
		return title
	}
	return fmt.Sprintf("%s (%s)", title, updates()[p.Update])
}

// Notes returns the gate's findings, and the unknown facts about the cluster.
func (pr Printer) Notes() []string {
	if pr.Plan.Cluster == nil {
		return nil
	}
	var parts []string
	for _, found := range pr.Plan.Cluster.Gate {
		verb := "warns"
		if found.Severity == plan.Blocking {
			verb = "would refuse"
		}
		parts = append(parts, fmt.Sprintf("the gate %s: %s: %s", verb, found.Check, found.Message))
	}
	for _, note := range pr.Plan.Cluster.Notes {
		parts = append(parts, "not known: "+note)
	}
	return parts
}

// whyInCluster returns the notes on an object that only the plan of a cluster has.
func whyInCluster(e plan.ObjectPlan) []string {
	var parts []string
	if e.Unchecked != "" && e.Unchecked != e.Why && !e.Recreated { // Recreated implies it
		parts = append(parts, "not checked by the cluster: "+printable.Line(e.Unchecked))
	}
	if len(e.Adopted) > 0 {
		parts = append(parts, "adopted from "+printable.Line(strings.Join(e.Adopted, ", ")))
	}
	if e.AlsoDeletes == nil || e.AlsoDeletes.Objects == 0 {
		return parts
	}
	if e.Action == plan.Dropped {
		return append(parts, "deleting it would also delete "+e.AlsoDeletes.String())
	}
	return append(parts, "also deletes "+e.AlsoDeletes.String())
}

// Diff writes the changes of a cluster, object by object, with all fields.
func (pr Printer) Diff(out io.Writer) error {
	w := bufio.NewWriter(out)
	for _, line := range pr.Notes() {
		fmt.Fprintln(w, printable.Line(line))
	}
	less := pr.Plan.WithoutUnchanged()
	if nothing := pr.ReasonOfNoChange(); nothing != "" {
		fmt.Fprintln(w, nothing)
	}
	for _, e := range less.Steps {
		fmt.Fprintf(w, "%s %s (%s:%d)\n", sign(e.Action), e.ID, printable.Line(e.New.File), e.New.Line)
		d := pr.Details(&Group{}, e, 0)
		if d.Why != "" {
			fmt.Fprintf(w, "    (%s)\n", d.Why)
		}
		for _, line := range d.Hooks {
			fmt.Fprintf(w, "    %s\n", line)
		}
		writeChanges(w, "    ", d)
		pr.writeWhole(w, e)
	}
	if command := pr.foreignCommand(); command != "" {
		fmt.Fprintf(w, "remove what the release does not have with: %s\n", printable.Line(command))
	}
	return w.Flush()
}

// foreignCommand returns the apply that removes the fields of other managers; "" if there are none.
func (pr Printer) foreignCommand() string {
	var managers []string
	for _, e := range pr.Plan.Steps {
		for _, foreign := range e.Foreign {
			managers = append(managers, printable.ShellWord("--remove-foreign-fields="+foreign.Manager))
		}
	}
	if len(managers) == 0 {
		return ""
	}
	slices.Sort(managers)
	return strings.Join(append([]string{strings.Replace(pr.Command, "runlevel diff", "runlevel apply", 1)},
		slices.Compact(managers)...), " ")
}

// writeWhole writes a new object, if All is set.
func (pr Printer) writeWhole(w io.Writer, e plan.ObjectPlan) {
	if !pr.All || e.Whole == nil {
		return
	}
	text, err := yaml.Marshal(e.Whole)
	if err != nil {
		return // values that come from JSON can always be written
	}
	writeLines(w, "    ", string(text))
}
