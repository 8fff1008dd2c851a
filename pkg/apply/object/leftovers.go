package object

import (
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
)

// A manifest may choose a member of a union, such as the strategy of a Deployment, the source of a volume or the
// handler of a probe, while the live object has another member, by a default or by another manager. Server-side apply
// keeps the other member, and the server refuses both together. The same holds for fields that exclude each other.

// removeLeftovers removes the fields of the live object that exclude fields of a draft, if the server has refused the
// draft for them: as few as dry runs show to be enough. If they are not the reason, it returns the refusal.
func (n *attempt) removeLeftovers(refused error) error {
	n.hasSearched = true
	details := status(refused).Details
	// a policy has denied the object
	if details == nil || hasMessage("denied request")(refused) || len(immutableFields(refused)) > 0 {
		return refused
	}
	live, _ := n.applier.read(n.resource, n.ID())
	if live == nil {
		return refused
	}
	var near []string
	for _, cause := range details.Causes {
		near = append(near, cause.Field)
	}
	leftovers := ownership.FindLeftovers(live, n.sent, near)
	removed, would := n.leastRemoval(leftovers)
	if len(removed) == 0 {
		return refused
	}
	n.removed = maskConflicts(n.Manifest, n.ofOthers(ownership.HeldBy(live, removed)))
	if n.isDryRun() {
		n.answer = &would
		return nil
	}
	head, err := ownership.TakeOver(n.applier.requestCtx, n.applier.cluster, n.resource, live, removed)
	if err != nil {
		return err
	}
	n.head.ResourceVersion = head.GetResourceVersion()
	return nil
}

// leastRemoval returns the fewest leftovers without which the server would accept a draft, and its answer; none if it
// refuses the draft without them as well, or if dry runs do not reproduce the refusal.
func (n *attempt) leastRemoval(leftovers *ownership.Leftovers) (removed []fieldpath.Path, would cluster.WriteResult) {
	if len(leftovers.Fields) == 0 {
		return nil, would
	}
	others, err := n.applier.cluster.Apply(n.applier.requestCtx, n.resource, leftovers.AsLive(),
		cluster.Force|cluster.DryRun)
	if err != nil {
		return nil, would
	}
	leftovers.Others = others.Object
	isEnough := func(removed []fieldpath.Path) bool {
		answer, err := leftovers.DryRunRemove(n.applier.requestCtx, n.applier.cluster, n.resource, removed)
		if err == nil {
			would = answer
		}
		return err == nil
	}
	if !isEnough(leftovers.Fields) {
		return nil, would
	}
	removed = fewestFields(nil, leftovers.Fields, isEnough)
	if n.isDryRun() && len(removed) > 0 && !isEnough(removed) { // the last answer may be about other fields
		return nil, would
	}
	return removed, would
}

// fewestFields returns the fewest of some fields to remove, in addition to others, so that isEnough holds.
func fewestFields(others, some []fieldpath.Path, isEnough func([]fieldpath.Path) bool) []fieldpath.Path {
	with := func(more []fieldpath.Path) []fieldpath.Path { return append(slices.Clone(others), more...) }
	switch {
	case isEnough(others):
		return nil
	case len(some) == 1:
		return some
	}
	group, other := some[:len(some)/2], some[len(some)/2:]
	needed := fewestFields(with(group), other, isEnough)
	return append(fewestFields(with(needed), group, isEnough), needed...)
}
