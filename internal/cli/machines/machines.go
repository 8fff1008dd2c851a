// Package machines defines the verb that lists machines, and the verb that previews a rollout of them.
//
// The verbs print the results of packages overview and rolloutpreview of internal/machines. They change nothing, and
// have no logic for machines.
//
// New returns the verb machines. Start with New.
package machines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// listFlags are the flags of runlevel machines.
type listFlags struct {
	cluster core.ClusterFlags
	format  core.Output
	query   overview.Query
	watch   bool
}

// asWide is the table with more columns.
const asWide core.Output = "wide"

const machinesHelp = `List the machines of a cluster (of OpenShift's API and of Cluster API), and what each waits for: the
lifecycle hook and its owner, the pod that a PodDisruptionBudget keeps on the node, another node of
the control plane, the infrastructure object, the node that has not joined yet, a finalizer of another controller.

Machines of a control plane are listed below the ControlPlaneMachineSet or the RunlevelControlPlane that
replaces them, and show whether they are up to date. With -o json this is in "controlPlane".

The command changes nothing, and it also works on clusters whose machines OpenShift's own controllers manage.
Objects that you may not read are shown as not known. "runlevel why machine/NAME" explains one
machine, and shows what you can do.

SINCE is the time in the phase. The list can't show whether the owner of a hook was uninstalled: a hook
that has held a machine for a long time may be a sign of that.

--watch shows the machines again after each change, until Ctrl-C. On a terminal, it updates the list
in place; otherwise it prints a line for each changed machine or control plane, with the phase "Gone"
after its deletion; with -o json it prints a machine as a value on a line. It continues while the API server does
not respond, and reports that.

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

  # What can I do about it?
  runlevel why machine/web-4 -n shop-machines`

// New returns the verb machines.
func New(streams core.Streams) *cobra.Command {
	var f listFlags
	command := &cobra.Command{
		Use:               "machines [NAME...]",
		Short:             "List machines, and the hooks that hold deleted ones",
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
	flags.BoolVarP(&f.watch, "watch", "w", false, "show the machines again after each change, until Ctrl-C")
	_ = command.RegisterFlagCompletionFunc("namespace", f.completeNamespaces)
	command.AddCommand(newPlan(streams))
	return command
}

// completeNames completes the names of machines.
func (f *listFlags) completeNames(command *cobra.Command, args []string,
	_ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, directive := f.complete(command, (*metav1.PartialObjectMetadata).GetName)
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), directive
}

// completeNamespaces completes the namespaces that have machines.
func (f *listFlags) completeNamespaces(command *cobra.Command, _ []string,
	_ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.complete(command, (*metav1.PartialObjectMetadata).GetNamespace)
}

func (f *listFlags) complete(command *cobra.Command,
	text func(*metav1.PartialObjectMetadata) string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.cluster.CompleteMetadata(command, f.query.Namespace, text, overview.Kind, overview.ClusterAPIKind)
}

func (f *listFlags) run(ctx context.Context, streams core.Streams) error {
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
	err = f.format.PrintWhole(streams.Out, list.Machines, func(out io.Writer) error {
		return core.PrintLines(out, f.lines(list, c.Now()))
	})
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(f.query.Names), func(name string) bool {
		return slices.ContainsFunc(list.Machines, func(m overview.Machine) bool { return m.Name == name })
	})
	if len(missing) > 0 && !f.query.OnlyDeleting {
		return fmt.Errorf("no machine has the name %s%s", strings.Join(missing, ", "), f.inNamespace())
	}
	return nil
}

// inNamespace returns " in namespace NAME", if the flag is set.
func (f *listFlags) inNamespace() string {
	if f.query.Namespace == "" {
		return ""
	}
	return " in namespace " + f.query.Namespace
}

// listMachines lists machines, or returns an error that refers to the documentation if they are not served.
func listMachines(ctx context.Context, c *cluster.Cluster, q overview.Query) (*overview.Listing, error) {
	list, err := overview.List(ctx, c, q)
	if errors.Is(err, overview.ErrNotServed) {
		return nil, fmt.Errorf("the cluster serves no machines (machines.%s): docs/machines.md shows how to install "+
			"the machine controller", overview.Kind.Group)
	}
	return list, err
}

