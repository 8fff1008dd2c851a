package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A waitCondition is the state of a release that ends a wait.
type waitCondition string

const (
	awaitReady   waitCondition = "ready"
	awaitDeleted waitCondition = "deleted"
)

// waitFlags are the flags of runlevel wait.
type waitFlags struct {
	displayFlags
	until   waitCondition
	version string
	timeout time.Duration
}

const waitHelp = `Wait until a release is complete and has no problems, or until it was deleted from the cluster.

  --for=ready    the newest version is complete, it has no problems, and no delete is pending:
                 "runlevel status" exits with 0; with --version, the newest version is that one
  --for=deleted  the release has neither a record nor objects on the cluster; if this holds at the
                 start and no event shows an uninstall, the command fails

An apply waits by itself. Use this command for processes elsewhere: an operator that updates the
cluster, or a pipeline that starts after another one has applied the release. The command prints
the state of the release when it changes. It also waits for a release that does not exist yet.

Exit codes: 0 if the condition was met, 1 if it was not met before --timeout, 2 for misuse. -o json
prints the last status.`

// NewWait returns the verb wait.
func NewWait(streams core.Streams) *cobra.Command {
	f := waitFlags{until: awaitReady}
	command := &cobra.Command{
		Use:   "wait",
		Short: "Wait until a release is complete, or deleted",
		Long:  waitHelp,
		Example: `  # In a pipeline: continue when the operator has updated the cluster
  runlevel wait --version 1.4.0 --timeout 30m

  # Until another terminal has uninstalled it
  runlevel wait shop --for=deleted`,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.run(command.Context(), streams)
		},
	}
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format)
	core.AddReleaseName(command, &f.cluster, &f.name, "the release (default: the only one, or \"default\")")
	core.AddChoice(command, &f.until, "for", "what to wait for: ready or deleted", awaitReady, awaitDeleted)
	command.Flags().StringVar(&f.version, "version", "", "the version to wait for (default: the newest)")
	command.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute, "how long to wait; 0 waits forever")
	return command
}

func (f *waitFlags) run(ctx context.Context, streams core.Streams) error {
	if err := f.check(); err != nil {
		return err
	}
	reader, err := connect(ctx, &f.cluster)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if f.timeout > 0 {
		defer time.AfterFunc(f.timeout, func() { cancel(fmt.Errorf("not %s after %s", f.until, f.timeout)) }).Stop()
	}
	w := &releaseWait{flags: f, reader: reader, progress: streams.Err, end: cancel}
	first, err := w.read(ctx)
	if err == nil && f.until == awaitDeleted && f.isMet(first) {
		err = f.checkExisted(ctx, reader, first.Release)
	}
	if err == nil {
		poller := core.Poll[*state.Status]{
			Cluster:  reader.Cluster,
			Interval: statusInterval,
			Read:     w.read,
			Show:     w.show,
		}
		err = poller.Run(ctx, first)
	}
	if w.last != nil && f.format != core.Text {
		err = errors.Join(err, f.format.Print(streams.Out, w.last, nil))
	}
	if err != nil || w.isDone {
		return err
	}
	return context.Cause(ctx)
}

func (f *waitFlags) check() error {
	if f.version != "" && f.until == awaitDeleted {
		return core.Misusef("--version can't be combined with --for=deleted")
	}
	if f.timeout < 0 {
		return core.Misusef("--timeout %s: use a duration such as 5m, or 0 for no end", f.timeout)
	}
	return core.CheckVersion("version", f.version)
}

// checkExisted returns an error for a release that does not exist, unless an event shows that it was uninstalled.
func (f *waitFlags) checkExisted(ctx context.Context, reader *state.Reader, release string) error {
	wasUninstalled, err := reader.WasUninstalled(ctx, release)
	if err == nil && !wasUninstalled {
		err = core.Misusef("%w, an object on the cluster, or an event of its uninstall: \"runlevel list\" lists "+
			"the releases", reader.NoRecord(release))
	}
	return err
}

// A releaseWait is a wait for a release.
type releaseWait struct {
	flags    *waitFlags
	reader   *state.Reader
	progress io.Writer
	end      context.CancelCauseFunc

	printed string // the last line, without ages
	last    *state.Status
	isDone  bool
}

// read returns the status of the release.
func (w *releaseWait) read(ctx context.Context) (*state.Status, error) {
	status, err := w.reader.CurrentStatus(ctx, w.flags.name)
	if several := new(state.SeveralError); errors.As(err, &several) {
		return nil, core.Misuse(err)
	}
	return status, err
}

// show prints the state of the release if it has changed, and ends the wait if the condition is met.
func (w *releaseWait) show(status *state.Status, outage error) error {
	w.last = status
	text := status.Title()
	if outage != nil {
		text += ": " + printable.Line(outage.Error())
	} else if w.isDone = w.flags.isMet(status); w.isDone {
		w.end(nil)
	}
	if timeless := agePattern.ReplaceAllString(text, ""); timeless != w.printed {
		w.printed = timeless
		_, err := fmt.Fprintln(w.progress, text)
		return err
	}
	return nil
}

// isMet reports whether the condition of the wait is met.
func (f *waitFlags) isMet(status *state.Status) bool {
	if f.until == awaitDeleted {
		return status.State == "" && status.Lost == nil && len(status.Unknown) == 0
	}
	return status.Done && status.State == record.Completed && (f.version == "" || status.Version == f.version)
}
