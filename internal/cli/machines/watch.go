package machines

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cli/live"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// machinesInterval is the shortest interval at which watched machines are listed.
const machinesInterval = time.Second

// phaseGone is the phase that is printed once a watched machine is gone.
const phaseGone = "Gone"

// A machinesWatch prints machines when they have changed.
type machinesWatch struct {
	flags     *machinesFlags
	cluster   *cluster.Cluster
	streams   core.Streams
	area      *live.Area                            // nil where there is no terminal
	shown     map[kinds.ID]overview.MachineOverview // as last printed
	shownSets map[kinds.ID]string                   // lines on control planes, as last printed
	silent    time.Time                             // since when the API server has not answered; zero while it does
	hasHeader bool
	hasBegun  bool // something was printed, even if there is no machine
}

// follow shows machines until the context ends.
func (f *machinesFlags) follow(ctx context.Context, c *cluster.Cluster, first *overview.MachineList,
	streams core.Streams) error {
	w := &machinesWatch{
		flags: f, cluster: c, streams: streams, area: core.AreaOn(streams.Out, f.format),
		shown: map[kinds.ID]overview.MachineOverview{}, shownSets: map[kinds.ID]string{},
	}
	poller := core.Poll[*overview.MachineList]{Cluster: c, Interval: machinesInterval, Read: w.read, Show: w.show}
	return poller.Run(ctx, first)
}

// read lists the machines again, if the cluster answers.
func (w *machinesWatch) read(ctx context.Context) (*overview.MachineList, error) {
	if err := core.Reach(ctx, w.cluster); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, core.AnswerTimeout)
	defer cancel()
	return listMachines(ctx, w.cluster, w.flags.query)
}

// show replaces the machines on a terminal, or prints those that have changed. It reports an outage once.
func (w *machinesWatch) show(list *overview.MachineList, outage error) error {
	var away []string
	switch {
	case outage == nil:
		w.silent = time.Time{}
	default:
		isNew := w.silent.IsZero()
		if isNew {
			w.silent = time.Now()
		}
		text := fmt.Sprintf("the API server has not responded since %s, and is retried: %s",
			w.silent.Format(time.TimeOnly), printable.Line(printable.RequestError(outage).Error()))
		if isNew && w.area == nil {
			fmt.Fprintln(w.streams.Err, text)
		}
		away = []string{text}
	}
	if w.area == nil {
		return w.append(list)
	}
	return w.area.Draw(func(int, int) []string { return append(w.flags.lines(list, w.cluster.Now()), away...) })
}

// append prints the machines that have changed since they were printed, and those that are gone.
func (w *machinesWatch) append(list *overview.MachineList) error {
	content := func(m overview.MachineOverview) string { // without ages
		text := m.UID + m.Phase + m.Node + m.HeldBy() + strings.Join(m.Unknown, "\n")
		if m.ControlPlane != nil && (w.flags.format == core.JSON || w.flags.format == core.YAML) { // a line has neither
			text += upToDate(&m) + setLine(m.ControlPlane.Set)
		}
		return text
	}
	left := map[kinds.ID]bool{}
	var changed []overview.MachineOverview
	for _, m := range list.Machines {
		left[m.ID()] = true
		if before, isKnown := w.shown[m.ID()]; !isKnown || content(before) != content(m) {
			w.shown[m.ID()] = m
			changed = append(changed, m)
		}
	}
	for id, m := range w.shown {
		isUnknown := len(list.Machines) > 0 && slices.Contains(list.Machines[0].Unlisted, id.Group)
		if left[id] || isUnknown {
			continue
		}
		delete(w.shown, id)
		m.Phase, m.Stage, m.Holds, m.Later, m.Unknown = phaseGone, "", nil, nil, nil
		m.Since = w.cluster.Now()
		changed = append(changed, m)
	}
	return w.print(changed, w.changedSets(list))
}

// changedSets returns a line for each control plane that has changed since it was printed, or is gone.
func (w *machinesWatch) changedSets(list *overview.MachineList) []string {
	var lines []string
	left := map[kinds.ID]bool{}
	for _, set := range list.ControlPlanes {
		left[set.ID()] = true
		if line := setLine(set); w.shownSets[set.ID()] != line {
			w.shownSets[set.ID()] = line
			lines = append(lines, line)
		}
	}
	for id := range w.shownSets {
		if left[id] || len(list.Unknown) > 0 {
			continue
		}
		delete(w.shownSets, id)
		// else perhaps none of its machines is selected any more
		if q := w.flags.query; len(q.Names) == 0 && !q.OnlyDeleting {
			lines = append(lines,
				printable.Line(fmt.Sprintf("%s %s/%s: %s", id.Kind, id.Namespace, id.Name, phaseGone)))
		}
	}
	return lines
}

// print appends machines, and lines on control planes, to the output.
func (w *machinesWatch) print(machines []overview.MachineOverview, sets []string) error {
	if w.flags.format == core.JSON || w.flags.format == core.YAML {
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
	case len(machines) == 0 && len(sets) > 0:
		return core.PrintLines(w.streams.Out, sets)
	case len(machines) == 0 && hadBegun:
		return nil
	}
	lines := append(w.flags.table(machines, w.cluster.Now()),
		unknownLines(&overview.MachineList{Machines: machines})...)
	if w.hasHeader { // without the header: the columns may be wider now
		lines = lines[1:]
	}
	w.hasHeader = len(machines) > 0 || w.hasHeader
	return core.PrintLines(w.streams.Out, append(lines, sets...))
}
