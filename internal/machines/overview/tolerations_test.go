package overview

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/drain"
)

// exists is the toleration of the pods of these tests.
const exists = "{operator: Exists}"

// toEvict is a pod that tolerates the cordon.
func toEvict(name string, isAfterCordon bool) drain.HeldPod {
	return drain.HeldPod{
		Namespace: "shop", Name: name, Hold: drain.ToBeEvicted, Message: "pod shop/" + name + " is not evicted yet",
		Toleration: exists, IsAfterCordon: isAfterCordon,
	}
}

// TestTolerantPodsDoNotHoldOpenshiftMachines checks pods that tolerate the cordon: only those that were scheduled
// before it hold a machine of machine.openshift.io. The others are named, too.
func TestTolerantPodsDoNotHoldOpenshiftMachines(t *testing.T) {
	f := deletedMachine(t, "", "")
	f.pods = &nodePods{holding: []drain.HeldPod{toEvict("agent-b", true)}}
	f.pods.separateStaying()
	if got := f.drainHolds(); got[0].Message != "record that node node-4 is drained" {
		t.Errorf("got the hold %q, want the record of the drain", got[0].Message)
	}
	messages := f.explain(now).Messages
	want := diagnosis.Message{Text: "pod shop/agent-b was scheduled after its node was cordoned, and tolerates that " +
		"(toleration " + exists + "): it is deleted with the node",
		Details: []string{"no action is needed; to keep such pods off nodes that are drained, remove the toleration from " +
			"their workload"}}
	if diff := cmp.Diff(want, messages[len(messages)-1]); diff != "" {
		t.Errorf("last message (-want +got):\n%s", diff)
	}

	f = deletedMachine(t, "", "")
	f.pods = &nodePods{holding: []drain.HeldPod{toEvict("agent-a", false), toEvict("agent-b", true)}}
	f.pods.separateStaying()
	if m := f.overview(); m.HeldBy() != "pod shop/agent-a is not evicted yet" {
		t.Errorf("held by %q, want the pod that was scheduled before the cordon", m.HeldBy())
	}
	const remedy = "it is evicted once; the pod that replaces it also tolerates the cordon (toleration " + exists +
		"), and is deleted with the node"
	if got := f.explain(now).Messages[1].Details[0]; got != remedy {
		t.Errorf("got remedy %q, want %q", got, remedy)
	}
}

// TestTolerantPodsHoldClusterAPIMachines checks pods that tolerate the cordon: Cluster API evicts each pod that
// replaces them, so the toleration holds the drain.
func TestTolerantPodsHoldClusterAPIMachines(t *testing.T) {
	for _, hold := range []drain.PodHold{drain.ToBeEvicted, drain.Ending} {
		f := deletedClusterAPIMachine(t, "DrainingNode", "")
		pod := toEvict("agent-b", true)
		pod.Hold = hold
		f.pods = &nodePods{holding: []drain.HeldPod{pod}}
		got := f.explain(now).Messages[1]
		const text = "pod shop/agent-b is not evicted yet, and tolerates the cordon (toleration " + exists + ")"
		if !strings.Contains(got.Text, text) {
			t.Errorf("%s: got message %q, want %q", hold, got.Text, text)
		}
		want := []string{
			"after each eviction, another pod may be scheduled to the node; skip such pods by a MachineDrainRule " +
				"with the " +
				"behavior Skip, or remove the toleration from their workload",
			"or continue without draining:",
			"kubectl annotate machine.cluster.x-k8s.io web-4 -n shop machine.cluster.x-k8s.io/exclude-node-draining=",
		}
		if !slices.Equal(got.Details, want) {
			t.Errorf("%s: got remedy %q, want %q", hold, got.Details, want)
		}
	}
	f := deletedClusterAPIMachine(t, "DrainingNode", "")
	pod := toEvict("agent-b", true)
	pod.Hold, pod.Budgets = drain.Budget, []string{"keep"}
	f.pods = &nodePods{holding: []drain.HeldPod{pod}}
	if got := f.explain(now).Messages[1].Details[0]; !strings.Contains(got, "relax the budget") {
		t.Errorf("got remedy %q, want the remedy of a budget", got)
	}
}
