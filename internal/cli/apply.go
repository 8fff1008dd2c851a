package cli

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/ready"
	"github.com/runlevel/runlevel/pkg/record"
	"github.com/runlevel/runlevel/pkg/rollout"
)

// applyFlags are the flags of runlevel apply.
type applyFlags struct {
	release releaseFlags
	cluster clusterFlags
	format  output

	mode       choice
	wait       choice
	unknown    choice
	adoptFrom  []string
	full       bool
	noWait     bool
	noProgress bool
	force      bool
	waitLock   bool
	lockFor    time.Duration
	timeout    time.Duration
	atOnce     int
}

const applyHelp = `Apply a release to a cluster, in the order that "runlevel graph" shows: objects by
server-side apply, tombstones by a delete that nothing waits for. The cluster keeps a
record of it, so that an apply that was interrupted, or killed, is simply run again.

The mode follows from the record. An install starts everything at once and waits for all
of it at the end; an update goes level by level, waits until each is ready, and deletes
what is marked; a reconcile repairs what was changed, and deletes nothing.

What others have set otherwise is as the release says afterwards, and told. What an
autoscaler or an injector of certificates has set is left to it. An object that another
tool has made is taken over from it: docs/ownership.md says whose is what.

What may heal (a conflict, a server that is down, a quota) is tried again until --timeout
ends. What can't is told at once; what does not depend on it goes on.

Ctrl-C starts nothing more and lets what is on its way arrive; a second one ends at once.

Exit codes: 0 when all is applied and ready, 1 for a failure, a gate that says no, or a
lock that somebody else holds, 2 for misuse or a release that can't be read.

`

func newApply(streams Streams) *cobra.Command {
	f := applyFlags{
		mode:    choice{allowed: []string{string(graph.Install), string(graph.Update), string(graph.Reconcile)}},
		wait:    choice{value: string(ready.Full), allowed: []string{string(ready.Full), string(ready.Upstream)}},
		unknown: choice{value: "refuse", allowed: []string{"refuse", "drop"}},
	}
	command := &cobra.Command{
		Use:   "apply SOURCE",
		Short: "Apply a release to a cluster, and delete what it marks",
		Long:  applyHelp + sourceHelp,
		Example: `  # Apply a plain folder under a name of its own
  runlevel apply ./manifests --name shop

  # What does the gate say, before anybody asks for the update?
  runlevel gate ./4.21 && runlevel apply ./4.21

  # In a pipeline: one JSON object for each thing that happens
  runlevel apply registry.example/shop:1.4.0 -o json | tee events.jsonl

  # Take over what an installer of one's own has applied, and what is not in the release leaves
  runlevel apply ./manifests --name shop --adopt-from shop-installer

  # A payload that was made for the cluster-version operator
  runlevel apply ./release --profile self-managed-high-availability --wait upstream --unknown-fields drop`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeSource,
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args[0], streams)
		},
	}
	addReleaseFlags(command, &f.release)
	addClusterFlags(command, &f.cluster)
	addOutput(command, &f.format, asText, asJSON)
	addChoice(command, &f.mode, "mode", "install, update or reconcile (default: what follows from the record)")
	addChoice(command, &f.wait, "wait", "what to wait for: ready for everything that can be, upstream for what the cluster-version operator waits for")
	addChoice(command, &f.unknown, "unknown-fields", "what to do with fields that the cluster does not know: refuse the object, or drop them with a warning")
	flags := command.Flags()
	flags.StringArrayVar(&f.adoptFrom, "adopt-from", nil, "on the first apply of an object, take over the fields of these managers, too, as NAME[,NAME]: what they have set, and the release does not, leaves it; may be repeated")
	flags.BoolVar(&f.full, "full", false, "apply each object, even if nothing can have changed since the last time")
	flags.BoolVar(&f.noWait, "no-wait", false, "end when everything is applied, ready or not; the record then says Partial")
	flags.BoolVar(&f.noProgress, "no-progress", false, "print the summary only")
	flags.BoolVar(&f.force, "force", false, "go on although the gate says no; the record says what was overridden")
	flags.BoolVar(&f.waitLock, "wait-lock", false, "wait while somebody else applies this release")
	flags.DurationVar(&f.lockFor, "lock-duration", 30*time.Second, "how long the lock outlives an apply that died")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Minute, "how long it may take until everything is ready")
	flags.IntVar(&f.atOnce, "at-once", 0, "how many objects to write at a time (default: 48 in an install, 16 in an update, 8 in a reconcile)")
	_ = command.RegisterFlagCompletionFunc("adopt-from", cobra.NoFileCompletions)
	return command
}

func (f *applyFlags) run(ctx context.Context, ref string, streams Streams) error {
	if err := f.check(); err != nil {
		return err
	}
	release, c, err := f.cluster.readFor(ctx, &f.release, ref, streams.Err)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // who reads what we tell may end before we do
	teller := newTeller(streams, f.format, f.noProgress, c.Now)
	options := f.options(ref)
	options.Begins, options.Apply.Tell, options.Lock.Say = teller.begins(len(release.Manifests)), teller.event, teller.held
	outcome := rollout.Run(ctx, c, release, options)
	return teller.end(outcome)
}

// check refuses values that make no sense.
func (f *applyFlags) check() error {
	switch {
	case f.timeout <= 0:
		return misuse{fmt.Errorf("--timeout: %s is no time to wait", f.timeout)}
	case f.lockFor < time.Second:
		return misuse{fmt.Errorf("--lock-duration: %s is too short: a second is the least", f.lockFor)}
	case f.atOnce < 0:
		return misuse{fmt.Errorf("--at-once: %d is no number of objects", f.atOnce)}
	case slices.Contains(f.managers(), ""):
		return misuse{errors.New(`--adopt-from: it has an empty name: write the managers as "kubectl get -o yaml --show-managed-fields" shows them, NAME[,NAME]`)}
	}
	return nil
}

// managers are those that --adopt-from names.
func (f *applyFlags) managers() []string {
	var all []string
	for _, names := range f.adoptFrom {
		for name := range strings.SplitSeq(names, ",") {
			all = append(all, strings.TrimSpace(name))
		}
	}
	return all
}

func (f *applyFlags) options(ref string) rollout.Options {
	return rollout.Options{
		Namespace: f.cluster.namespace, Source: ref, Force: f.force,
		Lock: record.Lock{Wait: f.waitLock, Duration: f.lockFor},
		Apply: apply.Options{
			Mode: graph.Mode(f.mode.value), Standard: ready.Standard(f.wait.value), NoWait: f.noWait,
			Timeout: f.timeout, Workers: f.atOnce, DropUnknownFields: f.unknown.value == "drop",
			Full: f.full, AdoptFrom: f.managers(),
		},
	}
}
