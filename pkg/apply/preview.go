package apply

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/pkg/apply/hook"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Preview finds out what Run would do, by dry runs on the server. It changes nothing, waits
// for nothing and retries nothing for long. An object that depends on a missing object is
// reported as not checked, or validated against the definition in the payload itself.
//
// A failure holds up no other object.
func Preview(ctx context.Context, c *cluster.Cluster, release *payload.Payload, before *inventory.Inventory, options Options) *Report {
	options = options.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, options.Timeout, fmt.Errorf("%w after %s", ErrTimeout, options.Timeout))
	defer cancel()
	p := &preview{results: newResults(newEmitter(c.Now, options.OnEvent))}
	p.requests, p.cut = context.WithCancel(ctx)
	defer p.cut()
	applier := object.New(p.requests, c, before, options.objects(release.Manifests), p.results.handler(nil))
	p.previewer = object.NewPreviewer(applier, release)
	hooks := options.hooks(p.requests, c, applier)
	hooks.IsPreview = true
	order, err := newOrder(release.Manifests, graph.Options{Mode: options.Mode}, applier, stepsWithHooks(applier, hooks))
	if err != nil {
		return &Report{Mode: options.Mode, Err: err}
	}
	p.results.expect(order.steps)
	applier.Begin()
	var group errgroup.Group
	group.SetLimit(options.Workers)
	for i, step := range order.steps {
		group.Go(func() error {
			p.step(i, step, order.tasks[order.taskOf[i]].Manifest)
			return nil
		})
	}
	_ = group.Wait() // failures are part of the report
	p.explainNotDone(ctx)
	return &Report{
		Mode: options.Mode, Changes: order.inPayload(p.results.changes), Warnings: p.results.allWarnings(), Err: p.results.err(ctx, nil),
	}
}

// A preview finds out what a run would do.
type preview struct {
	results   *results
	previewer *object.Previewer
	requests  context.Context
	cut       context.CancelFunc
}

// step finds out what a run would do in one step.
func (p *preview) step(i int, s object.WalkStep, m *payload.Manifest) {
	if p.requests.Err() != nil {
		return
	}
	look := func() (object.Change, error) { return p.previewer.Preview(m) }
	if ofHook, isHook := s.(*hook.StageStep); isHook {
		look = ofHook.Preview
	}
	change, err := look()
	change.StepID = s.ID()
	switch {
	case err != nil && p.requests.Err() != nil:
	case err != nil:
		failure := object.NewFailure(m, err)
		failure.StepID, failure.IsFinal = s.ID(), true
		p.results.failed(i, object.Change{StepID: change.StepID, Action: object.Failed, Err: failure})
		if cluster.IsNoAnswer(err) {
			p.cut() // the others would fail the same way, and slowly
		}
	default:
		if len(change.Adopted) > 0 {
			p.results.reportAdopted(change.StepID, change.Adopted)
		}
		p.results.done(i, change)
	}
}

// explainNotDone adds the reason to the steps that were not checked.
func (p *preview) explainNotDone(ctx context.Context) {
	why := ""
	switch {
	case ctx.Err() != nil:
		why = whyEnded(ctx).Error()
	case p.requests.Err() != nil:
		why = "the server gave no answer"
	}
	for i := range p.results.changes {
		if p.results.changes[i].Action == object.NotDone {
			p.results.changes[i].Message = why
		}
	}
}
