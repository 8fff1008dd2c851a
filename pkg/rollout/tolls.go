package rollout

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/tombstone"
)

// Tolls counts what goes with each object that a preview would delete, with each whose
// delete is pending, and with each orphan if it were deleted; as if that one alone went. The
// notes say what could not be counted.
func (o *Outcome) Tolls(ctx context.Context, c *cluster.Cluster) (map[types.UID]kinds.Tally, []string, error) {
	var going []inventory.Head
	for uid, id := range o.going() {
		resource, err := c.FindKind(ctx, id.GroupKind())
		if err != nil {
			return nil, nil, fmt.Errorf("count what goes with %s: %w", id, err)
		}
		if !resource.Namespaced {
			id.Namespace = "" // which manifests may say all the same
		}
		going = append(going, inventory.Head{ID: id, Resource: resource, UID: uid})
	}
	for _, orphan := range o.Orphans {
		going = append(going, orphan.Head)
	}
	return inventory.Tolls(ctx, c, going)
}

// going are the objects that a preview would delete, and those whose delete is pending.
func (o *Outcome) going() map[types.UID]kinds.ID {
	all := map[types.UID]kinds.ID{}
	if o.Report != nil {
		for _, change := range o.Report.Changes {
			if isGoing(change.Action) {
				all[change.UID] = change.Manifest.ID()
			}
		}
	}
	for _, one := range o.Deletes {
		if one.Seen.State == tombstone.Terminating {
			all[one.Seen.UID] = one.ID
		}
	}
	return all
}

// isGoing says whether an object goes, or would.
func isGoing(action object.Action) bool {
	return action == object.Deleted || action == object.Recreated || action == object.Pending
}
