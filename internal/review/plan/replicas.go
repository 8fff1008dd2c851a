package plan

import (
	"fmt"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// droppedReplicas warns of objects whose manifests no longer set spec.replicas, and that no autoscaler of the
// new release scales: the API server scales them to its default at once.
func droppedReplicas(entries []ObjectPlan, manifests []*payload.Manifest) []Warning {
	isScaled := map[kinds.ID]bool{}
	for _, m := range manifests {
		if target, scales := kinds.ScaleTarget(m.Object()); scales && !m.IsTombstone() {
			isScaled[target] = true
		}
	}
	var found []Warning
	for _, e := range entries {
		if count := e.droppedReplicas(); count > 1 && !e.CreateOnly && !isScaled[e.ID] {
			found = append(found, Warning{ReplicasDropped, e.ID, fmt.Sprintf(
				"spec.replicas, which was %d, is dropped: the API server sets its default, which is 1, unless an "+
					"autoscaler or another manager has scaled it", count)})
		}
	}
	return found
}

// droppedReplicas returns the replicas of the old manifest, if the new one has none; else 0.
func (e ObjectPlan) droppedReplicas() int64 {
	for _, change := range e.Changes {
		if count, isCount := change.Old.(int64); isCount && change.New == nil &&
			change.Path.String() == "spec.replicas" {
			return count
		}
	}
	return 0
}
