// Package apply defines the verbs that apply, roll back, test or check a release: apply, rollback, test and gate.
//
// It reads flags, calls package session, and reports its events as lines, as a live view, or as JSON. Package session
// decides which objects are applied, and in which order.
//
// New returns the verb apply. Start with New.
package apply

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cli/pace"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/releasetest"
	"github.com/runlevel/runlevel/pkg/payload"
)

// applyFlags are the flags of runlevel apply.
type applyFlags struct {
	core.IntentFlags
	format core.Output
	watch  watchFlags
	hooks  hookFlags
	files  core.FileFlags

	notify core.NotifyFlags

	dryRun      core.DryRun
	noProgress  bool
	test        bool
	isConfirmed bool // skips the question
	rollback    bool // a failed update
	isBegun     bool // the record has the update
}

const applyHelp = `Apply a release to a cluster, in the order that "runlevel graph" shows: objects by
server-side apply; objects of tombstones are deleted, and the apply does not wait for the
deletes to finish. The cluster keeps a record of the apply. If the apply is interrupted or
killed, run it again.

The mode follows from the record. An install starts everything at once and waits for all
objects at the end; an update applies level by level, waits until each level is ready, and
deletes the objects of tombstones; a reconcile repairs changed objects, and deletes nothing.

Fields that another manager has set to other values get those of the release, and are
reported. Fields that an autoscaler or an injector of certificates maintains are left to it.
A field that the release does not have stays as another manager has set it, unless --remove-foreign-fields
names the manager or the object.
An object that another tool has created is taken over from it: see docs/ownership.md.

Temporary failures (a conflict, a webhook that is down, a quota) are retried until --timeout.
Other failures are reported at once, and objects that do not depend on them are still applied.
If the API server does not answer for two thirds of --lock-duration, the apply ends, since it
can't renew its lock; with --watch, it waits.

--dry-run=server previews the apply by dry runs of each object: it writes nothing, takes no
lock, and waits for nothing. "runlevel diff" shows the fields that would change, and
"runlevel plan --cluster" the objects that each delete would also delete.

On a terminal, an apply that deletes or replaces objects first shows its plan and asks, unless
--yes is given. Standard error then shows the progress of each level: running, waiting and failed
objects, and for how long they wait; elsewhere, a line is printed for each event.

With --watch, the apply then keeps the release in place and holds the lock until Ctrl-C, even if
not all objects are ready in time: see docs/watch.md.

Ctrl-C ends the apply once the requests that were sent are answered; a second one ends it at once.

Exit codes: 0 when all objects are applied and ready; 1 for a failure, a gate that blocks, or a lock
that another process holds; 2 for misuse or a release that can't be read.

`

// New returns the verb apply.
func New(streams core.Streams) *cobra.Command {
	var f applyFlags
	command := &cobra.Command{
		Use:   "apply SOURCE",
		Short: "Apply a release to a cluster, and delete the objects of its tombstones",
		Long:  applyHelp + core.SourceHelp,
		Example: `  # Apply a plain folder under a name of its own
  runlevel apply ./manifests --name shop

  # Which checks would block the update?
  runlevel gate ./4.21 && runlevel apply ./4.21

  # Preview the apply
  runlevel apply ./4.21 --dry-run=server

  # In a pipeline: one JSON object for each event
  runlevel apply registry.example/shop:1.4.0 -o json | tee events.jsonl

  # Adopt objects from a custom installer, and remove its fields that are not in the release
  runlevel apply ./manifests --name shop --adopt-from shop-installer

  # A chart or a manifest without a namespace, into a new one
  helm template shop ./chart | runlevel apply - --name shop -n shop --create-namespace

  # Roll back automatically if the update fails
  runlevel apply ./4.21 --rollback-on-failure

  # Remove fields that another manager has added to a Deployment
  runlevel apply shop@ --remove-foreign-fields Deployment/shop/web

  # Apply, and run the tests of the release
  runlevel apply ./4.21 --test

  # Continue without a lifecycle hook that fails
  runlevel apply ./4.21 --skip-hook shop/web:pre

  # A payload for the cluster-version operator
  runlevel apply ./release --profile self-managed-high-availability --wait upstream --unknown-fields drop`,
		Args:              checkSource,
		ValidArgsFunction: core.CompleteSource,
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args[0], streams)
		},
	}
	core.AddReleaseFlags(command, &f.Release, &f.Cluster)
	core.AddKubectlFlags(command, &f.Release)
	core.AddIntentFlags(command, &f.IntentFlags)
	addWatchFlags(command, &f.watch)
	f.add(command)
	flags := command.Flags()
	flags.BoolVarP(&f.isConfirmed, "yes", "y", false,
		"do not ask before objects are deleted or replaced; without a terminal, and with -o json, apply never asks")
	flags.BoolVar(&f.rollback, "rollback-on-failure", false,
		"roll a failed update back to the previous version, as \"runlevel rollback\" does, unless the gate "+
			"blocks the rollback; a failed test is not a failed update")
	return command
}

