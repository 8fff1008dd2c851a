package machineset_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// An administrator leaves spec.replicas to the cluster autoscaler: the set keeps its machines, within the autoscaler's
// bounds. With a bound that can't be read, no machine is deleted; without bounds there is one.
func TestReplicasAreLeftToAnAutoscaler(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 3)
	set.Annotations = map[string]string{
		clusterv1.AutoscalerMinSizeAnnotation: "1",
		clusterv1.AutoscalerMaxSizeAnnotation: "many",
	}
	f.MustCreate(set)
	f.awaitReplicas(set, 3)
	const release = `{"spec":{"replicas":null}}`
	f.MustPatch(set, release)
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
		up := meta.FindStatusCondition(s.Conditions, clusterv1.ScalingUpCondition)
		return up != nil && strings.Contains(up.Message,
			`the annotation cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size is "many": write a number`)
	})
	if machines := f.machines(); len(machines) != 3 {
		t.Errorf("%d machines are left", len(machines))
	}
	replicas := func(want int32) {
		t.Helper()
		f.Eventually("spec.replicas is set", func() bool {
			f.MustGet(set)
			return ptr.Deref(set.Spec.Replicas, -1) == want
		})
		f.awaitReplicas(set, int(want))
	}
	f.annotate(set, clusterv1.AutoscalerMaxSizeAnnotation, "5")
	replicas(3)
	f.annotate(set, clusterv1.AutoscalerMinSizeAnnotation, "4")
	f.MustPatch(set, release)
	replicas(4)
	f.annotate(set, clusterv1.AutoscalerMinSizeAnnotation, "0")
	f.annotate(set, clusterv1.AutoscalerMaxSizeAnnotation, "2")
	f.MustPatch(set, release)
	replicas(2)
	f.MustPatch(set, `{"metadata":{"annotations":null},"spec":{"replicas":null}}`)
	replicas(1)
}
