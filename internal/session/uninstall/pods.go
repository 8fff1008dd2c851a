package uninstall

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/waiter"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// podOwners are the owners of the pods of workloads, by their namespace: the workloads themselves, their ReplicaSets
// and Jobs.
type podOwners map[string]map[types.UID]bool

// findPodOwners returns the owners of the pods of the workloads of a stage. The pods end after their workloads, and
// until then they need their configuration and their rights.
func (r *remover) findPodOwners(ctx context.Context) podOwners {
	owners := podOwners{}
	if r.stage.Name != kinds.WorkloadStage.String() {
		return owners
	}
	for _, head := range r.stage.Objects {
		if owners[head.ID.Namespace] == nil {
			owners[head.ID.Namespace] = map[types.UID]bool{}
		}
		owners[head.ID.Namespace][head.UID] = true
	}
	for namespace, uids := range owners {
		for _, kind := range []schema.GroupKind{kinds.ReplicaSet, kinds.Job} {
			for _, head := range r.ownedBy(ctx, kind, namespace, uids) {
				uids[head.UID] = true
			}
		}
	}
	return owners
}

// ownedBy returns the objects of a kind in a namespace that have one of some owners. It returns none if they can't be
// listed: they are not the release's.
func (r *remover) ownedBy(ctx context.Context, kind schema.GroupKind, namespace string,
	owners map[types.UID]bool) []objectmeta.LiveMetadata {
	resource, err := r.cluster.FindKind(ctx, kind)
	if err != nil {
		return nil
	}
	var found []objectmeta.LiveMetadata
	_ = r.cluster.EachMetadata(ctx, resource, namespace, metav1.ListOptions{}, func(m *metav1.PartialObjectMetadata) {
		if slices.ContainsFunc(m.OwnerReferences, func(owner metav1.OwnerReference) bool { return owners[owner.UID] }) {
			found = append(found, objectmeta.Of(resource, m))
		}
	})
	return found
}

// awaitPods waits until the pods of the workloads of a stage are deleted.
func (r *remover) awaitPods(ctx context.Context, owners podOwners) error {
	var pods []objectmeta.LiveMetadata
	err := r.newWaiter(func(ctx context.Context) error {
		r.reportPods(ctx, pods)
		return nil
	}).Until(ctx, func(ctx context.Context) (waiter.Result, error) {
		for namespace, uids := range owners {
			if pods = r.ownedBy(ctx, kinds.Pod, namespace, uids); len(pods) > 0 {
				return waiter.Again, nil
			}
			delete(owners, namespace)
		}
		return waiter.Done, nil
	})
	if err != nil {
		r.current, r.left = pods, r.left+len(pods)
	}
	return err
}

// reportPods reports why one of the pods still exists, and how many others do.
func (r *remover) reportPods(ctx context.Context, pods []objectmeta.LiveMetadata) {
	for _, remaining := range r.describe(ctx, pods[:1]) {
		if len(pods) > 1 {
			remaining.Message += "; " + printable.Count(len(pods)-1, "more pod")
		}
		r.emit(Event{Type: ObjectWaiting, Object: remaining.Object, Message: remaining.Message})
	}
}