// add adds the flags that a rollback has, too.
func (f *applyFlags) add(command *cobra.Command) {
	core.AddFileFlags(command, &f.files)
	core.AddOutput(command, &f.format, core.Text, core.JSON)
	core.AddDryRun(command, &f.dryRun)
	addHookFlags(command, &f.hooks, &f.Release)
	core.AddNotify(command, &f.notify)
	core.AddChoice(command, &f.Session.Apply.Standard, "wait",
		"ready: wait until every object is ready; upstream: wait as the cluster-version operator does",
		ready.Full, ready.Upstream)
	flags := command.Flags()
	flags.BoolVar(&f.Session.Apply.Full, "full", false,
		"apply each object, even if neither it nor the release has changed since the last apply")
	flags.BoolVar(&f.Session.Apply.NoWait, "no-wait", false,
		"end when all objects are applied, even if they are not ready; the record then has the state Partial")
	flags.BoolVar(&f.test, "test", false,
		"run the tests of the release after the apply, as \"runlevel test\" does, and exit with 1 if one fails; "+
			"the state in the record is Completed even so")
	flags.BoolVar(&f.noProgress, "no-progress", false, "print the summary only")
	flags.BoolVar(&f.Session.Force, "force", false,
		"apply although the gate blocks it; the record names the checks that were overridden")
	flags.BoolVar(&f.Session.Lock.Wait, "wait-lock", false,
		"wait while another process applies this release, however long that takes")
	flags.DurationVar(&f.Session.Lock.Duration, "lock-duration", 30*time.Second,
		"how long the lock stays valid if the apply is killed")
	flags.DurationVar(&f.Session.Apply.Timeout, "timeout", 30*time.Minute,
		"how long to wait until all objects are ready, once the apply holds the lock")
	flags.IntVar(&f.Session.Apply.Workers, "at-once", 0,
		"how many objects to write at a time (default: 48 in an install, 16 in an update, 8 in a reconcile)")
}

func (f *applyFlags) run(ctx context.Context, ref string, streams core.Streams) error {
	if err := errors.Join(f.check(), f.files.Check(ref)); err != nil {
		return err
	}
	pace.LimitGrowth()
	release, packed, err := f.Release.LoadPacked(ctx, ref, &f.files, streams.Err)
	if err != nil {
		return err
	}
	c, err := f.Cluster.ConnectFor(ctx, release)
	if err != nil {
		return err
	}
	whole := releaseInput{release, packed, ref}
	if err := f.confirm(ctx, c, whole, streams); err != nil {
		return err
	}
	err = f.apply(ctx, c, whole, streams)
	if err != nil && f.rollback {
		return f.rollBack(ctx, c, whole, err, streams)
	}
	return err
}

// A releaseInput is a release to apply, with its source.
type releaseInput struct {
	*payload.Payload
	packed *files.Packed // its files, for the copy on the cluster
	ref    string
}

// apply applies a release, and reports the events.
func (f *applyFlags) apply(ctx context.Context, c *cluster.Cluster, release releaseInput, streams core.Streams) error {
	if f.test && len(release.Tests) == 0 {
		return core.Misusef("--test: %w", errNoTests(release.Payload))
	}
	options, err := f.Options(release.ref, release.Payload)
	if err != nil {
		return err
	}
	hooks, err := f.hooks.overrides(ctx, c, release.Payload)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of standard output may end before the apply does
	report := newReporter(streams, f.format, f.noProgress, c.Now)
	observer := &applyObserver{
		reporter: report, ctx: ctx, cluster: c, manifests: release.Manifests, rollback: options.Rollback,
		isBegun: &f.isBegun,
	}
	options.Observer = observer
	options.Apply.Hooks = hooks
	options.Apply.OnEvent = report.event
	options.Files = f.files.Options(release.packed)
	options.Lock.OnHeld = report.onHeld
	report.configure(&options.Apply)
	if f.watch.isEnabled {
		observer.kept = report.keep(f.watch.every, &options)
	}
	run := session.Run
	if report.isDry = f.dryRun.IsEnabled(); report.isDry {
		run = report.preview
	}
	options.Notify, options.HasTests = f.notify.Sender(ctx, &f.Cluster), f.test
	defer f.notify.Close(streams.Err)
	outcome := run(ctx, c, release.Payload, options)
	observer.kept.finish(outcome)
	outcome.Err = withLockFlag(outcome.Err)
	if err := report.finishOnce(outcome); err != nil || !f.test {
		return err
	}
	recorder := releasetest.ResultRecorder{
		Cluster:   c,
		Namespace: f.Cluster.Namespace,
		Sender:    options.Notify,
		Event:     outcome.Completed,
	}
	return report.test(ctx, recorder, release.Payload)
}

// check refuses invalid values of flags.
func (f *applyFlags) check() error {
	switch lock, apply := f.Session.Lock.Duration, f.Session.Apply; {
	case apply.Timeout <= 0:
		return core.Misusef("--timeout: %s is invalid: it must be greater than 0", apply.Timeout)
	case lock > 24*time.Hour: // longer than a user waits; a Lease can only express 68 years
		return core.Misusef("--lock-duration: %s is too long: the maximum is a day", lock)
	case lock < time.Second:
		return core.Misusef("--lock-duration: %s is too short: the minimum is a second", lock)
	case apply.Workers < 0:
		return core.Misusef("--at-once: %d is invalid: it must be 0, which means the default, or greater",
			apply.Workers)
	}
	if err := f.checkWatch(); err != nil {
		return err
	}
	if err := errors.Join(f.checkHooks(), f.notify.Check()); err != nil {
		return err
	}
	if err := errors.Join(f.checkTest(), f.checkRollback()); err != nil {
		return err
	}
	return f.IntentFlags.Check()
}

// withLockFlag adds --wait-lock to the error of a lock that another process holds. If that process keeps the release in
// place, withLockFlag adds how to end the process.
func withLockFlag(err error) error {
	var held *lock.HeldError
	if errors.As(err, &held) && held.Holder.Keeps() {
		return fmt.Errorf("%w: it is free after %s", err, lock.KeeperEnd)
	}
	if held != nil {
		return fmt.Errorf("%w: wait with --wait-lock, or try again later", err)
	}
	return err
}
