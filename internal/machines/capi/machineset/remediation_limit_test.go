package machineset

import (
	"math"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestMaxInFlight(t *testing.T) {
	t.Parallel()
	deployment := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"}}
	deployment.Spec.Replicas = ptr.To[int32](5)
	set := &clusterv1.MachineSet{}
	set.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(deployment, clusterv1.GroupVersion.WithKind("MachineDeployment")),
	}
	for name, c := range map[string]struct {
		limit            *intstr.IntOrString
		blocked, message string
		most             int
	}{
		"no limit": {most: math.MaxInt},
		"a number": {
			limit: ptr.To(intstr.FromInt32(2)),
			most:  2,
			message: "Waiting because there are already too many remediations in progress " +
				"(spec.remediation.maxInFlight is 2)",
		},
		"a percentage": {
			limit: ptr.To(intstr.FromString("21%")),
			most:  2,
			message: "Waiting because there are already too many remediations in progress " +
				"(spec.remediation.maxInFlight is 21%)",
		},
		"neither": {
			limit: ptr.To(intstr.FromString("few")),
			message: "spec.remediation.maxInFlight of MachineDeployment web is few: write a number, or a percentage " +
				"such as 20%",
		},
		"what blocks": {blocked: "the control plane is upgrading", message: "the control plane is upgrading"},
	} {
		deployment.Spec.Remediation.MaxInFlight = c.limit
		most, _, message := (&snapshot{set: set, deployment: deployment}).remediable(c.blocked)
		if most != c.most || message != c.message {
			t.Errorf("%s: got %d machines, %q, want %d, %q", name, most, message, c.most, c.message)
		}
	}
}