// lines returns the control planes with their machines, the table of the other machines, and failed reads.
func (f *listFlags) lines(list *overview.Listing, now time.Time) []string {
	var tables [][]string
	for _, controlPlane := range list.ControlPlanes {
		tables = append(tables, f.controlPlaneLines(controlPlane, list.Machines, now))
	}
	others := slices.DeleteFunc(slices.Clone(list.Machines), func(m overview.Machine) bool {
		return m.ControlPlane != nil
	})
	if len(others) > 0 || len(tables) == 0 {
		tables = append(tables, f.table(others, now))
	}
	var lines []string
	for i, table := range tables {
		if i > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, table...)
	}
	return append(lines, unknownLines(list)...)
}

// unknownLines returns a line for each failed read.
func unknownLines(list *overview.Listing) []string {
	var lines []string
	for _, failed := range list.AllUnknown() {
		lines = append(lines, "not known: "+printable.Line(failed))
	}
	return lines
}

// table returns a table of machines that belong to no control plane.
func (f *listFlags) table(list []overview.Machine, now time.Time) []string {
	switch {
	case len(list) == 0 && f.query.OnlyDeleting:
		return []string{"no machine is being deleted" + f.inNamespace()}
	case len(list) == 0:
		return []string{"no machines found" + f.inNamespace()}
	}
	return f.machineTable(list, now, false, false)
}

// controlPlaneLines returns a control plane, and the table of its machines.
func (f *listFlags) controlPlaneLines(o *overview.ControlPlane, list []overview.Machine, now time.Time) []string {
	lines := core.Align([]string{
		cells("NAMESPACE", "CONTROL PLANE", "STATE", "STRATEGY", "DESIRED", "UPDATED", "READY", "WAITS FOR"),
		cells(o.Namespace, o.Kind+"/"+o.Name, o.State, o.Strategy, strconv.Itoa(o.Desired), strconv.Itoa(o.Updated),
			strconv.Itoa(o.Ready), o.Waits),
	})
	members := o.Members(list)
	if len(members) == 0 {
		return lines
	}
	return append(lines, f.machineTable(members, now, members[0].ControlPlane.Index != nil, true)...)
}

// machineTable returns a table of machines. Machines of a ControlPlaneMachineSet have an index, and machines of a
// control plane have whether they are up to date. Only a wide table has the providerID.
func (f *listFlags) machineTable(list []overview.Machine, now time.Time, hasIndex, isControlPlane bool) []string {
	row := func(index, upToDate string, machine, after []string) string {
		if hasIndex {
			machine = append(machine, index)
		}
		if isControlPlane {
			machine = append(machine, upToDate)
		}
		if f.format != asWide {
			after = slices.Delete(after, 3, 4)
		}
		return cells(append(machine, after...)...)
	}
	rows := []string{row("INDEX", "UP TO DATE",
		[]string{"NAMESPACE", "MACHINE"}, []string{"NODE", "PHASE", "SINCE", "PROVIDER ID", "HELD BY"})}
	for i := range list {
		m, index := &list[i], ""
		if hasIndex {
			index = strconv.Itoa(ptr.Deref(m.ControlPlane.Index, 0))
		}
		since := printable.Age(now, m.Since)
		rows = append(rows, row(index, upToDate(m),
			[]string{m.Namespace, m.Name}, []string{m.Node, m.Phase, since, m.ProviderID, m.HeldBy()}))
	}
	return core.Align(rows)
}

// cells returns a row of a table. An empty cell is a dash.
func cells(texts ...string) string {
	row := make([]string, len(texts))
	for i, text := range texts {
		row[i] = printable.Line(cmp.Or(text, "-"))
	}
	return strings.Join(row, "\t")
}

// upToDate returns whether a machine matches its control plane, in a word; "" if it is unknown.
func upToDate(m *overview.Machine) string {
	switch {
	case m.ControlPlane == nil || m.ControlPlane.IsUpToDate == nil:
		return ""
	case *m.ControlPlane.IsUpToDate:
		return "yes"
	default:
		return "no"
	}
}
