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

// statusOften is the shortest time until a status is asked for again that is watched.
const statusOften = 2 * time.Second

// A statusScreen shows statuses, one after the other.
type statusScreen struct {
	flags *statusFlags
	out   io.Writer
	still *live.Still // nil where there is no terminal
	shown string      // the content of the last
	last  *releaseStatus
}

func newStatusScreen(f *statusFlags, streams Streams) *statusScreen {
	return &statusScreen{flags: f, out: streams.Out, still: stillOn(streams.Out, f.format)}
}

// stillOn returns the still on a terminal; nil if there is no terminal, or what is printed is for programs.
func stillOn(out io.Writer, format output) *live.Still {
	terminal := terminalOf(out)
	if terminal == nil || format == asJSON || format == asYAML {
		return nil
	}
	return live.NewStill(terminal)
}

// follow shows a status again whenever it has changed, until the context ends.
func (s *statusScreen) follow(ctx context.Context, asker *statusAsker, first *releaseStatus) error {
	if first.History != nil {
		s.flags.name = first.Release // also when there are others later
	}
	asking := poll[*releaseStatus]{cluster: asker.cluster, often: statusOften, ask: asker.askAgain, show: s.update}
	if err := asking.run(ctx, first); err != nil {
		return err
	}
	return failIf(!s.last.Done)
}

// askAgain returns how the release stands now, if the cluster answers.
func (a *statusAsker) askAgain(ctx context.Context) (*releaseStatus, error) {
	if err := reach(ctx, a.cluster); err != nil {
		return nil, err
	}
	next, err := a.ask(ctx)
	if err == nil && len(next.Unknown) > 0 { // perhaps since the cluster does not answer any more
		err = reach(ctx, a.cluster)
	}
	return next, err
}

// update shows a status if it is not the one that is shown. On a terminal its ages are new each time.
func (s *statusScreen) update(status *releaseStatus, outage error) error {
	if outage != nil {
		unreached := *status
		unreached.Unreachable, unreached.Done = printable.Line(outage.Error()), false
		status = &unreached
	}
	s.last = status
	if s.still != nil {
		return s.still.Draw(status.lines)
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
		if s.still != nil {
			width, _ = s.still.Size()
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
