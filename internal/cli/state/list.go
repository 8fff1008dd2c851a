package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// listFlags are the flags of runlevel list.
type listFlags struct {
	displayFlags
	all     bool
	many    core.ManyClusterFlags
	timeout time.Duration
}

const listHelp = `List the releases on a cluster: their versions and states, the time since when, the process that
keeps them in place, and the number of pending deletes and problems.

  Complete      the newest version is complete, and its objects are ready and unchanged
  Applying      a process applies it
  Incomplete    its newest version was not completed, and no process applies it
  FailedTests   it is complete, and one of its tests has failed
  Degraded      it is complete, and has problems: see "runlevel status NAME"
  Lost          it has objects on the cluster, and no record: the line below the table has the remedy
  Uninstalling  an uninstall has begun, and has not ended
  Unknown       it is complete, and some checks are unavailable, for example to this user

A release is kept in place by the operator, by an apply with --watch, or by no process (none).

-o wide adds the previous version, the source and the first problem.

With --contexts or --kubeconfig-dir, the releases of several clusters are listed, which are read at
the same time:

  BLOCKED BY  what stops the requested version, or the next minor version
  UPDATES     the updates of the update service, the recommended ones first; after another one,
              the risk is in parentheses

Of several blocks or updates, the first one is shown, with the number of the others; -o wide shows
all, and does not shorten long names.

A cluster that can't be read, or not within --timeout, has the state NotRead. The reason is in a
line below the table, or in the field "error" of -o json.

Exit codes: 0 if the releases could be read, whatever their states are; 1 if not, or not those of
all clusters; 2 for misuse.`

// NewList returns the verb list.
func NewList(streams core.Streams) *cobra.Command {
	var f listFlags
	command := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the releases on a cluster",
		Long:    listHelp,
		Example: `  runlevel list

  # Include releases whose records are in other namespaces
  runlevel list -A

  # Two clusters of the kubeconfig; all clusters, with all blocks and updates; a folder of kubeconfigs
  runlevel list --contexts berlin,paris
  runlevel list --contexts '*' -o wide
  runlevel list --kubeconfig-dir ~/clusters

  # Which clusters could not be read, or have a release in another state than Complete?
  runlevel list --contexts '*' -o json | jq -r '.[] | select(.error or any(.releases[]; .state != "Complete")) | .cluster'

  # Which releases have problems?
  runlevel list -o json | jq -r '.[] | select(.state != "Complete") | "\(.release): \(.state): \(.problems[0])"'`,
		RunE: func(command *cobra.Command, _ []string) error {
			if f.all && command.Flags().Changed("record-namespace") {
				return core.Misusef("-A lists the releases of all namespaces: omit --record-namespace")
			}
			if f.many.AreSet() {
				return f.runMany(command.Context(), streams)
			}
			if command.Flags().Changed("timeout") {
				return core.Misusef("--timeout is for several clusters: add --contexts or --kubeconfig-dir")
			}
			return f.run(command.Context(), streams)
		},
	}
	core.AddClusterFlags(command, &f.cluster)
	core.AddManyClusterFlags(command, &f.many, &f.cluster)
	command.Flags().DurationVar(&f.timeout, "timeout", 10*time.Second,
		"with several clusters, how long each cluster may take")
	core.AddOutput(command, &f.format, core.Text, wide, core.JSON, core.YAML)
	command.Flags().BoolVarP(&f.all, "all-namespaces", "A", false,
		"list releases with records in any namespace, not only in that of --record-namespace")
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
	releases, unreadable := reader.ListWithVersion(ctx)
	if len(releases) == 0 && unreadable != nil {
		return unreadable
	}
	err = f.format.Print(streams.Out, releases, func(out io.Writer) error {
		if len(releases) == 0 && f.all {
			return core.PrintLines(out, []string{"no release has a record in any namespace"})
		}
		if len(releases) == 0 {
			return core.PrintLines(out, reader.NotAppliedLines(ctx))
		}
		lines := core.Align(f.rows(releases, reader.Cluster.Now()))
		for _, release := range releases {
			if release.State == state.ReleaseLost {
				lines = append(lines, printable.Line(release.Release+": "+release.Problems[0]))
			}
		}
		return core.PrintLines(out, lines)
	})
	return errors.Join(err, unreadable)
}

// rows returns the table of releases.
func (f *listFlags) rows(releases []state.ListedRelease, now time.Time) []string {
	header := "NAME\tVERSION\tSTATE\tAGE\tKEPT BY\tDELETES\tPROBLEMS"
	if f.all {
		header = "NAMESPACE\t" + header
	}
	if f.format == wide {
		header += "\tAFTER\tSOURCE\tFIRST PROBLEM"
	}
	rows := []string{header}
	for _, release := range releases {
		word, age := stateAndAge(release, now)
		row := fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%d", printable.Line(release.Release),
			printable.Line(cmp.Or(release.Version, "-")), word, age, release.KeptBy, release.Deletes,
			len(release.Problems))
		if f.all {
			row = cmp.Or(release.Namespace, "-") + "\t" + row
		}
		if f.format == wide {
			row += fmt.Sprintf("\t%s\t%s\t%s", printable.Line(cmp.Or(release.Previous, "-")),
				printable.Line(cmp.Or(release.Source, "-")), append(release.Problems, "")[0])
		}
		rows = append(rows, row)
	}
	return rows
}
