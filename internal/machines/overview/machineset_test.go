package overview

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1 "github.com/openshift/api/machine/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/openshift/controlplane"
)

// TestUnreadyNodeHoldsMachineOfSet checks a running machine of an active set whose kubelet has stopped.
func TestUnreadyNodeHoldsMachineOfSet(t *testing.T) {
	f := deletedMachine(t, "", "")
	f.machine.DeletionTimestamp, f.machine.Status.Phase = nil, new("Running")
	f.node().Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown",
		LastTransitionTime: metav1.NewTime(now.Add(-30 * time.Minute)),
	}}
	f.set = &setFacts{set: &machinev1.ControlPlaneMachineSet{}, snapshot: &controlplane.Snapshot{
		Machines: []controlplane.Machine{{Name: "web-4"}, {Name: "web-5", IsReady: true}},
	}}
	m := f.overview()
	if len(m.Holds) != 1 || m.HeldBy() != "its node reports Ready=Unknown (NodeStatusUnknown)" || m.IsDone() {
		t.Fatalf("held by %q with %d holds, IsDone is %v", m.HeldBy(), len(m.Holds), m.IsDone())
	}
	want := diagnosis.Message{
		Text: "it is not ready: its node reports Ready=Unknown (NodeStatusUnknown), for 30m",
		Details: []string{
			"kubectl describe node node-4",
			"if the node does not come back, delete the machine; its ControlPlaneMachineSet creates another one then:",
			"kubectl delete machine.machine.openshift.io web-4 -n shop --wait=false",
		},
	}
	if diff := cmp.Diff(want, m.Holds[0].message(now)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
