package machinedeployment_test

import (
	"testing"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// An administrator leaves spec.replicas to the cluster autoscaler: the deployment keeps its machines, also in a
// rollout, whose surplus machines do not count.
func TestReplicasAreLeftToAnAutoscaler(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := f.newDeployment(2, 1, 0)
	d.Annotations = map[string]string{
		clusterv1.AutoscalerMinSizeAnnotation: "1",
		clusterv1.AutoscalerMaxSizeAnnotation: "5",
	}
	d.Spec.Template.Annotations = map[string]string{held: "test"}
	f.MustCreate(d)
	f.Eventually("two machines", func() bool { return len(f.machines()) == 2 })
	f.Eventually("they are available", func() bool {
		f.MustGet(d)
		return ptr.Deref(d.Status.AvailableReplicas, 0) == 2
	})
	f.resize(d, "large")
	f.Eventually("a surplus machine", func() bool { return len(f.machines()) == 3 })
	f.MustPatch(d, `{"spec":{"replicas":null}}`)
	f.Eventually("spec.replicas is set", func() bool {
		f.MustGet(d)
		return d.Spec.Replicas != nil
	})
	if *d.Spec.Replicas != 2 {
		t.Errorf("spec.replicas is %d, was 2", *d.Spec.Replicas)
	}
}
