// Package machines is the verb that lists machines, and that which previews a rollout of them.
//
// It prints what packages overview and rolloutpreview of internal/machines have found. It changes nothing, and handles
// no machine.
//
// New is the call to start from: it returns the verb machines.
package machines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// machinesFlags are the flags of runlevel machines.
type machinesFlags struct {
	cluster core.ClusterFlags
	format  core.Output
	query   overview.MachineQuery
	watch   bool
}

// asWide is the table with more columns.
const asWide core.Output = "wide"

const machinesHelp = `List the machines of a cluster (of OpenShift's API and of Cluster API), and what each waits for: the
lifecycle hook and its owner, the pod that a PodDisruptionBudget keeps on the node, another node of
the control plane, the infrastructure object, the node that is to join, a finalizer of another controller.

Machines of a control plane are listed below the ControlPlaneMachineSet or the RunlevelControlPlane that
replaces them, with whether they are up to date. With -o json they have it in "controlPlane".

Nothing is changed, and it also works on clusters whose machines OpenShift's own controllers manage.
What you have no right to read is shown as not known. "runlevel why machine/NAME" explains one
machine, and shows what to do.

SINCE is the time in the phase. A hook whose owner was uninstalled looks like any other: a machine
that it has held for long is a sign of that.

--watch shows the machines again whenever something has changed, until Ctrl-C: on a terminal in
place; else each machine or control plane that has changed on a line of its own, as "Gone" once it is
gone; with -o json a machine as a value in a line. It goes on while the API server does not respond, and
reports that.

Exit codes: 0 when the machines could be listed, held or not; 1 when they could not: the cluster can't
be reached, does not serve machines or does not let this user list them, or has no machine of a NAME;
2 for misuse.`

const machinesExamples = `  # All machines of the cluster
  runlevel machines

  # Follow a deletion
  kubectl delete machine.machine.openshift.io web-4 -n shop-machines --wait=false
  runlevel machines web-4 -n shop-machines --watch

  # What holds the machines that are being deleted?
  runlevel machines --deleting

  # Which hooks have held a machine for more than an hour?
  runlevel machines --deleting -o json |
    jq -r '.[] | .name as $m | .holds[]? | select(.owner and (now - (.since | fromdate) > 3600)) | "\($m): \(.name) of \(.owner)"'

  # What is to be done about it?
  runlevel why machine/web-4 -n shop-machines`

// New returns the verb machines.
func New(streams core.Streams) *cobra.Command {
	var f machinesFlags
	command := &cobra.Command{
		Use:               "machines [NAME...]",
		Short:             "List machines, and what holds those that are being deleted",
		Long:              machinesHelp,
		Example:           machinesExamples,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: f.completeNames,
		RunE: func(command *cobra.Command, args []string) error {
			f.query.Names = args
			return f.run(command.Context(), streams)
		},
	}
	core.AddConnectionFlags(command, &f.cluster)
	core.AddOutput(command, &f.format, core.Text, asWide, core.JSON, core.YAML)
	flags := command.Flags()
	flags.StringVarP(&f.query.Namespace, "namespace", "n", "",
		"only the machines of this namespace (default: all namespaces)")
	flags.BoolVar(&f.query.OnlyDeleting, "deleting", false, "only machines that are being deleted")
	flags.BoolVarP(&f.watch, "watch", "w", false, "show them again whenever something has changed, until Ctrl-C")
	_ = command.RegisterFlagCompletionFunc("namespace", f.completeNamespaces)
	command.AddCommand(newMachinesPlan(streams))
	return command
}

// completeNames completes the names of machines.
func (f *machinesFlags) completeNames(command *cobra.Command, args []string,
	_ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, directive := f.cluster.CompleteMetadata(command, f.query.Namespace, (*metav1.PartialObjectMetadata).GetName,
		overview.Kind, overview.ClusterAPIKind)
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), directive
}

// completeNamespaces completes the namespaces that have machines.
func (f *machinesFlags) completeNamespaces(command *cobra.Command, _ []string,
	_ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.cluster.CompleteMetadata(command, f.query.Namespace, (*metav1.PartialObjectMetadata).GetNamespace,
		overview.Kind, overview.ClusterAPIKind)
}

