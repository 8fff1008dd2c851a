package machineset

import (
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/pkg/machine/capi/rolloutrules"
	"github.com/runlevel/runlevel/pkg/machine/replicas"
)

// ageConstant is Cluster API's.
const ageConstant = 10 * 24 * time.Hour

// priority ranks a machine that a set may spare.
func priority(m *clusterv1.Machine, order clusterv1.MachineSetDeletionOrder, now time.Time) float64 {
	return rolloutrules.DeletionPriority(m, order, replicas.PriorityByAge(m.CreationTimestamp.Time, now, ageConstant))
}
