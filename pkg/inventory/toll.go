package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
)

// Tolls counts what goes with each of some objects, beside the object itself, as if that one
// alone were deleted:
//   - what is in a namespace, and all objects of a CustomResourceDefinition;
//   - what the garbage collector takes: objects that have owners, and none that stays;
//   - what goes with those, and so on.
//
// Events don't count: nobody misses them. What is terminating already counts as long as it
// is there, but keeps nothing that it owns. The notes say what could not be counted.
func Tolls(ctx context.Context, c *cluster.Cluster, going []Head) (map[types.UID]kinds.Tally, []string, error) {
	if len(going) == 0 {
		return nil, nil, nil
	}
	listings, notes, err := sweep(ctx, c, namespacesOf(going))
	if err != nil {
		return nil, nil, fmt.Errorf("count what goes with objects: %w", err)
	}
	found := stockOf(listings, going)
	tolls := map[types.UID]kinds.Tally{}
	for _, head := range going {
		tolls[head.UID] = tallyOf(found.with(found.objects[head.UID]))
	}
	return tolls, notes, nil
}

// tallyOf sums up what goes.
func tallyOf(gone []*object) kinds.Tally {
	counted := map[schema.GroupKind]kinds.Count{}
	for _, object := range gone {
		kind := object.in.GroupKind()
		counted[kind] = kinds.Count{Group: kind.Group, Kind: kind.Kind, Resource: object.in.Resource, Objects: counted[kind].Objects + 1}
	}
	return kinds.NewTally(slices.Collect(maps.Values(counted)))
}
