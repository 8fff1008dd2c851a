package apply

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/tombstone"
)

// A Look is what a preview has seen of an object.
type Look struct {
	Live *unstructured.Unstructured // as it is; nil if it is not there, or can't have changed
	// Would is what it would be: as the server says, or, where it could not be asked, as
	// the release does. Nil where nothing would change.
	Would *unstructured.Unstructured
	// Unchecked is why the server could not be asked; "" if it was.
	Unchecked string
}

// Preview finds out what Run would do, by dry runs on the server. It changes nothing, waits
// for nothing and tries nothing again for long: what depends on what is not there yet is
// said not to be checked, or held against the definition that the payload itself brings.
func Preview(ctx context.Context, c *cluster.Cluster, release *payload.Payload, before *inventory.Inventory, options Options) *Report {
	options = options.withDefaults()
	r := newRun(c, before, options)
	p := &preview{run: r, payload: release, ctx: ctx}
	if err := p.prepare(); err != nil {
		return &Report{Mode: options.Mode, Err: err}
	}
	var group errgroup.Group
	group.SetLimit(options.Workers)
	for i := range r.order.steps {
		group.Go(func() error {
			p.look(i)
			return nil
		})
	}
	_ = group.Wait() // which has no errors: what fails is part of the report
	return r.previewed(ctx)
}

// A preview is one run that changes nothing.
type preview struct {
	*run
	payload *payload.Payload
	ctx     context.Context
	coming  map[schema.GroupKind]*comingDefinition
}

// prepare finds out what there is to know beforehand.
func (p *preview) prepare() (err error) {
	p.requests, p.cut = context.WithCancel(p.ctx)
	p.coming = p.comingDefinitions()
	return p.plan(p.payload.Manifests)
}

// look looks at one object, and tells what would come of it.
func (p *preview) look(i int) {
	m := p.order.steps[i].Manifest
	if p.ctx.Err() != nil {
		return
	}
	change, err := p.insist(func() (Change, error) {
		if m.IsTombstone() {
			return p.tombstone(m)
		}
		return p.object(m)
	})
	switch {
	case err != nil && p.ctx.Err() != nil:
	case err != nil:
		p.failed(i, err)
	default:
		change.Manifest = m
		p.note(i, change)
	}
}

// insist tries again what has failed because too much is asked for at a time.
func (p *preview) insist(try func() (Change, error)) (Change, error) {
	const tries = 6
	pause := backoff()
	for attempt := 1; ; attempt++ {
		change, err := try()
		if err == nil || attempt == tries || remedyFor(err).reason != ClusterOverloaded || !pauseFor(p.ctx, max(pause.Step(), wantedPause(err))) {
			return change, err
		}
	}
}

// tombstone says what would come of the object of a tombstone.
func (p *preview) tombstone(m *payload.Manifest) (Change, error) {
	asked, _ := p.options.Journal.asked(m.ID())
	seen := tombstone.Observe(p.requests, p.cluster, m.ID(), asked.UID)
	switch seen.State {
	case tombstone.Absent:
		return Change{Action: Absent}, nil
	case tombstone.Unknown:
		return Change{Action: NotChecked, Message: seen.Describe(p.cluster.Now())}, nil
	case tombstone.Terminating:
		return Change{Action: Pending, UID: seen.UID, Message: seen.Describe(p.cluster.Now())}, nil
	}
	if err := p.refuseOthers(m.ID()); err != nil {
		return Change{}, err
	}
	if p.options.Mode != graph.Update {
		return Change{Action: Left, UID: seen.UID, Message: leaves[p.options.Mode]}, nil
	}
	return Change{Action: Deleted, UID: seen.UID}, nil
}

// previewed sums up a preview.
func (r *run) previewed(ctx context.Context) *Report {
	defer r.cut()
	report := &Report{Mode: r.options.Mode, Changes: slices.Clone(r.changes), Warnings: r.allWarnings()}
	slices.SortFunc(report.Changes, func(a, b Change) int { return payload.InOrder(a.Manifest, b.Manifest) })
	report.Err = r.outcome(ctx, report)
	return report
}
