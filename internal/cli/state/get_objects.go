package state

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// wide is the format of tables with more columns.
const wide core.Output = "wide"

// NewGet returns the verb get, without its subcommands.
func NewGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get",
		Short: "Print the manifests of an applied release, or list its objects",
		Long: `Print the manifests of an applied release, or list its objects on the cluster. The manifests are
those that were applied: the cluster has a copy of the files of the last five versions.`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) == 0 || len(command.SuggestionsFor(args[0])) > 0 {
				return cobra.NoArgs(command, args)
			}
			return fmt.Errorf("write \"runlevel get objects %[1]s\" or \"runlevel get manifests %[1]s\"", args[0])
		},
		RunE: core.NeedsVerb,
	}
}

const getObjectsHelp = `List the objects of a release on the cluster, and those that are missing, with their states.
With -o wide, the list also has the managers that own fields of each object, and the reason why an
object is not ready, as "runlevel why" explains it. The names of missing objects are from the
manifests that were applied.

Exit codes: 0 if the objects could be read, whatever their states are; 1 if not; 2 for misuse.`

// NewGetObjects returns the verb get objects.
func NewGetObjects(streams core.Streams) *cobra.Command {
	var f displayFlags
	command := &cobra.Command{
		Use:   "objects NAME",
		Short: "List the objects of a release on the cluster",
		Long:  getObjectsHelp,
		Example: `  runlevel get objects shop

  # Which objects are not ready, or differ from the release?
  runlevel get objects shop -o json |
    jq -r '.objects[] | select(.state != "ready") | "\(.object.kind) \(.object.name): \(.state)"'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.cluster.CompleteRelease,
		RunE: func(command *cobra.Command, args []string) error {
			f.name = args[0]
			return f.objects(command.Context(), streams)
		},
	}
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format, core.Text, wide, core.JSON, core.YAML)
	return command
}

func (f *displayFlags) objects(ctx context.Context, streams core.Streams) error {
	if _, err := core.AppliedRef(f.name, 0); err != nil {
		return err
	}
	reader, err := connect(ctx, &f.cluster)
	if err != nil {
		return err
	}
	records, err := f.records(ctx, reader)
	if err != nil {
		return err
	}
	list, err := reader.Objects(ctx, records[0])
	if err != nil {
		return err
	}
	if f.format != core.Text {
		if err := reader.AddOwners(ctx, list); err != nil {
			return err
		}
	}
	return f.format.PrintWhole(streams.Out, list, func(out io.Writer) error {
		return printObjects(out, list, f.format == wide, reader.Cluster.Now())
	})
}

// printObjects prints a table of objects, and the facts that could not be read.
func printObjects(out io.Writer, list *state.ObjectList, isWide bool, now time.Time) error {
	header := "KIND\tNAMESPACE\tNAME\tSTATE\tAGE"
	if isWide {
		header += "\tOWNERS\tWHY"
	}
	rows := []string{header}
	for _, shown := range list.Objects {
		age := "-"
		if shown.Created != nil {
			age = printable.Age(now, *shown.Created)
		}
		row := fmt.Sprintf("%s\t%s\t%s\t%s\t%s", shown.Object.GroupKind(), cmp.Or(shown.Object.Namespace, "-"),
			shown.Object.Name, shown.State, age)
		if isWide {
			row += fmt.Sprintf("\t%s\t%s", printable.Line(cmp.Or(strings.Join(shown.Owners, ","), "-")),
				printable.Line(shown.Message))
		}
		rows = append(rows, row)
	}
	lines := core.Align(rows)
	if list.Missing > 0 {
		lines = append(lines, fmt.Sprintf("and %s, deleted since the release was applied, whose names are not known",
			printable.Count(list.Missing, "object")))
	}
	for _, what := range list.Unknown {
		lines = append(lines, "not known: "+printable.Line(what))
	}
	return core.PrintLines(out, lines)
}
