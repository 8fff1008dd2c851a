package machines

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// controlPlaneLines returns a control plane, and the table of its machines, in the order of their indexes if they have
// any.
func (f *machinesFlags) controlPlaneLines(set *overview.ControlPlaneOverview, list []overview.MachineOverview,
	now time.Time) []string {
	lines := core.Align([]string{
		cells("NAMESPACE", "CONTROL PLANE", "STATE", "STRATEGY", "DESIRED", "UPDATED", "READY", "WAITS FOR"),
		cells(set.Namespace, set.Kind+"/"+set.Name, set.State, set.Strategy, strconv.Itoa(set.Desired),
			strconv.Itoa(set.Updated), strconv.Itoa(set.Ready), set.Waits),
	})
	members := set.Members(list)
	if len(members) == 0 {
		return lines
	}
	hasIndex := members[0].ControlPlane.Index != nil
	rows := []string{f.memberRow(hasIndex, "NAMESPACE", "MACHINE", "INDEX", "UP TO DATE", "NODE", "PHASE", "SINCE",
		"PROVIDER ID", "HELD BY")}
	for i := range members {
		m := &members[i]
		index := strconv.Itoa(ptr.Deref(m.ControlPlane.Index, 0))
		rows = append(rows, f.memberRow(hasIndex, m.Namespace, m.Name, index, upToDate(m), m.Node, m.Phase,
			printable.Age(now, m.Since), m.ProviderID, m.HeldBy()))
	}
	return append(lines, core.Align(rows)...)
}

// memberRow returns a row of the machines of a control plane. Only a wide row has the providerID, and only machines of
// a ControlPlaneMachineSet have an index.
func (f *machinesFlags) memberRow(hasIndex bool, of ...string) string {
	if f.format != asWide {
		of = slices.Delete(of, 7, 8)
	}
	if !hasIndex {
		of = slices.Delete(of, 2, 3)
	}
	return cells(of...)
}

// cells returns a row of a table. An empty cell is a dash.
func cells(of ...string) string {
	row := make([]string, len(of))
	for i, cell := range of {
		row[i] = printable.Line(cmp.Or(cell, "-"))
	}
	return strings.Join(row, "\t")
}

// upToDate returns whether a machine is as its control plane asks for, in a word; "" if that is not known.
func upToDate(m *overview.MachineOverview) string {
	switch {
	case m.ControlPlane == nil || m.ControlPlane.IsUpToDate == nil:
		return ""
	case *m.ControlPlane.IsUpToDate:
		return "yes"
	default:
		return "no"
	}
}

// setLine returns a control plane in a line.
func setLine(set *overview.ControlPlaneOverview) string {
	line := fmt.Sprintf("%s %s/%s: %s, %s; %d desired, %d updated, %d ready",
		set.Kind, set.Namespace, set.Name, cmp.Or(set.State, "Active"), set.Strategy, set.Desired, set.Updated,
		set.Ready)
	if set.Waits != "" {
		line += "; " + set.Waits
	}
	return printable.Line(line)
}
