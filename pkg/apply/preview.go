package apply

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Preview finds out the changes that Run would make, by dry runs on the server. Preview changes nothing, waits for
// nothing and retries nothing for long. An object that depends on a missing object is reported as not checked, or
// validated against the definition in the payload itself.
//
// A failure does not block other objects.
func Preview(ctx context.Context, c *cluster.Cluster, release *payload.Payload, before *inventory.Inventory,
	options Options) *Report {
	options = options.withDefaults()
	options.Manifests = release.Manifests
	ctx, cancel := context.WithTimeoutCause(ctx, options.Timeout,
		fmt.Errorf("%w after %s", ErrTimeout, options.Timeout))
	defer cancel()
	p := &preview{
		results: newResults(newEmitter(c.Now, options.OnEvent)), inbox: newInbox(), onChange: options.OnPreview,
	}
	p.requestCtx, p.cancelRequests = context.WithCancel(ctx)
	defer p.cancelRequests()
	applier := object.New(p.requestCtx, c, before, options.Options, p.inbox.handler(object.IgnoreReadiness))
	p.previewer = object.NewPreviewer(applier, release)
	hooks := options.hooks(p.requestCtx, c, applier)
	hooks.IsPreview = true
	order, err := newOrder(release.Manifests, graph.Options{Mode: options.Mode}, applier,
		stepsWithHooks(applier, hooks))
	if err != nil {
		return &Report{Mode: options.Mode, Err: err}
	}
	p.results.expect(order.steps)
	applier.Begin()
	p.all(order, options.Workers)
	p.explainNotDone(ctx)
	return &Report{
		Mode: options.Mode, Changes: order.inPayload(p.results.changes), Warnings: p.results.allWarnings(),
		Err: p.results.err(ctx, nil),
	}
}

// A preview finds out the results that a run would have.
type preview struct {
	results        *results
	inbox          *inbox
	onChange       func(*object.Change)
	previewer      *object.Previewer
	requestCtx     context.Context
	cancelRequests context.CancelFunc
}

// all previews all steps, and notes their results as they come.
func (p *preview) all(o *order, workers int) {
	isOver := make(chan struct{})
	var group errgroup.Group
	group.SetLimit(workers)
	go func() {
		defer close(isOver)
		for i, step := range o.steps {
			group.Go(func() error {
				p.inbox.put(event{try: p.try(i, step, o.tasks[o.taskOf[i]].Manifest)})
				return nil
			})
		}
		_ = group.Wait() // failures are part of the report
	}()
	for {
		select {
		case <-p.inbox.signal:
			p.noteAll()
		case <-isOver:
			p.noteAll()
			return
		}
	}
}

// try finds out the result that a run would have for one step, unless the preview was interrupted.
func (p *preview) try(i int, s object.WalkStep, m *payload.Manifest) *stepTry {
	try := &stepTry{step: i}
	if p.requestCtx.Err() != nil {
		return try
	}
	change, err := s.Preview(p.previewer)
	change.StepID = s.ID()
	if err != nil {
		change = object.Change{StepID: s.ID(), Action: object.Failed, Err: object.NewFailure(m, err)}
		change.Err.StepID, change.Err.IsFinal = s.ID(), true
	}
	try.result.Change, try.wasTried = change, err == nil || p.requestCtx.Err() == nil
	if try.wasTried && cluster.IsNoAnswer(err) {
		p.cancelRequests() // the others would fail the same way, and slowly
	}
	return try
}

// noteAll notes the results and findings of the steps until now.
func (p *preview) noteAll() {
	for _, e := range p.inbox.take() {
		if p.onChange != nil && e.try != nil && e.try.wasTried {
			p.onChange(&e.try.result.Change)
		}
		switch {
		case e.finding != nil:
			p.results.addFinding(e.finding)
		case !e.try.wasTried:
		case e.try.result.Err != nil:
			p.results.recordFailure(e.try.step, e.try.result.Change)
		default:
			if adopted := e.try.result.Adopted; len(adopted) > 0 {
				p.results.reportAdopted(e.try.result.StepID, adopted)
			}
			p.results.recordDone(e.try.step, e.try.result.Change)
		}
	}
}

// explainNotDone adds the reason to the steps that were not checked.
func (p *preview) explainNotDone(ctx context.Context) {
	why := ""
	switch {
	case ctx.Err() != nil:
		why = whyEnded(ctx).Error()
	case p.requestCtx.Err() != nil:
		why = "the server gave no answer"
	}
	for i := range p.results.changes {
		if p.results.changes[i].Action == object.NotDone {
			p.results.changes[i].Message = why
		}
	}
}
