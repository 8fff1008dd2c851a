package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cli/live"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// statusInterval is the shortest interval at which a watched status is read.
const statusInterval = 2 * time.Second

// A statusScreen shows a status, and updates of it.
type statusScreen struct {
	flags *statusFlags
	out   io.Writer
	area  *live.Area // nil where there is no terminal
	shown string     // the content of the last status
	last  *releaseStatus
}

func newStatusScreen(f *statusFlags, streams Streams) *statusScreen {
	return &statusScreen{flags: f, out: streams.Out, area: areaOn(streams.Out, f.format)}
}

// areaOn returns an area on the terminal; nil if there is no terminal, or the format is JSON or YAML.
func areaOn(out io.Writer, format output) *live.Area {
	terminal := terminalOf(out)
	if terminal == nil || format == asJSON || format == asYAML {
		return nil
	}
	return live.NewArea(terminal)
}

// follow shows a status again whenever it has changed, until the context ends.
func (s *statusScreen) follow(ctx context.Context, reader *statusReader, first *releaseStatus) error {
	if first.History != nil {
		s.flags.name = first.Release // also when there are other releases later
	}
	poller := poll[*releaseStatus]{cluster: reader.cluster, interval: statusInterval, read: reader.readAgain, show: s.update}
	if err := poller.run(ctx, first); err != nil {
		return err
	}
	return failIf(!s.last.Done)
}

// readAgain returns the current status, or an outageError if the cluster does not respond.
func (a *statusReader) readAgain(ctx context.Context) (*releaseStatus, error) {
	if err := reach(ctx, a.cluster); err != nil {
		return nil, err
	}
	next, err := a.read(ctx)
	if err == nil && len(next.Unknown) > 0 { // perhaps the cluster does not respond any more
		err = reach(ctx, a.cluster)
	}
	return next, err
}

// update shows a status if it has changed. On a terminal, it always updates the ages.
func (s *statusScreen) update(status *releaseStatus, outage error) error {
	if outage != nil {
		unreached := *status
		unreached.Unreachable, unreached.Done = printable.Line(outage.Error()), false
		status = &unreached
	}
	s.last = status
	if s.area != nil {
		return s.area.Draw(status.lines)
	}
	content := status.content(s.flags.format)
	if content == s.shown {
		return nil
	}
	isFirst := s.shown == ""
	s.shown = content
	if s.flags.format != asText {
		return s.flags.format.printNext(s.out, status)
	}
	if !isFirst {
		fmt.Fprintln(s.out)
	}
	fmt.Fprintln(s.out, status.Time.Format(time.RFC3339))
	return s.show(status)
}

// show prints a status.
func (s *statusScreen) show(status *releaseStatus) error {
	return s.flags.format.printWhole(s.out, status, func(out io.Writer) error {
		width, isPlain := statusWidth, true
		if s.area != nil {
			width, _ = s.area.Size()
			isPlain = os.Getenv("NO_COLOR") != ""
		}
		var text bytes.Buffer
		for _, line := range status.lines(width, statusLevels) {
			if isPlain {
				line = live.Plain(line)
			}
			text.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		_, err := text.WriteTo(out)
		return err
	})
}
