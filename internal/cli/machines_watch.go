package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/live"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/machine/overview"
	"github.com/runlevel/runlevel/pkg/printable"
)

// How often machines are looked at that are watched: as often as takes a tenth of the time, within bounds.
const (
	machinesOften  = time.Second
	machinesRarely = 30 * time.Second
	machinesShare  = 10
)

// silentAfter is how long an answer may take until it is told that there is none.
const silentAfter = 3 * time.Second

// phaseGone is told in place of a phase once a watched machine is gone.
const phaseGone = "Gone"

// A machinesWatch shows machines again and again.
type machinesWatch struct {
	flags     *machinesFlags
	names     []string
	cluster   *cluster.Cluster
	streams   Streams
	still     *live.Still                           // nil where there is no terminal
	shown     map[kinds.ID]overview.MachineOverview // what lines were printed of
	texts     map[kinds.ID]string                   // what was printed, without ages
	silent    time.Time                             // since when the API server has not answered; zero while it does
	problem   string                                // what the last request to it came to
	hasHeader bool
	hasBegun  bool // something was printed, if only that there is no machine
}

func newMachinesWatch(f *machinesFlags, names []string, c *cluster.Cluster, streams Streams) *machinesWatch {
	w := &machinesWatch{flags: f, names: names, cluster: c, streams: streams, shown: map[kinds.ID]overview.MachineOverview{}, texts: map[kinds.ID]string{}}
	isTable := f.format == asText || f.format == asWide
	if terminal := terminalOf(streams.Out); terminal != nil && isTable {
		w.still = live.NewStill(terminal)
	}
	return w
}

// follow shows machines until the context ends.
func (w *machinesWatch) follow(ctx context.Context, list []overview.MachineOverview) error {
	refreshed, took := time.Now(), time.Duration(0)
	for {
		if err := w.show(list); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(max(took*machinesShare, machinesOften), machinesRarely)):
		}
		began := time.Now()
		if began.Sub(refreshed) > kindsAnew {
			w.cluster.Refresh()
			refreshed = began
		}
		next, err := w.ask(ctx, list)
		switch {
		case ctx.Err() != nil:
			return nil
		case cluster.IsOutage(err):
			w.tellOutage(began, printable.Line(printable.RequestError(err).Error()))
			took = 0
			continue
		case err != nil:
			return err
		}
		list, took = next, time.Since(began)
		if !w.silent.IsZero() { // how long an outage lasts says nothing of the next request
			took, w.silent = 0, time.Time{}
		}
	}
}

// ask lists the machines again, and gives up on a server that does not answer. Meanwhile it shows those before.
func (w *machinesWatch) ask(ctx context.Context, before []overview.MachineOverview) ([]overview.MachineOverview, error) {
	within := answersWithin
	if !w.silent.IsZero() {
		within = reachedWithin // then a connection that is dead is soon given up
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var list []overview.MachineOverview
	answered := make(chan error, 1)
	began, tick := time.Now(), time.NewTicker(machinesOften)
	defer tick.Stop()
	go func() {
		var err error
		list, err = listMachines(ctx, w.cluster, w.flags.query(w.names))
		answered <- err
	}()
	for {
		select {
		case err := <-answered:
			return list, err
		case <-tick.C:
		}
		if time.Since(began) > silentAfter {
			w.tellOutage(began, "it gives no answer")
		}
		if w.still != nil {
			if err := w.show(before); err != nil {
				return nil, err
			}
		}
	}
}

// tellOutage says once that the API server does not answer since a moment.
func (w *machinesWatch) tellOutage(since time.Time, problem string) {
	isNew := w.silent.IsZero()
	if isNew {
		w.silent = since
	}
	w.problem = problem
	if isNew && w.still == nil {
		fmt.Fprintln(w.streams.Err, w.outage())
	}
}

// outage says that the API server does not answer.
func (w *machinesWatch) outage() string {
	return fmt.Sprintf("the API server does not answer since %s, and is asked again and again: %s", w.silent.Format(time.TimeOnly), w.problem)
}

// show shows machines in place of those before, or those that have changed.
func (w *machinesWatch) show(list []overview.MachineOverview) error {
	if w.still == nil {
		return w.append(list)
	}
	return w.still.Draw(func(int, int) []string {
		lines := w.flags.lines(list, w.cluster.Now())
		if !w.silent.IsZero() {
			lines = append(lines, w.outage())
		}
		return lines
	})
}

// append prints the machines that have changed since they were printed, and those that are gone.
func (w *machinesWatch) append(list []overview.MachineOverview) error {
	left := map[kinds.ID]bool{}
	var changed []overview.MachineOverview
	for _, m := range list {
		left[m.ID()] = true
		if text := m.UID + m.Phase + m.Node + m.HeldBy() + strings.Join(m.Unknown, "\n"); w.texts[m.ID()] != text {
			w.texts[m.ID()], w.shown[m.ID()] = text, m
			changed = append(changed, m)
		}
	}
	for id, m := range w.shown {
		if left[id] {
			continue
		}
		delete(w.shown, id)
		delete(w.texts, id)
		m.Phase, m.Stage, m.Holds, m.Later, m.Unknown = phaseGone, "", nil, nil, nil
		m.Since = w.cluster.Now()
		changed = append(changed, m)
	}
	return w.print(changed)
}

// print prints machines below those before.
func (w *machinesWatch) print(machines []overview.MachineOverview) error {
	switch {
	case w.flags.format == asJSON:
		for i := range machines {
			line, err := json.Marshal(machines[i])
			if err == nil {
				_, err = w.streams.Out.Write(append(printable.JSON(line), '\n'))
			}
			if err != nil {
				return err
			}
		}
		return nil
	case w.flags.format == asYAML:
		for i := range machines {
			fmt.Fprintln(w.streams.Out, "---")
			if err := w.flags.format.printWhole(w.streams.Out, machines[i], nil); err != nil {
				return err
			}
		}
		return nil
	case len(machines) == 0 && w.hasBegun:
		return nil
	}
	w.hasBegun = true
	lines := w.flags.lines(machines, w.cluster.Now())
	if w.hasHeader { // the columns may move with what is in them
		lines = lines[1:]
	}
	w.hasHeader = len(machines) > 0 || w.hasHeader
	_, err := io.WriteString(w.streams.Out, strings.Join(lines, "\n")+"\n")
	return err
}
