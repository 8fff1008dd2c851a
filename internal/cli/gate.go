package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/precondition"
	"github.com/runlevel/runlevel/pkg/ready"
	"github.com/runlevel/runlevel/pkg/rollout"
)

// gateFlags are the flags of runlevel gate.
type gateFlags struct {
	release releaseFlags
	cluster clusterFlags
	format  output
	wait    ready.Standard
}

func newGate(streams Streams) *cobra.Command {
	f := gateFlags{wait: ready.Full}
	command := &cobra.Command{
		Use:   "gate SOURCE",
		Short: "Check what would block a release on a cluster",
		Long: `Check what would block a release on a cluster, before it is applied: pending deletes, an
older version or one that skips a minor version, missing rights, kinds that the cluster
does not have, objects of other releases. Each finding says since when, and who can lift
it. Nothing is written.

Exit codes: 0 when nothing blocks, 1 when something does, 2 for misuse.

` + sourceHelp,
		Example: `  # May this cluster be updated?
  runlevel gate ./4.21

  # Which checks block?
  runlevel gate ./4.21 -o json | jq -r '.findings[] | select(.severity == "Blocks") | .check'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeSource,
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args[0], streams)
		},
	}
	addReleaseFlags(command, &f.release)
	addClusterFlags(command, &f.cluster)
	addOutput(command, &f.format)
	addChoice(command, &f.wait, "wait", "what apply would wait for, which says what it must be allowed to watch: ready or upstream", ready.Full, ready.Upstream)
	return command
}

// A gateReport is what the gate says.
type gateReport struct {
	Release  string                      `json:"release"`
	Version  string                      `json:"version,omitempty"`
	Previous string                      `json:"previous,omitempty"`
	Mode     string                      `json:"mode"`
	Blocked  bool                        `json:"blocked"`
	Findings []precondition.CheckFinding `json:"findings"`
}

func (f *gateFlags) run(ctx context.Context, ref string, streams Streams) error {
	release, c, err := f.cluster.readFor(ctx, &f.release, ref, streams.Err)
	if err != nil {
		return err
	}
	outcome := rollout.Inspect(ctx, c, release, rollout.Options{
		Namespace: f.cluster.namespace, Source: ref, Apply: apply.Options{Standard: f.wait},
	})
	if outcome.Err != nil {
		return outcome.Err
	}
	report := gateReport{
		Release: outcome.Release, Version: outcome.Version, Previous: outcome.Previous, Mode: string(outcome.Mode),
		Blocked: len(precondition.Blocking(outcome.Findings)) > 0, Findings: append([]precondition.CheckFinding{}, outcome.Findings...),
	}
	if err := f.format.print(streams.Out, report, func(out io.Writer) error { return report.print(out, titleOf(outcome)) }); err != nil {
		return err
	}
	return failIf(report.Blocked)
}

// print prints the report for people.
func (r gateReport) print(out io.Writer, title string) error {
	for _, found := range r.Findings {
		fmt.Fprintln(out, gateText(found))
	}
	verdict := "nothing stops it"
	if r.Blocked {
		verdict = "it is blocked"
	}
	_, err := fmt.Fprintf(out, "%s of %s: %s\n", r.Mode, title, verdict)
	return err
}

// liftingFlags are the flags that lift what checks find, by check.
var liftingFlags = map[string]string{
	precondition.ApplyRunning:    " (--wait-lock waits for it)",
	precondition.RecordElsewhere: " (--record-namespace)",
}

// gateText returns a finding for people, with the flag that lifts it.
func gateText(found precondition.CheckFinding) string {
	return found.Text() + liftingFlags[found.Check]
}
