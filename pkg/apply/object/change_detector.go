package object

import (
	"fmt"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A changeDetector finds out by fingerprints which objects were written since they were applied.
type changeDetector struct {
	*applierScope
	served      *servedKinds
	definitions *definitions
	scaling     *scaling
	recorded    *fingerprint.Cache // applies before the run; those of this run are in Options
}

// begin notes the objects of the release.
func (d *changeDetector) begin() {
	for _, m := range d.options.Manifests {
		switch {
		case m.IsTombstone():
		case m.IsCreateOnly(): // its later state does not matter
			d.options.Fingerprints.AddExpected(d.options.Fingerprints, m.ID())
		default:
			d.options.Fingerprints.AddExpected(d.recorded, m.ID())
		}
	}
}

// inputs returns the inputs of an apply, for its fingerprint. The definition is one: when it changes, so does the
// result for custom resources, without a trace in them. The inputs are not known if the definition is not.
func (d *changeDetector) inputs(m *payload.Manifest,
	resource cluster.Resource) (inputs fingerprint.AppliedFrom, isKnown bool) {
	definition, isKnown := d.definitions.versionOf(resource)
	inputs = fingerprint.AppliedFrom{Sum: m.Sum(), Metadata: m.Object(), Note: definition}
	if d.scaling.has(m.ID()) {
		inputs.Note += " scaled"
	}
	return inputs, isKnown
}

// trusts reports whether the metadata from before the run count as the current state of an object.
func (d *changeDetector) trusts(head objectmeta.LiveMetadata) bool {
	return !d.options.Full && d.before.Age() < d.options.LookCounts && d.isApplied(head)
}

// isApplied reports whether this release has applied an object, which is not terminating.
func (d *changeDetector) isApplied(head objectmeta.LiveMetadata) bool {
	return head.Release == d.options.Release && head.IsApplied && !head.Terminating
}

// isUntouched reports whether the release's fields of an object can't have changed since it was applied from the same
// manifest, by fingerprints of then.
func (d *changeDetector) isUntouched(m *payload.Manifest, head objectmeta.LiveMetadata, then *fingerprint.Cache) bool {
	inputs, isKnown := d.inputs(m, head.Resource)
	return isKnown && d.options.Fingerprints.CarryOver(then, head, inputs, func() bool {
		return d.served.countsChanges(head.Resource)
	})
}

// wasReady reports whether an object was ready and has not been written since.
func (d *changeDetector) wasReady(m *payload.Manifest, head objectmeta.LiveMetadata) bool {
	inputs, isKnown := d.inputs(m, head.Resource)
	return isKnown && d.options.Fingerprints.CarryOverReady(d.recorded, head, inputs, d.standard())
}

// standard names the rules for readiness: the upstream standard has other rules for an install.
func (d *changeDetector) standard() string {
	return fmt.Sprint(d.options.Standard, d.options.Standard == ready.Upstream && d.options.Mode == graph.Install)
}
