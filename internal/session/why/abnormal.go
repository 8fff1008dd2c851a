package why

import (
	"context"
	"iter"
	"maps"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
)

// abnormal returns the objects of the release on the cluster that are terminating, not ready, or changed, and counts
// those that are missing.
func (r *reader) abnormal(ctx context.Context, f *ReleaseFacts, live *inventory.Inventory) []kinds.ID {
	for _, kind := range live.UnlistedKinds() {
		r.unknown("list "+kind.String()+" in the whole cluster", live.ListError(kind))
	}
	applied := fingerprint.Read(f.Record.Fingerprints)
	if len(live.UnlistedKinds()) == 0 {
		known := map[kinds.ID]bool{}
		for id := range f.knownObjects(live) {
			known[id] = true
		}
		f.Missing = applied.Missing(maps.Keys(known))
		f.isMissing = func(id kinds.ID) bool { return applied.WasApplied(id) && !known[id] }
	}
	var mu sync.Mutex
	var found []kinds.ID
	var group errgroup.Group
	group.SetLimit(atOnce)
	heads := live.Of(f.Record.Release)
	bodies := r.listAwaited(ctx, f.Record.Release, heads)
	for _, head := range heads {
		group.Go(func() error {
			isChanged := applied.WasApplied(head.ID) && !applied.IsUnchanged(head)
			if head.Terminating || isChanged || !r.isReady(ctx, head, bodies[head.ID]) {
				mu.Lock()
				defer mu.Unlock()
				found = append(found, head.ID)
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	return found
}

// knownObjects returns the objects that exist, and the Jobs that finished: their TTL may have removed them.
func (f *ReleaseFacts) knownObjects(live *inventory.Inventory) iter.Seq[kinds.ID] {
	return func(yield func(kinds.ID) bool) {
		for id := range live.IDs() {
			if !yield(id) {
				return
			}
		}
		for _, job := range f.Record.Jobs {
			if !yield(job.ID) {
				return
			}
		}
	}
}

// listFrom is the number of objects of a kind from which one list is faster than a request for each.
const listFrom = 10

// listAwaited returns the objects whose readiness depends on their bodies, of kinds with many such objects.
func (r *reader) listAwaited(ctx context.Context, release string,
	heads []objectmeta.LiveMetadata) map[kinds.ID]*unstructured.Unstructured {
	counts := map[schema.GroupKind]int{}
	for _, head := range heads {
		if isAwaited(head) {
			counts[head.ID.GroupKind()]++
		}
	}
	var mu sync.Mutex
	bodies := map[kinds.ID]*unstructured.Unstructured{}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for kind, count := range counts {
		if count < listFrom {
			continue
		}
		group.Go(func() error {
			found, err := r.cluster.List(ctx, kind, metav1.NamespaceAll, objectmeta.ReleaseLabel+"="+release)
			mu.Lock()
			defer mu.Unlock()
			for i := range found {
				bodies[kinds.IDOf(&found[i])] = &found[i]
			}
			return err
		})
	}
	_ = group.Wait() // missing objects are read one by one
	return bodies
}

// isAwaited reports whether the readiness of an object depends on its body.
func isAwaited(head objectmeta.LiveMetadata) bool {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(head.ID.GroupKind().WithVersion(head.Resource.Version))
	object.SetAnnotations(head.Object().GetAnnotations())
	return ready.Awaits(object, ready.Full)
}

// isReady reports whether an object is certainly ready. Its body is only read if it may not be, and was not listed.
func (r *reader) isReady(ctx context.Context, head objectmeta.LiveMetadata, live *unstructured.Unstructured) bool {
	if !isAwaited(head) { // the readiness of some kinds depends on Services, too
		kind := head.ID.GroupKind()
		return kind != kinds.APIService && kind.Group != "admissionregistration.k8s.io"
	}
	if live == nil {
		var err error
		live, err = r.cluster.In(head.Resource, head.ID.Namespace).Get(ctx, head.ID.Name, metav1.GetOptions{})
		if err != nil {
			return false
		}
	}
	return ready.Check(live, ready.Full, ready.Related{}).State == ready.Ready
}
