package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
	"github.com/runlevel/runlevel/pkg/reason"
	"github.com/runlevel/runlevel/pkg/rollout"
)

// A dryRun says whether an apply only asks what it would do: "server" or "none".
type dryRun string

const (
	dryRunOfServer = "server"
	noDryRun       = "none"
)

func addDryRun(command *cobra.Command, d *dryRun) {
	*d = noDryRun
	flag := command.Flags().VarPF(d, "dry-run", "", "server: ask the cluster what the apply would do, and do nothing; or none")
	flag.NoOptDefVal = "true" // which is none: the flag alone is told what to say
	_ = command.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{dryRunOfServer, noDryRun}, cobra.ShellCompDirectiveNoFileComp))
}

func (d dryRun) isAsked() bool { return d == dryRunOfServer }

func (d *dryRun) String() string { return string(*d) }
func (d *dryRun) Type() string   { return "name" }

func (d *dryRun) Set(value string) error {
	if value != dryRunOfServer && value != noDryRun {
		return errors.New(`use --dry-run=server, which asks the cluster; "runlevel plan OLD NEW" needs none`)
	}
	*d = dryRun(value)
	return nil
}

// A dryEvent is one of a dry run, which all say so.
type dryEvent struct {
	apply.Event
	DryRun bool `json:"dryRun,omitempty"`
}

// preview finds out what an apply would do, and tells it in the order of the release: objects
// are asked for all at once.
func (t *teller) preview(ctx context.Context, c *cluster.Cluster, release *payload.Payload, options rollout.Options) *rollout.Outcome {
	type source struct {
		object kinds.ID
		file   string
	}
	place := map[source]int{}
	for i, m := range release.Manifests {
		place[source{m.ID(), m.Path}] = i
	}
	of := func(event apply.Event) int {
		if event.Object == nil {
			return 0
		}
		return place[source{*event.Object, event.File}]
	}
	var events []apply.Event
	options.Apply.Tell = func(event apply.Event) { events = append(events, event) }
	outcome := rollout.Preview(ctx, c, release, options)
	slices.SortStableFunc(events, func(a, b apply.Event) int { return of(a) - of(b) })
	for _, event := range events {
		t.event(event)
	}
	return outcome
}

// wouldRefuse says whether the gate says no to the apply that is tried. A dry run goes on.
func (t *teller) wouldRefuse(o *rollout.Outcome) bool {
	return t.isDry && len(o.Forced) == 0 && len(precondition.Blocking(o.Findings)) > 0
}

// endDry tells the outcome of a dry run, and is the error of the command. What the gate says
// was told at the beginning.
func (t *teller) endDry(o *rollout.Outcome) error {
	if reason.Of(o.Err) != precondition.ReasonFailed {
		return errors.Join(o.Err, t.unheard)
	}
	stops := fmt.Errorf("the gate would stop the %s of %s: lift what blocks it, or go on all the same with --force", o.Mode, titleOf(o))
	if o.Report == nil {
		return errors.Join(stops, t.unheard)
	}
	return errors.Join(stops, o.Report.Err, t.unheard)
}
