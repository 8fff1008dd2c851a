package install

import (
	"fmt"
	"io"
	"time"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cli/live"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/uninstall"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// drawInterval is the least time between two drawings.
const drawInterval = 100 * time.Millisecond

// An uninstallProgress shows the progress of an uninstall: in place on a terminal, and elsewhere with a line for each
// event.
type uninstallProgress struct {
	out       io.Writer
	area      *live.Area // nil without a terminal
	lastDrawn time.Time
	stage     uninstall.Event     // the latest event
	waits     map[kinds.ID]string // lines on the objects for which the stage waits
}

func newUninstallProgress(out io.Writer, format core.Output) *uninstallProgress {
	return &uninstallProgress{out: out, area: core.AreaOn(out, format), waits: map[kinds.ID]string{}}
}

// reportHolder prints the process that holds the lock, before the uninstall waits for the lock.
func (p *uninstallProgress) reportHolder(by lock.Holder) {
	fmt.Fprintf(p.out, "the lock of the release is held by %s since %s: waiting until it is released or renewed\n",
		printable.Line(by.Name), by.Since.UTC().Format(time.RFC3339))
}

// show updates the area for an event, or prints the event if there is no terminal.
func (p *uninstallProgress) show(event uninstall.Event) {
	if p.area == nil {
		p.printEvent(event)
		return
	}
	switch event.Type {
	case uninstall.StageBegan:
		clear(p.waits)
	case uninstall.ObjectWaiting, uninstall.ObjectFailing, uninstall.ObjectKept:
		p.waits[event.Object] = eventLine(event)
	case uninstall.ObjectDeleted:
		delete(p.waits, event.Object)
	}
	p.stage = event
	if event.Type == uninstall.ObjectDeleted && time.Since(p.lastDrawn) < drawInterval {
		return
	}
	p.lastDrawn = time.Now()
	_ = p.area.Draw(p.lines) // ignored: the uninstall continues if standard error is closed
}

// lines renders the area.
func (p *uninstallProgress) lines(_, maxLines int) []string {
	lines := []string{fmt.Sprintf("%s: %d of %s left", p.stage.Stage, p.stage.Left,
		printable.Count(p.stage.Total, "object"))}
	for _, text := range p.waits {
		if len(lines) <= maxLines {
			lines = append(lines, text)
		}
	}
	return lines
}

// stop clears the area.
func (p *uninstallProgress) stop() {
	if p.area != nil {
		_ = p.area.Draw(func(int, int) []string { return nil })
	}
}

// printEvent prints an event as text.
func (p *uninstallProgress) printEvent(event uninstall.Event) {
	if event.Type == uninstall.StageBegan {
		fmt.Fprintf(p.out, "%-11s %s, %s\n", event.Type, event.Stage, printable.Count(event.Total, "object"))
		return
	}
	fmt.Fprintln(p.out, eventLine(event))
}

func eventLine(event uninstall.Event) string {
	text := fmt.Sprintf("%-11s %s", event.Type, event.Object)
	if event.Message != "" {
		text += ": " + printable.Line(event.Message)
	}
	return text
}
