package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/live"
	"github.com/runlevel/runlevel/pkg/printable"
)

// How often a status is asked for that is watched: as often as takes a tenth of the time, within bounds.
const (
	statusOften  = 2 * time.Second
	statusRarely = 30 * time.Second
	statusShare  = 10
)

// kindsAnew is how often the kinds that the cluster serves are asked for again.
const kindsAnew = 30 * time.Second

// reachedWithin is how long the API server may take to say that it is there, while a status is watched.
const reachedWithin = 10 * time.Second

// A statusScreen shows statuses, one after the other.
type statusScreen struct {
	flags *statusFlags
	out   io.Writer
	still *live.Still // nil where there is no terminal
	shown string      // the content of the last
}

func newStatusScreen(f *statusFlags, streams Streams) *statusScreen {
	s := &statusScreen{flags: f, out: streams.Out}
	if terminal := terminalOf(streams.Out); terminal != nil && f.format == asText {
		s.still = live.NewStill(terminal)
	}
	return s
}

// follow shows a status again whenever it has changed, until the context ends.
func (s *statusScreen) follow(ctx context.Context, asker *statusAsker, last *releaseStatus) error {
	if last.History != nil {
		s.flags.name = last.Release // also when there are others later
	}
	refreshed, took := time.Now(), time.Duration(0)
	for {
		if err := s.update(last); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return last.exit()
		case <-time.After(min(max(took*statusShare, statusOften), statusRarely)):
		}
		began := time.Now()
		if began.Sub(refreshed) > kindsAnew {
			asker.cluster.Refresh()
			refreshed = began
		}
		next, err := asker.askAgain(ctx, last)
		switch {
		case ctx.Err() != nil:
			return last.exit()
		case err != nil:
			return err
		}
		last, took = next, time.Since(began)
		if last.Unreached != "" { // which says nothing of how long an answer takes
			took = 0
		}
	}
}

// askAgain returns how the release stands now, or what was known last, if the cluster does not answer.
func (a *statusAsker) askAgain(ctx context.Context, last *releaseStatus) (*releaseStatus, error) {
	err := a.reach(ctx)
	if err == nil {
		var next *releaseStatus
		if next, err = a.ask(ctx); err != nil || len(next.Unknown) == 0 {
			return next, err
		}
		if err = a.reach(ctx); err == nil { // so it is not known for another reason
			return next, nil
		}
	}
	unreached := *last
	unreached.Unreached, unreached.Done = printable.Line(err.Error()), false
	return &unreached, ctx.Err()
}

// reach returns an error if the API server does not answer.
func (a *statusAsker) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachedWithin)
	defer cancel()
	err := a.cluster.Client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("it gives no answer in %s", reachedWithin)
	}
	return err
}

// update shows a status if it is not the one that is shown. On a terminal its ages are new each time.
func (s *statusScreen) update(status *releaseStatus) error {
	if s.still != nil {
		return s.still.Draw(status.lines)
	}
	content := status.content(s.flags.format)
	if content == s.shown {
		return nil
	}
	isFirst := s.shown == ""
	s.shown = content
	switch s.flags.format {
	case asJSON:
		line, err := json.Marshal(status)
		if err == nil {
			_, err = s.out.Write(append(printable.JSON(line), '\n'))
		}
		return err
	case asYAML:
		fmt.Fprintln(s.out, "---")
	default:
		if !isFirst {
			fmt.Fprintln(s.out)
		}
		fmt.Fprintln(s.out, status.Time.Format(time.RFC3339))
	}
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
