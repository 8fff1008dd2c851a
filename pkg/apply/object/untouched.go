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

// untouched finds out which objects have not been written since they were applied, by their fingerprints.
type untouched struct {
	*scope
	served      *served
	definitions *definitions
	scaling     *scaling
	recorded    *fingerprint.Cache // of applies before the run; those of this run are in Options
}

// begin notes the objects of the release.
func (u *untouched) begin() {
	for _, m := range u.options.Manifests {
		switch {
		case m.IsTombstone():
		case m.IsCreateOnly(): // its later state does not matter
			u.options.Fingerprints.AddExpected(u.options.Fingerprints, m.ID())
		default:
			u.options.Fingerprints.AddExpected(u.recorded, m.ID())
		}
	}
}

// inputs returns the inputs of an apply, for its fingerprint. The definition is one of them: when it changes, so does
// the result for custom resources, without a trace in them. The inputs are not known if the definition is not.
func (u *untouched) inputs(m *payload.Manifest,
	resource cluster.Resource) (inputs fingerprint.AppliedFrom, isKnown bool) {
	definition, isKnown := u.definitions.versionOf(resource)
	inputs = fingerprint.AppliedFrom{Sum: m.Sum(), Metadata: m.Object(), Note: definition}
	if u.scaling.has(m.ID()) {
		inputs.Note += " scaled"
	}
	return inputs, isKnown
}

// trusts reports whether the metadata from before the run count as the current state of an object.
func (u *untouched) trusts(head objectmeta.LiveMetadata) bool {
	return !u.options.Full && u.before.Age() < u.options.LookCounts && u.isApplied(head)
}

// isApplied reports whether this release has applied an object, which is not terminating.
func (u *untouched) isApplied(head objectmeta.LiveMetadata) bool {
	return head.Release == u.options.Release && head.IsApplied && !head.Terminating
}

// isUntouched reports whether the release's fields of an object can't have changed since it was applied from the same
// manifest, by fingerprints of then.
func (u *untouched) isUntouched(m *payload.Manifest, head objectmeta.LiveMetadata, then *fingerprint.Cache) bool {
	inputs, isKnown := u.inputs(m, head.Resource)
	return isKnown && u.options.Fingerprints.CarryOver(then, head, inputs, func() bool {
		return u.served.countsChanges(head.Resource)
	})
}

// wasReady reports whether an object was ready and has not been written since.
func (u *untouched) wasReady(m *payload.Manifest, head objectmeta.LiveMetadata) bool {
	inputs, isKnown := u.inputs(m, head.Resource)
	return isKnown && u.options.Fingerprints.CarryOverReady(u.recorded, head, inputs, u.standard())
}

// standard names the rules for readiness: the upstream standard has other rules for an install.
func (u *untouched) standard() string {
	return fmt.Sprint(u.options.Standard, u.options.Standard == ready.Upstream && u.options.Mode == graph.Install)
}
