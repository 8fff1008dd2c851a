package capi

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// TestReadySummaryOfADeletion checks that the condition Ready reports the stage of a deletion, and the probable cause
// if it takes long.
func TestReadySummaryOfADeletion(t *testing.T) {
	const draining = "Drain not completed yet (started at 2026-01-01T00:00:00Z):\n"
	begin := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		reason, message string
		deletion, drain time.Duration // how long they have taken
		want            string
	}{
		"a short one": {"DrainingNode", draining + "* Pod a/b: failed to evict Pod, no", 15 * time.Minute,
			14 * time.Minute,
			"Machine deletion in progress, stage: DrainingNode"},
		"a long one that does not drain": {"WaitingForPreDrainHook",
			"Waiting for pre-drain hooks to succeed (hooks: a)", 16 * time.Minute, 0,
			"Machine deletion in progress since more than 15m, stage: WaitingForPreDrainHook"},
		"a long one whose drain is short": {"DrainingNode", draining + "* Pod a/b: failed to evict Pod, no",
			16 * time.Minute, 5 * time.Minute,
			"Machine deletion in progress since more than 15m, stage: DrainingNode"},
		"all causes": {"DrainingNode",
			draining + "* Pod a/a: deletionTimestamp set, but still not removed from the Node\n" +
				"* Pod a/b: cannot evict pod as it would violate the pod's disruption budget. The disruption budget " +
				"b needs 1 healthy pods and has 1 currently\n" +
				"* Pod a/c: failed to evict Pod, no\n* Pod a/d: waiting for completion", time.Hour, time.Hour,
			"Machine deletion in progress since more than 15m, stage: DrainingNode, delay likely due to " +
				"PodDisruptionBudgets, " +
				"Pods not terminating, Pod eviction errors, Pods not completed yet"},
		"unknown cause": {"DrainingNode", "Error draining Node, please check controller logs for errors",
			time.Hour, time.Hour,
			"Machine deletion in progress since more than 15m, stage: DrainingNode"},
	} {
		f := &machineState{
			time: begin.Add(c.deletion),
			m:    &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: begin}}},
		}
		f.status.Deletion = &clusterv1.MachineDeletionStatus{NodeDrainStartTime: metav1.NewTime(f.time.Add(-c.drain))}
		got := f.stageMessage(metav1.Condition{Reason: c.reason, Message: c.message})
		if got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}
