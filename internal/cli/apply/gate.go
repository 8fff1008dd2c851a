package apply

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// gateFlags are the flags of runlevel gate.
type gateFlags struct {
	core.IntentFlags
	format core.Output
}

const gateHelp = `Check whether a release can be applied to a cluster. The gate reports pending deletes, an
older version or one that skips a minor version, missing rights, kinds that the cluster
does not have, objects of other releases; and objects that the API server would refuse,
which dry runs find, or the validation of lint if the cluster can't check an object yet.
Each finding shows when it began, and how to resolve it. The gate writes nothing.

Exit codes: 0 when no check blocks and no object is refused, 1 otherwise, 2 for
misuse.

` + core.SourceHelp

// NewGate returns the verb gate.
func NewGate(streams core.Streams) *cobra.Command {
	var f gateFlags
	command := &cobra.Command{
		Use:   "gate SOURCE",
		Short: "Check whether a release can be applied to a cluster",
		Long:  gateHelp,
		Example: `  # May this cluster be updated?
  runlevel gate ./4.21

  # Which checks block?
  runlevel gate ./4.21 -o json | jq -r '.findings[] | select(.severity != "Warns") | .check'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: core.CompleteSource,
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args[0], streams)
		},
	}
	core.AddReleaseFlags(command, &f.Release, &f.Cluster)
	core.AddKubectlFlags(command, &f.Release)
	core.AddIntentFlags(command, &f.IntentFlags)
	core.AddOutput(command, &f.format)
	core.AddChoice(command, &f.Session.Apply.Standard, "wait",
		"objects that apply would wait for and have to watch: ready or upstream", ready.Full, ready.Upstream)
	return command
}

// A GateReport is the result of the gate.
type GateReport struct {
	Release  string                 `json:"release"`
	Version  string                 `json:"version,omitempty"`
	Previous string                 `json:"previous,omitempty"`
	Mode     string                 `json:"mode"`
	Blocked  bool                   `json:"blocked"`
	Findings []precondition.Finding `json:"findings"`
}

func (f *gateFlags) run(ctx context.Context, ref string, streams core.Streams) error {
	preview, err := f.Preview(ctx, ref, streams.Err)
	if err != nil {
		return err
	}
	findings := preview.PreviewFindings()
	isSerious := func(found precondition.Finding) bool { return found.Severity != precondition.Warns }
	report := GateReport{
		Release: preview.Release, Version: preview.Version, Previous: preview.Previous, Mode: string(preview.Mode),
		Blocked: slices.ContainsFunc(findings, isSerious), Findings: append([]precondition.Finding{}, findings...),
	}
	if err := f.format.Print(streams.Out, report, func(out io.Writer) error {
		return report.print(out, titleOf(preview.Outcome))
	}); err != nil {
		return err
	}
	return core.FailIf(report.Blocked)
}

// print prints the report as text.
func (r GateReport) print(out io.Writer, title string) error {
	for _, found := range r.Findings {
		fmt.Fprintln(out, gateText(found))
	}
	_, err := fmt.Fprintf(out, "%s of %s: %s\n", r.Mode, title, r.verdict())
	return err
}

// verdict returns as text whether an apply would be done.
func (r GateReport) verdict() string {
	refused, unknown := 0, 0
	for _, found := range r.Findings {
		switch {
		case found.Severity == precondition.Blocks:
			return "it is blocked"
		case found.Check == session.RefusedObject:
			refused += max(1, len(found.Objects))
		case found.Check == session.UncheckedObject:
			unknown += max(1, len(found.Objects))
		}
	}
	switch {
	case refused > 0:
		return "it would fail: the cluster refuses " + printable.Count(refused, "object")
	case unknown > 0:
		return "no known finding blocks it, and " + printable.Count(unknown, "object") + " can't be checked"
	default:
		return "nothing stops it"
	}
}

// resolvingFlags are the flags that resolve findings, by check.
var resolvingFlags = map[string]string{
	precondition.ApplyRunning:     " (--wait-lock waits for it)",
	precondition.BeingUninstalled: " (--force applies all its objects again)",
	precondition.RecordElsewhere:  " (--record-namespace)",
	precondition.MissingNamespace: " (--create-namespace)",
}

// gateText returns a finding as text, with the flag that resolves it.
func gateText(found precondition.Finding) string {
	if found.Resolution == lock.KeeperEnd { // a wait for a process that keeps the release would not end
		return found.Text()
	}
	return found.Text() + resolvingFlags[found.Check]
}
