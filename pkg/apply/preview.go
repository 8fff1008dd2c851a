package apply

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/trouble"
)

// A Look is what a preview has seen of an object that would change.
type Look struct {
	Live *unstructured.Unstructured // as it is; nil if it is not there
	// Would is what it would be: as the server says, or, where it could not be asked, as
	// the release does.
	Would *unstructured.Unstructured
	// Unchecked is why the server could not be asked; "" if it was.
	Unchecked string
}

// Preview finds out what Run would do, by dry runs on the server. It changes nothing, waits
// for nothing and tries nothing again for long: what depends on what is not there yet is
// said not to be checked, or held against the definition that the payload itself brings.
//
// A failure holds up nothing here: each object is looked at.
func Preview(ctx context.Context, c *cluster.Cluster, release *payload.Payload, before *inventory.Inventory, options Options) *Report {
	options = options.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, options.Timeout, fmt.Errorf("%w after %s", ErrTimeout, options.Timeout))
	defer cancel()
	p := &preview{run: newRun(c, before, options), payload: release, asker: trouble.Asker{Cluster: c}}
	p.requests, p.cut = context.WithCancel(ctx)
	defer p.cut()
	p.coming = p.comingDefinitions()
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
	payload *payload.Payload
	coming  map[schema.GroupKind]*comingDefinition // by the kinds that they define
	asker   trouble.Asker
}

// look looks at one object, and tells what would come of it.
func (p *preview) look(i int) {
	if p.requests.Err() != nil {
		return
	}
	change, err := p.foresee(p.order.steps[i].Manifest)
	switch {
	case err != nil && p.requests.Err() != nil:
	case err != nil:
		p.failed(p.requests, i, err)
		if isNoAnswer(err) {
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

// foresee says what would come of a manifest.
func (p *preview) foresee(m *payload.Manifest) (Change, error) {
	if m.IsTombstone() {
		return p.insist(func() (Change, error) { return p.tombstone(m) })
	}
	for _, definition := range p.coming {
		if definition.manifest == m {
			return definition.foresee() // which those that are held against it may have asked for before
		}
	}
	return p.insist(func() (Change, error) { return p.object(m) })
}

// insist tries again what has failed because too much is asked for at a time, or because
// nobody could be asked just then.
func (p *preview) insist(try func() (Change, error)) (Change, error) {
	const tries = 4
	pause := backoff()
	for attempt := 1; ; attempt++ {
		change, err := try()
		if err == nil || attempt == tries || !isNoAnswer(err) || !pauseFor(p.requests, max(pause.Step(), wantedPause(err))) {
			return change, err
		}
	}
}

// isNoAnswer is for a server that has too much to do, or is not there.
func isNoAnswer(err error) bool {
	return isConnection(err) || remedyFor(err).reason == ClusterOverloaded
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
		if p.changes[i].Action == NotDone {
			p.changes[i].Message = why
		}
	}
	report := &Report{Mode: p.options.Mode, Changes: slices.Clone(p.changes), Warnings: p.allWarnings()}
	slices.SortFunc(report.Changes, func(a, b Change) int { return payload.InOrder(a.Manifest, b.Manifest) })
	report.Err = p.outcome(ctx, report)
	return report
}
