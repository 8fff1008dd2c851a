package session

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An Orphan is an object that an earlier payload of the release applied, and that this one
// neither has nor deletes.
type Orphan struct{ objectmeta.LiveMetadata }

// Tombstone returns the manifest that would delete the object.
func (o Orphan) Tombstone() string {
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: %s\nkind: %s\nmetadata:\n", o.Resource.GroupVersion(), o.ID.Kind)
	if o.ID.Namespace != "" {
		fmt.Fprintf(&text, "  namespace: %s\n", scalar(o.ID.Namespace))
	}
	fmt.Fprintf(&text, "  name: %s\n  annotations:\n    %s: \"true\"\n", scalar(o.ID.Name), payload.DeleteAnnotation)
	return text.String()
}

func scalar(text string) string {
	written, err := yaml.Marshal(text)
	if err != nil {
		return strconv.Quote(text)
	}
	return strings.TrimSuffix(string(written), "\n")
}

// FindOrphans returns the objects that earlier payloads of a release have applied, and that this one neither has nor
// deletes. It changes nothing.
func FindOrphans(ctx context.Context, c *cluster.Cluster, release *payload.Payload, options Options) ([]Orphan, error) {
	r := newRun(c, release, options)
	if err := r.inspect(ctx, r.lock()); err != nil {
		return nil, err
	}
	return r.orphans(ctx), nil
}

// orphans returns the objects of the release that still exist, and that the payload neither has nor deletes. If the
// payload deletes the Namespace or definition of an object, the object is not an orphan.
func (r *run) orphans(ctx context.Context) []Orphan {
	if r.options.LeftOut != nil {
		return nil
	}
	inPayload, deleted := r.payloadObjects(ctx), r.deletedObjects()
	var dropped []objectmeta.LiveMetadata
	for _, head := range r.before.Of(r.payload.Name) {
		isGoing := slices.ContainsFunc(objectmeta.Containers(head.ID, head.Resource), func(id kinds.ID) bool {
			return deleted[id]
		})
		if !inPayload[head.ID] && !isGoing && !head.Terminating {
			dropped = append(dropped, head)
		}
	}
	listed := r.listAgain(ctx, dropped)
	var orphans []Orphan
	for _, head := range dropped {
		if r.isLeft(ctx, listed, head) {
			orphans = append(orphans, Orphan{head})
		}
	}
	return orphans
}

// maxRead limits the objects that are read one by one. The kinds of more objects are listed.
const maxRead = 3

// listAgain lists the kinds of objects again; nil if they are few, or can't be listed.
func (r *run) listAgain(ctx context.Context, heads []objectmeta.LiveMetadata) *inventory.Inventory {
	if len(heads) <= maxRead {
		return nil
	}
	var places []inventory.Scope
	for _, head := range heads {
		places = append(places, inventory.Scope{Kind: head.Resource.GroupKind(), Namespace: head.ID.Namespace})
	}
	listed, err := inventory.Take(ctx, r.cluster, places, func(release string, _ kinds.ID) bool {
		return release == r.payload.Name
	})
	if err != nil {
		return nil
	}
	return listed
}

// payloadObjects returns the objects that the payload has, or has tombstones of, and those that it leaves unmanaged. An
// object that has become a test stays until that runs, which replaces it.
func (r *run) payloadObjects(ctx context.Context) map[kinds.ID]bool {
	manifests := slices.Concat(r.payload.Manifests, r.payload.Tests)
	for _, exclusion := range r.payload.Excluded {
		if exclusion.Filter == payload.ByOverrides {
			manifests = append(manifests, exclusion.Manifest)
		}
	}
	all := map[kinds.ID]bool{}
	for _, manifest := range manifests {
		id := manifest.ID()
		if resource, err := r.cluster.FindKind(ctx, id.GroupKind()); err == nil {
			id = resource.Scoped(id)
		}
		all[id] = true
	}
	return all
}

// deletedObjects returns the objects that the payload deletes, and those that are terminating since an earlier payload
// deleted them.
func (r *run) deletedObjects() map[kinds.ID]bool {
	all := map[kinds.ID]bool{}
	for _, manifest := range r.payload.Manifests {
		all[manifest.ID()] = manifest.IsTombstone()
	}
	for _, item := range r.outcome.Deletes {
		if item.Seen.State == tombstone.Terminating {
			all[item.ID] = true
		}
	}
	return all
}

// isLeft reports whether an object still exists, and is the same one and the release's. If it can't be read, it is
// assumed to.
func (r *run) isLeft(ctx context.Context, listed *inventory.Inventory, head objectmeta.LiveMetadata) bool {
	var now objectmeta.LiveMetadata
	if listed != nil && listed.Covers(head.ID) {
		now, _ = listed.Find(head.ID)
	} else {
		object, err := r.cluster.GetMetadata(ctx, head.Resource, head.ID.Namespace, head.ID.Name)
		if err != nil {
			return !apierrors.IsNotFound(err)
		}
		now = objectmeta.Of(head.Resource, object)
	}
	return now.UID == head.UID && !now.Terminating && now.IsOf(r.payload.Name)
}
