package object

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
)

// A manifest may choose a member of a union, such as the strategy of a Deployment, the source of a volume or the handler
// of a probe, while the live object has another member, by a default or by another manager. Server-side apply keeps the
// other member, and the server refuses both together. The same holds for fields that exclude each other.

// applyOver applies a draft. If the server refuses it because the live object has fields that exclude fields of the draft,
// it removes those: as few as dry runs show to be enough.
func (w writer) applyOver(o *liveObject, draft *unstructured.Unstructured, how cluster.ApplyMode) (cluster.WriteResult, error) {
	applied, refused := w.applySeen(o, draft, how)
	details := status(refused).Details
	if !o.exists || !apierrors.IsInvalid(refused) || details == nil || hasMessage("denied request")(refused) || // by a policy
		len(immutableFields(refused)) > 0 {
		return applied, refused
	}
	live, err := w.cluster.In(o.resource, draft.GetNamespace()).Get(w.requests, draft.GetName(), metav1.GetOptions{})
	if err != nil {
		return applied, refused
	}
	var near []string
	for _, cause := range details.Causes {
		near = append(near, cause.Field)
	}
	leftovers := ownership.FindLeftovers(live, draft, near)
	if len(leftovers.Fields) == 0 {
		return applied, refused
	}
	others, err := w.cluster.Apply(w.requests, o.resource, leftovers.AsLive(), cluster.Force|cluster.DryRun)
	if err != nil {
		return applied, refused
	}
	leftovers.Others = others.Object
	would := func(removed []fieldpath.Path) (cluster.WriteResult, error) {
		return leftovers.DryRunRemove(w.requests, w.cluster, o.resource, removed)
	}
	if _, err := would(leftovers.Fields); err != nil {
		return applied, refused
	}
	removed := fewest(nil, leftovers.Fields, func(removed []fieldpath.Path) bool {
		_, err := would(removed)
		return err == nil
	})
	if len(removed) == 0 { // dry runs do not reproduce the refusal
		return applied, refused
	}
	o.removed = maskedLosses(o.Manifest, o.ofOthers(ownership.HeldBy(live, removed)))
	if how&cluster.DryRun != 0 {
		return would(removed)
	}
	head, err := ownership.TakeOver(w.requests, w.cluster, o.resource, live, removed)
	if err != nil {
		return cluster.WriteResult{}, err
	}
	o.head.ResourceVersion = head.GetResourceVersion()
	return w.applySeen(o, draft, how)
}

// fewest returns the fewest of some fields to remove, in addition to others, so that isEnough holds.
func fewest(others, some []fieldpath.Path, isEnough func([]fieldpath.Path) bool) []fieldpath.Path {
	with := func(more []fieldpath.Path) []fieldpath.Path { return append(slices.Clone(others), more...) }
	switch {
	case isEnough(others):
		return nil
	case len(some) == 1:
		return some
	}
	group, other := some[:len(some)/2], some[len(some)/2:]
	needed := fewest(with(group), other, isEnough)
	return append(fewest(with(needed), group, isEnough), needed...)
}
