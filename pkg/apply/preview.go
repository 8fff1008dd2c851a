package apply

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Preview finds out what Run would do, by dry runs on the server. It changes nothing, waits
// for nothing and tries nothing again for long: what depends on what is not there yet is
// said not to be checked, or held against the definition that the payload itself brings.
//
// A failure holds up nothing here: each object is looked at.
func Preview(ctx context.Context, c *cluster.Cluster, release *payload.Payload, before *inventory.Inventory, options Options) *Report {
	options = options.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, options.Timeout, fmt.Errorf("%w after %s", ErrTimeout, options.Timeout))
	defer cancel()
	p := &preview{run: newRun(c, before, options)}
	p.requests, p.cut = context.WithCancel(ctx)
	defer p.cut()
	p.applier = p.newApplier(release.Manifests, nil)
	p.previewer = object.NewPreviewer(p.applier, release)
	if err := p.plan(release.Manifests); err != nil {
		return &Report{Mode: options.Mode, Err: err}
	}
	var group errgroup.Group
	group.SetLimit(options.Workers)
	for i := range p.order.steps {
		group.Go(func() error {
			p.look(i)
			return nil
		})
	}
	_ = group.Wait() // which has no errors: what fails is part of the report
	return p.sum(ctx)
}

// A preview is a run that changes nothing.
type preview struct {
	*run
	previewer *object.Previewer
}

// look looks at one object, and tells what would come of it.
func (p *preview) look(i int) {
	if p.requests.Err() != nil {
		return
	}
	change, err := p.previewer.Preview(p.order.steps[i].Manifest)
	switch {
	case err != nil && p.requests.Err() != nil:
	case err != nil:
		p.failed(p.requests, i, err)
		if object.IsNoAnswer(err) {
			p.cut() // to ask for each of the others would take long, and end the same way
		}
	default:
		change.Manifest = p.order.steps[i].Manifest
		if len(change.Adopted) > 0 {
			p.tellAdopted(change.Manifest, change.Adopted)
		}
		p.note(i, change)
	}
}

// sum sums up what was seen.
func (p *preview) sum(ctx context.Context) *Report {
	why := ""
	switch {
	case ctx.Err() != nil:
		why = whyEnded(ctx).Error()
	case p.requests.Err() != nil:
		why = "the server gave no answer"
	}
	for i := range p.changes {
		if p.changes[i].Action == object.NotDone {
			p.changes[i].Message = why
		}
	}
	report := &Report{Mode: p.options.Mode, Changes: slices.Clone(p.changes), Warnings: p.allWarnings()}
	slices.SortFunc(report.Changes, func(a, b object.Change) int { return payload.InOrder(a.Manifest, b.Manifest) })
	report.Err = p.outcome(ctx, report)
	return report
}
