package state

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cli/live"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// statusInterval is the shortest interval at which a watched status is read.
const statusInterval = 2 * time.Second

// A statusScreen shows a status, and shows it again when it changes.
type statusScreen struct {
	flags       *displayFlags
	out         io.Writer
	area        *live.Area // nil without a terminal
	lastContent string     // the content of the last status
	last        *state.Status
}

func newStatusScreen(f *displayFlags, streams core.Streams) *statusScreen {
	return &statusScreen{flags: f, out: streams.Out, area: core.AreaOn(streams.Out, f.format)}
}

// follow shows a status again whenever it has changed, until the context ends.
func (s *statusScreen) follow(ctx context.Context, reader *state.Reader, first *state.Status) error {
	if first.History != nil {
		s.flags.name = first.Release // other releases may be applied later
	}
	read := func(ctx context.Context) (*state.Status, error) { return reader.CurrentStatus(ctx, s.flags.name) }
	poller := core.Poll[*state.Status]{
		Cluster:  reader.Cluster,
		Interval: statusInterval,
		Read:     read,
		Show:     s.update,
	}
	if err := poller.Run(ctx, first); err != nil {
		return err
	}
	return core.FailIf(!s.last.Done)
}

// update shows a status if it has changed. On a terminal, it always updates the ages.
func (s *statusScreen) update(status *state.Status, outage error) error {
	if outage != nil {
		outdated := *status
		outdated.Unreachable, outdated.Done = printable.Line(outage.Error()), false
		status = &outdated
	}
	s.last = status
	if s.area != nil {
		return s.area.Draw(statusText{status}.lines)
	}
	content := statusText{status}.content(s.flags.format)
	if content == s.lastContent {
		return nil
	}
	isFirst := s.lastContent == ""
	s.lastContent = content
	if s.flags.format != core.Text {
		return s.flags.format.PrintNext(s.out, status)
	}
	if !isFirst {
		fmt.Fprintln(s.out)
	}
	fmt.Fprintln(s.out, status.Time.Format(time.RFC3339))
	return s.show(status)
}

// show prints a status.
func (s *statusScreen) show(status *state.Status) error {
	return s.flags.format.PrintWhole(s.out, status, func(out io.Writer) error {
		width, isPlain := statusWidth, true
		if s.area != nil {
			width, _ = s.area.Size()
			isPlain = os.Getenv("NO_COLOR") != ""
		}
		var text bytes.Buffer
		for _, line := range (statusText{status}).lines(width, statusLevels) {
			if isPlain {
				line = live.StripStyles(line)
			}
			text.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		_, err := text.WriteTo(out)
		return err
	})
}

// agePattern matches an age in a text.
var agePattern = regexp.MustCompile(`\b(\d+[smhdy])+\b`)

// content returns the output in a format, without ages, so that equal states have equal contents.
func (s statusText) content(format core.Output) string {
	timeless := *s.Status
	timeless.Time = time.Time{}
	if s.Unreachable != "" { // the reason has the port of the connection, which changes
		timeless.Unreachable = "for one reason or another"
	}
	if s.Progress != nil {
		progress := *s.Progress
		progress.Now = time.Time{}
		timeless.Progress = &progress
	}
	if format == core.Text {
		timeless.Time = s.Time // ages are computed from it
		text := strings.Join(statusText{&timeless}.lines(statusWidth, statusLevels), "\n")
		return agePattern.ReplaceAllString(strings.ReplaceAll(text, s.Time.Format(time.RFC3339), ""), "")
	}
	text, _ := json.Marshal(timeless) // all these values can be encoded
	return string(agePattern.ReplaceAll(text, nil))
}
