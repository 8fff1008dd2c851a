package review

import (
	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/review/plan/show"
)

// diffFlags are the flags of runlevel diff.
type diffFlags struct {
	core.IntentFlags
	format   core.Output
	all      bool
	exitCode bool
	foreign  bool
}

const diffHelp = `Show every field on a cluster that an apply of the release would change, in the order of
the apply: its value now, its value afterwards, and the manager whose value is overwritten.
The cluster is asked by dry runs, which change nothing. The values of Secrets are never shown.

  +  created          ~  changed          -  deleted
  x  refused by the cluster       ?  the cluster can't check it before the apply

NAME alone is the last applied version of that release: each difference is drift. If there is
also a file or folder of that name, NAME means the release; write ./NAME for the file or folder. Fields
that other managers have set and the release does not have are listed with the manager and the time: an
apply keeps them, unless --remove-foreign-fields names the manager or the object.

"runlevel plan OLD NEW" compares two releases, such as shop@3 and shop@5, and nothing else; "runlevel plan SOURCE
--cluster" sums this up by component, with the objects that are left behind or that deletes would
also delete; "runlevel apply SOURCE --dry-run=server" prints it as an apply would.

Exit codes: 0, whatever differs; 1 for an object that the cluster would refuse, or a cluster
that can't be reached; 2 for misuse or a release that can't be read. With --exit-code, 1 means
that there is a difference, and 2 is any failure.

`

const diffExamples = `  # Which fields were changed since the last apply?
  runlevel diff shop

  # What would going back to an earlier version change?
  runlevel diff shop@3

  # What would the update change?
  runlevel diff ./4.21

  # In a pipeline: does the cluster differ from the release?
  runlevel diff registry.example/shop:1.4.0 --exit-code

  # In which objects would changes be overwritten?
  runlevel diff ./4.21 -o json | jq -r '.steps[] | select(any(.changes[]?; .overwrites)) | "\(.kind) \(.namespace)/\(.name)"'`

// NewDiff returns the verb diff.
func NewDiff(streams core.Streams) *cobra.Command {
	var f diffFlags
	command := &cobra.Command{
		Use:               "diff SOURCE|NAME",
		Short:             "Show what an apply of a release would change in a cluster, field by field",
		Long:              diffHelp + core.SourceHelp,
		Example:           diffExamples,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: core.CompleteSource,
		RunE: func(command *cobra.Command, args []string) error {
			found, err := f.run(command, args, streams)
			return exitOfDifference(f.exitCode || f.foreign, found, err)
		},
	}
	core.AddReleaseFlags(command, &f.Release, &f.Cluster)
	core.AddKubectlFlags(command, &f.Release)
	core.AddIntentFlags(command, &f.IntentFlags)
	core.AddOutput(command, &f.format, core.Text, core.JSON, core.YAML, Markdown)
	command.Flags().BoolVar(&f.all, "all", false,
		"show all fields of created objects, and cut no text or value (in text)")
	command.Flags().BoolVar(&f.exitCode, "exit-code", false,
		"exit with 1 if there is a difference, and with 2 for any failure")
	command.Flags().BoolVar(&f.foreign, "exit-code-foreign", false,
		"like --exit-code, but also count fields that only other managers set")
	return command
}

func (f *diffFlags) run(command *cobra.Command, args []string, streams core.Streams) (planDifference, error) {
	ctx, ref := command.Context(), args[0]
	if !command.Flags().Changed("filename") {
		var err error
		if ref, err = f.Cluster.NameOrSource(ctx, ref, streams.Err); err != nil {
			return noDifference, err
		}
	}
	preview, err := f.Preview(ctx, ref, streams.Err)
	if err != nil {
		return noDifference, err
	}
	p, err := preview.Plan(ctx, streams.Err)
	if err != nil {
		return noDifference, err
	}
	if !f.all {
		core.DropWholeObjects(p)
	}
	view := show.Printer{Plan: p.WithoutUnchanged(), To: ref, All: f.all, Command: commandLine(command, []string{ref})}
	write := view.Diff
	if f.format == Markdown {
		write = view.Markdown
	}
	found := differenceOf(p, preview.IsRefused())
	if f.foreign && found == noDifference && p.HasForeign() {
		found = someDifference
	}
	return found, f.format.PrintWhole(streams.Out, view.Plan, write)
}
