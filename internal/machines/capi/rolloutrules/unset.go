package rolloutrules

import (
	"fmt"
	"strconv"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// UnsetReplicas returns the value of spec.replicas for a set or a deployment without one, as Cluster API's admission
// sets it, which does not run here. With the bounds of the cluster autoscaler, it is the last number of machines within
// these bounds; otherwise it is 1. If a bound can't be read, it returns the problem: a default would delete machines.
func UnsetReplicas(annotations map[string]string, last int) (replicas *int32, invalid string) {
	least, hasLeast := annotations[clusterv1.AutoscalerMinSizeAnnotation]
	most, hasMost := annotations[clusterv1.AutoscalerMaxSizeAnnotation]
	if !hasLeast || !hasMost {
		return ptr.To[int32](1), ""
	}
	bounds := [2]int32{}
	for i, key := range []string{clusterv1.AutoscalerMinSizeAnnotation, clusterv1.AutoscalerMaxSizeAnnotation} {
		number, err := strconv.ParseInt([]string{least, most}[i], 10, 32)
		if err != nil || number < 0 {
			return nil, fmt.Sprintf("spec.replicas is not set, and the annotation %s is %q: write a number", key,
				annotations[key])
		}
		bounds[i] = int32(number)
	}
	return ptr.To(max(bounds[0], min(int32(last), bounds[1]))), ""
}
