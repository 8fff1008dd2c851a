package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// asWide is a table with more columns.
const asWide core.Output = "wide"

// listFlags are the flags of runlevel list.
type listFlags struct {
	cluster core.ClusterFlags
	format  core.Output
	all     bool
}

const listHelp = `List the releases on a cluster: their versions, whether they are complete and all is well, since
when, who keeps them in place, and how many deletes are pending.

  Complete      the newest version is complete, and its objects are as they are to be
  Applying      a process applies it
  Incomplete    its newest version was not completed, and no process applies it
  FailedTests   it is complete, and a test of it has failed
  Degraded      it is complete, and something is wrong: "runlevel status NAME" shows what
  Lost          it has objects on the cluster, and no record: the line below the table has the remedy
  Uninstalling  an uninstall was begun, and has not ended
  Unknown       it is complete, and this user may not read everything that shows whether all is well

A release is kept in place by the operator, by an apply with --watch, or by none (no process).

-o wide adds the namespace of the record, the version before, the source and the first problem.

Exit codes: 0, whatever the releases are; 1 when they can't be read; 2 for misuse.`

// NewList returns the verb list.
func NewList(streams core.Streams) *cobra.Command {
	var f listFlags
	command := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the releases on a cluster",
		Long:    listHelp,
		Example: `  runlevel list

  # Those whose records are in other namespaces, too
  runlevel list -A

  # Which are not well, and why?
  runlevel list -o json | jq -r '.[] | select(.state != "Complete") | "\(.release): \(.state): \(.problems[0])"'`,
		RunE: func(command *cobra.Command, _ []string) error {
			if f.all && command.Flags().Changed("record-namespace") {
				return core.Misusef("-A lists the releases of all namespaces: leave --record-namespace out")
			}
			return f.run(command.Context(), streams)
		},
	}
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format, core.Text, asWide, core.JSON, core.YAML)
	command.Flags().BoolVarP(&f.all, "all-namespaces", "A", false,
		"those with records in any namespace, not only in that of --record-namespace")
	return command
}

func (f *listFlags) run(ctx context.Context, streams core.Streams) error {
	reader, err := connect(ctx, &f.cluster)
	if err != nil {
		return err
	}
	if f.all {
		reader.Namespace = metav1.NamespaceAll
	}
	found, broken := reader.List(ctx)
	if len(found) == 0 && broken != nil {
		return broken
	}
	err = f.format.Print(streams.Out, found, func(out io.Writer) error {
		if len(found) == 0 && f.all {
			return core.PrintLines(out, []string{"no release has a record in any namespace"})
		}
		if len(found) == 0 {
			return core.PrintLines(out, reader.NotAppliedLines(ctx))
		}
		lines := core.Align(f.rows(found, reader.Cluster.Now()))
		for _, of := range found {
			if of.State == state.IsLost {
				lines = append(lines, printable.Line(of.Release+": "+of.Problems[0]))
			}
		}
		return core.PrintLines(out, lines)
	})
	return errors.Join(err, broken)
}

// rows returns the table of releases.
func (f *listFlags) rows(releases []state.ListedRelease, now time.Time) []string {
	header := "NAME\tVERSION\tSTATE\tAGE\tKEPT BY\tDELETES\tPROBLEMS"
	if f.all {
		header = "NAMESPACE\t" + header
	}
	if f.format == asWide {
		header += "\tAFTER\tSOURCE\tFIRST PROBLEM"
	}
	rows := []string{header}
	for _, of := range releases {
		word, age := string(of.State), ""
		if of.State == state.IsApplying && of.Percent != nil {
			word += " " + strconv.Itoa(*of.Percent) + "%"
		}
		if of.Since != nil {
			age = printable.Age(now, *of.Since)
		}
		row := fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%d", printable.Line(of.Release),
			printable.Line(cmp.Or(of.Version, "-")), word, age, of.KeptBy, of.Deletes, len(of.Problems))
		if f.all {
			row = cmp.Or(of.Namespace, "-") + "\t" + row
		}
		if f.format == asWide {
			row += fmt.Sprintf("\t%s\t%s\t%s", printable.Line(cmp.Or(of.Previous, "-")),
				printable.Line(cmp.Or(of.Source, "-")), append(of.Problems, "")[0])
		}
		rows = append(rows, row)
	}
	return rows
}
