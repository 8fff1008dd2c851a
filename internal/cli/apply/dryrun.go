package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// checkSource accepts one argument. A value of --dry-run that follows after a space counts as another argument.
func checkSource(command *cobra.Command, args []string) error {
	if len(args) == 2 && command.Flags().Changed("dry-run") {
		for _, value := range args {
			if value == core.DryRunOfServer || value == core.NoDryRun {
				return fmt.Errorf("write --dry-run=%s, with an equals sign", value)
			}
		}
	}
	return cobra.ExactArgs(1)(command, args)
}

// A DryEvent is an event, marked if it belongs to a dry run.
type DryEvent struct {
	apply.Event
	DryRun bool `json:"dryRun,omitempty"`
}

// preview previews an apply, and reports the events in the order of the release: the objects and their
// hooks are previewed in parallel.
func (r *reporter) preview(ctx context.Context, c *cluster.Cluster, release *payload.Payload,
	options session.Options) *session.Outcome {
	type source struct {
		object kinds.ID
		file   string
	}
	place := map[source]int{}
	for i, m := range release.Manifests {
		place[source{m.ID(), m.Path}] = i
	}
	// "" is the object
	steps := []string{string(deploymenthook.Pre), string(deploymenthook.Mid), "", string(deploymenthook.Post)}
	position := func(event apply.Event) int {
		if event.Object == nil {
			return 0
		}
		return place[source{*event.Object, event.File}]*len(steps) + slices.Index(steps, event.Hook)
	}
	var events []apply.Event
	options.Apply.OnEvent = func(event apply.Event) { events = append(events, event) }
	options.Apply.Refusals = core.KnownRefusals(ctx, release)
	outcome := session.Preview(ctx, c, release, options)
	slices.SortStableFunc(events, func(a, b apply.Event) int { return position(a) - position(b) })
	for _, event := range events {
		r.event(event)
	}
	return outcome
}

// wouldRefuse reports whether the gate would refuse the apply. The dry run continues nevertheless.
func (r *reporter) wouldRefuse(o *session.Outcome) bool {
	return r.isDry && len(o.Forced) == 0 && len(precondition.Blocking(o.Findings)) > 0
}

// finishDry returns the error of a dry run. The findings of the gate were printed at the beginning.
func (r *reporter) finishDry(o *session.Outcome) error {
	if reason.Of(o.Err) != precondition.ReasonFailed {
		return errors.Join(o.Err, r.writeErr)
	}
	stops := gateError("would stop", o)
	if o.Report != nil {
		stops = errors.Join(stops, o.Report.Err)
	}
	return errors.Join(stops, r.writeErr)
}

// gateError returns the error of an apply that the gate stops.
func gateError(stops string, o *session.Outcome) error {
	return fmt.Errorf("the gate %s the %s of %s: resolve the findings, or override the gate with --force", stops,
		o.Mode, titleOf(o))
}
