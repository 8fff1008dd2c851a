package machines

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cli/live"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/waiter"
	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// watchInterval is the shortest interval at which watched machines are listed.
const watchInterval = time.Second

// phaseDeleted is the printed phase of a watched machine after its deletion.
const phaseDeleted = "Gone"

// A machineWatch prints machines when they have changed.
type machineWatch struct {
	flags         *listFlags
	cluster       *cluster.Cluster
	streams       core.Streams
	area          *live.Area                    // nil without a terminal
	machines      map[kinds.ID]overview.Machine // last printed machines
	controlPlanes map[kinds.ID]string           // the lines that were last printed
	outageStart   time.Time                     // zero while the API server responds
	hasHeader     bool
	hasBegun      bool // something was printed, even if no machine exists
}

func newMachineWatch(f *listFlags, c *cluster.Cluster, streams core.Streams) *machineWatch {
	return &machineWatch{
		flags: f, cluster: c, streams: streams, area: core.AreaOn(streams.Out, f.format),
		machines: map[kinds.ID]overview.Machine{}, controlPlanes: map[kinds.ID]string{},
	}
}

// follow shows machines until the context ends.
func (f *listFlags) follow(ctx context.Context, c *cluster.Cluster, first *overview.Listing,
	streams core.Streams) error {
	w := newMachineWatch(f, c, streams)
	poller := core.Poll[*overview.Listing]{Cluster: c, Interval: watchInterval, Read: w.read, Show: w.show}
	return poller.Run(ctx, first)
}

// read lists the machines if the API server responds.
func (w *machineWatch) read(ctx context.Context) (*overview.Listing, error) {
	if err := waiter.Reach(ctx, w.cluster); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, core.AnswerTimeout)
	defer cancel()
	return listMachines(ctx, w.cluster, w.flags.query)
}

// show prints the machines, or that the API server does not respond.
func (w *machineWatch) show(list *overview.Listing, outage error) error {
	var outageLines []string
	if outage == nil {
		w.outageStart = time.Time{}
	} else {
		isNew := w.outageStart.IsZero()
		if isNew {
			w.outageStart = time.Now()
		}
		text := fmt.Sprintf("the API server has not responded since %s, and is retried: %s",
			w.outageStart.Format(time.TimeOnly), printable.Line(printable.RequestError(outage).Error()))
		if isNew && w.area == nil {
			fmt.Fprintln(w.streams.Err, text)
		}
		outageLines = []string{text}
	}
	if w.area == nil {
		return w.printChanges(list)
	}
	return w.area.Draw(func(int, int) []string {
		return append(w.flags.lines(list, w.cluster.Now()), outageLines...)
	})
}

// printsValues reports whether machines are printed as JSON or YAML.
func (w *machineWatch) printsValues() bool {
	return w.flags.format == core.JSON || w.flags.format == core.YAML
}

// printChanges prints the machines and control planes that have changed since they were last printed.
func (w *machineWatch) printChanges(list *overview.Listing) error {
	listed := map[kinds.ID]bool{}
	var changed []overview.Machine
	for _, m := range list.Machines {
		listed[m.ID()] = true
		if before, isKnown := w.machines[m.ID()]; !isKnown || w.content(before) != w.content(m) {
			w.machines[m.ID()] = m
			changed = append(changed, m)
		}
	}
	for id, m := range w.machines {
		isUnknown := len(list.Machines) > 0 && slices.Contains(list.Machines[0].Unlisted, id.Group)
		if listed[id] || isUnknown {
			continue
		}
		delete(w.machines, id)
		m.Phase, m.Stage, m.Holds, m.Later, m.Unknown = phaseDeleted, "", nil, nil, nil
		m.Since = w.cluster.Now()
		changed = append(changed, m)
	}
	return w.print(changed, w.changedControlPlanes(list))
}

// content returns the printed content of a machine without ages. Only a value has the control plane.
func (w *machineWatch) content(m overview.Machine) string {
	text := m.UID + m.Phase + m.Node + m.HeldBy() + strings.Join(m.Unknown, "\n")
	if m.ControlPlane != nil && w.printsValues() {
		text += upToDate(&m) + controlPlaneLine(m.ControlPlane.Set)
	}
	return text
}

// controlPlaneLine returns a control plane in a line.
func controlPlaneLine(o *overview.ControlPlane) string {
	line := fmt.Sprintf("%s %s/%s: %s, %s; %d desired, %d updated, %d ready",
		o.Kind, o.Namespace, o.Name, cmp.Or(o.State, "Active"), o.Strategy, o.Desired, o.Updated, o.Ready)
	if o.Waits != "" {
		line += "; " + o.Waits
	}
	return printable.Line(line)
}

// changedControlPlanes returns a line for each control plane that has changed since it was last printed.
func (w *machineWatch) changedControlPlanes(list *overview.Listing) []string {
	var lines []string
	listed := map[kinds.ID]bool{}
	for _, o := range list.ControlPlanes {
		listed[o.ID()] = true
		if line := controlPlaneLine(o); w.controlPlanes[o.ID()] != line {
			w.controlPlanes[o.ID()] = line
			lines = append(lines, line)
		}
	}
	q := w.flags.query
	hidesUnselected := len(q.Names) > 0 || q.OnlyDeleting // a control plane without a selected machine is not listed
	for id := range w.controlPlanes {
		if listed[id] || len(list.Unknown) > 0 {
			continue
		}
		delete(w.controlPlanes, id)
		if !hidesUnselected {
			lines = append(lines,
				printable.Line(fmt.Sprintf("%s %s/%s: %s", id.Kind, id.Namespace, id.Name, phaseDeleted)))
		}
	}
	return lines
}

// print prints changed machines, and lines on control planes.
func (w *machineWatch) print(machines []overview.Machine, controlPlanes []string) error {
	if w.printsValues() {
		for i := range machines {
			if err := w.flags.format.PrintNext(w.streams.Out, machines[i]); err != nil {
				return err
			}
		}
		return nil
	}
	hadBegun := w.hasBegun
	w.hasBegun = true
	switch {
	case len(machines) == 0 && len(controlPlanes) > 0:
		return core.PrintLines(w.streams.Out, controlPlanes)
	case len(machines) == 0 && hadBegun:
		return nil
	}
	lines := append(w.flags.table(machines, w.cluster.Now()), unknownLines(&overview.Listing{Machines: machines})...)
	if w.hasHeader { // omits the header: the columns may be wider now
		lines = lines[1:]
	}
	w.hasHeader = len(machines) > 0 || w.hasHeader
	return core.PrintLines(w.streams.Out, append(lines, controlPlanes...))
}
