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
func (a *attempt) removeLeftovers(refused error) error {
	a.hasSearched = true
	details := status(refused).Details
	// a policy has denied the object
	if details == nil || hasMessage("denied request")(refused) || len(immutableFields(refused)) > 0 {
		return refused
	}
	live, _ := a.applier.read(a.resource, a.ID())
	if live == nil {
		return refused
	}
	var near []string
	for _, cause := range details.Causes {
		near = append(near, cause.Field)
	}
	leftovers := ownership.FindLeftovers(live, a.sent, near)
	removed, would := a.leastRemoval(leftovers)
	if len(removed) == 0 {
		return refused
	}
	a.removed = maskConflicts(a.Manifest, a.ofOthers(ownership.HeldBy(live, removed)))
	if a.isDryRun() {
		a.answer = &would
		return nil
	}
	head, err := ownership.TakeOver(a.applier.requestCtx, a.applier.cluster, a.resource, live, removed)
	if err != nil {
		return err
	}
	a.head.ResourceVersion = head.GetResourceVersion()
	return nil
}

// leastRemoval returns the fewest leftovers without which the server would accept a draft, and its answer; none if it
// refuses the draft without them as well, or if dry runs do not reproduce the refusal.
func (a *attempt) leastRemoval(leftovers *ownership.Leftovers) (removed []fieldpath.Path, would cluster.WriteResult) {
	if len(leftovers.Fields) == 0 {
		return nil, would
	}
	others, err := a.applier.cluster.Apply(a.applier.requestCtx, a.resource, leftovers.AsLive(),
		cluster.Force|cluster.DryRun)
	if err != nil {
		return nil, would
	}
	leftovers.Others = others.Object
	isEnough := func(removed []fieldpath.Path) bool {
		answer, err := leftovers.DryRunRemove(a.applier.requestCtx, a.applier.cluster, a.resource, removed)
		if err == nil {
			would = answer
		}
		return err == nil
	}
	if !isEnough(leftovers.Fields) {
		return nil, would
	}
	removed = fewestFields(nil, leftovers.Fields, isEnough)
	if a.isDryRun() && len(removed) > 0 && !isEnough(removed) { // the last answer may be about other fields
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
