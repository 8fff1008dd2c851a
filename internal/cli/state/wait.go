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

// An awaited is the state that a wait is for.
type awaited string

const (
	awaitReady   awaited = "ready"
	awaitDeleted awaited = "deleted"
)

// waitFlags are the flags of runlevel wait.
type waitFlags struct {
	statusFlags
	until   awaited
	version string
	timeout time.Duration
}

const waitHelp = `Wait until a release is complete and all is well, or until it is gone from the cluster.

  --for=ready    its newest version is complete, nothing is wrong, and no delete is pending:
                 when "runlevel status" exits with 0; with --version, that version is the newest
  --for=deleted  it has no record any more, and no object on the cluster; if that is so from the
                 beginning, and no event shows that it was uninstalled, that is an error

An apply waits by itself. This is for what runs elsewhere: an operator that updates the cluster,
or a pipeline that begins when another one has applied the release. What it waits for is printed
when it changes. A release that is not there yet is waited for, too.

Exit codes: 0 when it is so, 1 when it is not before --timeout, 2 for misuse. -o json prints the
last status.`

// NewWait returns the verb wait.
func NewWait(streams core.Streams) *cobra.Command {
	f := waitFlags{until: awaitReady}
	command := &cobra.Command{
		Use:   "wait",
		Short: "Wait until a release is complete, or gone",
		Long:  waitHelp,
		Example: `  # In a pipeline: go on when the operator has updated the cluster
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
	command.Flags().StringVar(&f.version, "version", "", "the version that is to be complete (default: the newest)")
	command.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute, "how long to wait; 0 is without end")
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
		defer time.AfterFunc(f.timeout, func() { cancel(fmt.Errorf("it is not so after %s", f.timeout)) }).Stop()
	}
	w := &releaseWait{flags: f, reader: reader, progress: streams.Err, end: cancel}
	first, err := w.read(ctx)
	if err == nil && f.until == awaitDeleted && f.isSo(first) {
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
		return core.Misusef("--version: a release is waited for until all of it is deleted, whatever its version is")
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
			"those that there are", reader.NoRecord(release))
	}
	return err
}

// A releaseWait is a wait for a release.
type releaseWait struct {
	flags    *waitFlags
	reader   *state.Reader
	progress io.Writer
	end      context.CancelCauseFunc

	printed string // what was printed last
	last    *state.Status
	isDone  bool
}

// read returns the status of the release.
func (w *releaseWait) read(ctx context.Context) (*state.Status, error) {
	status, err := readAgain(ctx, w.reader, w.flags.name)
	if several := new(state.SeveralError); errors.As(err, &several) {
		return nil, core.Misuse(err)
	}
	return status, err
}

// show prints what a wait is for, if that has changed, and ends the wait when it is so.
func (w *releaseWait) show(status *state.Status, outage error) error {
	w.last = status
	text := status.Title()
	if outage != nil {
		text += ": " + printable.Line(outage.Error())
	} else if w.isDone = w.flags.isSo(status); w.isDone {
		w.end(nil)
	}
	if timeless := passing.ReplaceAllString(text, ""); timeless != w.printed {
		w.printed = timeless
		_, err := fmt.Fprintln(w.progress, text)
		return err
	}
	return nil
}

// isSo reports whether a release is as it is waited for.
func (f *waitFlags) isSo(status *state.Status) bool {
	if f.until == awaitDeleted {
		return status.State == "" && status.Lost == nil && len(status.Unknown) == 0
	}
	return status.Done && status.State == record.Completed && (f.version == "" || status.Version == f.version)
}
