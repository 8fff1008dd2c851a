package overview

import (
	"slices"
	"strings"
	"testing"

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

// TestWhatCameAfterTheCordonIsLeft: such a pod does not hold a machine of machine.openshift.io, and is named all the
// same.
func TestWhatCameAfterTheCordonIsLeft(t *testing.T) {
	f := factsOf(t, "", "")
	f.pods = &nodePods{left: []drain.HeldPod{toEvict("agent-b", true)}}
	f.pods.setStaying()
	if got := f.drainHolds(); got[0].Message != "record that node node-4 is drained" {
		t.Errorf("the machine waits for %+v", got)
	}
	said := f.explain(nil, now)
	want := diagnosis.Message{Text: "pod shop/agent-b was scheduled after its node was cordoned, and tolerates that " +
		"(toleration " + exists + "): it is left to end with the node",
		Details: []string{"nothing is to be done; to keep such pods off nodes that are drained, remove the " +
			"toleration from " +
			"their workload"}}
	if got := said.Statements[len(said.Statements)-1]; got.Text != want.Text ||
		!slices.Equal(got.Details, want.Details) {
		t.Errorf("said %q, want %q", got, want)
	}

	f = factsOf(t, "", "")
	f.pods = &nodePods{left: []drain.HeldPod{toEvict("agent-a", false), toEvict("agent-b", true)}}
	f.pods.setStaying()
	if m := judge(f); m.HeldBy() != "pod shop/agent-a is not evicted yet" {
		t.Errorf("held by %q", m.HeldBy())
	}
	held := f.explain(nil, now).Statements[1]
	if want := "it is evicted, once; what takes its place tolerates the cordon as well (toleration " + exists +
		"), and ends with the node"; held.Details[0] != want {
		t.Errorf("said %q, want %q", held.Details, want)
	}
}

// TestAPodThatComesBackHoldsAMachineOfClusterAPI: Cluster API evicts it again each time, so the toleration is what
// holds the drain.
func TestAPodThatComesBackHoldsAMachineOfClusterAPI(t *testing.T) {
	for _, hold := range []drain.PodHold{drain.ToBeEvicted, drain.Ending} {
		f := clusterFacts(t, "DrainingNode", "")
		pod := toEvict("agent-b", true)
		pod.Hold = hold
		f.pods = &nodePods{left: []drain.HeldPod{pod}}
		said := f.explain(nil, now).Statements[1]
		if !strings.Contains(said.Text,
			"pod shop/agent-b is not evicted yet, and tolerates the cordon (toleration "+exists+")") {
			t.Errorf("%s: said %q", hold, said.Text)
		}
		want := []string{
			"each time that it is evicted, another pod may be scheduled to the node; let the drain skip such pods by " +
				"a MachineDrainRule with the " +
				"behavior Skip, or remove the toleration from their workload",
			"or go on without draining:",
			"kubectl annotate machine.cluster.x-k8s.io web-4 -n shop machine.cluster.x-k8s.io/exclude-node-draining=",
		}
		if !slices.Equal(said.Details, want) {
			t.Errorf("%s: said %q, want %q", hold, said.Details, want)
		}
	}
	f := clusterFacts(t, "DrainingNode", "")
	pod := toEvict("agent-b", true)
	pod.Hold, pod.Budgets = drain.Budget, []string{"keep"}
	f.pods = &nodePods{left: []drain.HeldPod{pod}}
	if said := f.explain(nil, now).Statements[1]; !strings.Contains(said.Details[0], "loosen the budget") {
		t.Errorf("of a pod that its budget keeps: said %q", said.Details)
	}
}