func (f *machinesFlags) run(ctx context.Context, streams core.Streams) error {
	c, err := f.cluster.Connect(ctx)
	if err != nil {
		return err
	}
	list, err := listMachines(ctx, c, f.query)
	if err != nil {
		return err
	}
	if f.watch {
		return f.follow(ctx, c, list, streams)
	}
	if err := f.print(streams.Out, list, c.Now()); err != nil {
		return err
	}
	if missing := missingNames(list.Machines, f.query.Names); len(missing) > 0 && !f.query.OnlyDeleting {
		return fmt.Errorf("there is no machine of the name %s%s", strings.Join(missing, ", "), f.in())
	}
	return nil
}

// in returns " in namespace NAME", if the flag is set.
func (f *machinesFlags) in() string {
	if f.query.Namespace == "" {
		return ""
	}
	return " in namespace " + f.query.Namespace
}

// listMachines lists machines, or returns an error that refers to the documentation if they are not served.
func listMachines(ctx context.Context, c *cluster.Cluster, q overview.MachineQuery) (*overview.MachineList, error) {
	list, err := overview.List(ctx, c, q)
	if errors.Is(err, overview.ErrNotServed) {
		return nil, fmt.Errorf("the cluster serves no machines (machines.%s): docs/machines.md shows how to install "+
			"the machine controller", overview.Kind.Group)
	}
	return list, err
}

// missingNames returns the names that no machine has.
func missingNames(list []overview.MachineOverview, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(list, func(m overview.MachineOverview) bool { return m.Name == name })
	})
}

// print prints machines.
func (f *machinesFlags) print(out io.Writer, list *overview.MachineList, now time.Time) error {
	return f.format.PrintWhole(out, list.Machines, func(out io.Writer) error {
		return core.PrintLines(out, f.lines(list, now))
	})
}

// lines returns the control planes with their machines, the table of the other machines, and what could not be read.
func (f *machinesFlags) lines(list *overview.MachineList, now time.Time) []string {
	var lines []string
	var others []overview.MachineOverview
	for _, m := range list.Machines {
		if m.ControlPlane == nil {
			others = append(others, m)
		}
	}
	for _, set := range list.ControlPlanes {
		lines = append(append(lines, f.controlPlaneLines(set, list.Machines, now)...), "")
	}
	if len(others) > 0 || len(list.ControlPlanes) == 0 {
		lines = append(lines, f.table(others, now)...)
	} else {
		lines = lines[:len(lines)-1] // without the empty one
	}
	return append(lines, unknownLines(list)...)
}

// unknownLines returns a line for each thing that could not be read.
func unknownLines(list *overview.MachineList) []string {
	unknown := map[string]bool{}
	for _, what := range list.Unknown {
		unknown[what] = true
	}
	for i := range list.Machines {
		for _, what := range list.Machines[i].Unknown {
			unknown[what] = true
		}
	}
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(unknown)) {
		lines = append(lines, "not known: "+printable.Line(what))
	}
	return lines
}

// table returns a table of machines.
func (f *machinesFlags) table(list []overview.MachineOverview, now time.Time) []string {
	if len(list) == 0 && f.query.OnlyDeleting {
		return []string{"no machine is being deleted" + f.in()}
	}
	if len(list) == 0 {
		return []string{"there are no machines" + f.in()}
	}
	rows := []string{f.row([]string{"NAMESPACE", "MACHINE", "NODE", "PHASE", "SINCE", "PROVIDER ID", "HELD BY"})}
	for i := range list {
		rows = append(rows, f.rowOf(&list[i], now))
	}
	return core.Align(rows)
}

// rowOf returns the row of a machine.
func (f *machinesFlags) rowOf(m *overview.MachineOverview, now time.Time) string {
	return f.row([]string{m.Namespace, m.Name, m.Node, m.Phase, printable.Age(now, m.Since), m.ProviderID, m.HeldBy()})
}

// row returns a row of the table. Only a wide row has the providerID.
func (f *machinesFlags) row(of []string) string {
	if f.format != asWide {
		of = slices.Delete(of, 5, 6)
	}
	return cells(of...)
}
