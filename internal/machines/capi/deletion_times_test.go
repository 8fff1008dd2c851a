package capi

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

func TestTheTimesOfADeletion(t *testing.T) {
	t.Parallel()
	m := &clusterv1.Machine{}
	if drain, node := timeoutOf(m, deletion.Draining), timeoutOf(m, deletion.RemovingNode); drain != 0 ||
		node != 10*time.Second {
		t.Errorf("by default, a drain may take %s and the deletion of a Node %s", drain, node)
	}
	m.Spec.Deletion = clusterv1.MachineDeletionSpec{
		NodeDrainTimeoutSeconds: ptr.To(int32(60)), NodeVolumeDetachTimeoutSeconds: ptr.To(int32(30)),
		NodeDeletionTimeoutSeconds: ptr.To(int32(0)),
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		stage deletion.Stage
		start time.Time
		after time.Duration
		want  bool
	}{
		{deletion.Draining, start, 59 * time.Second, false},
		{deletion.Draining, start, 60 * time.Second, true},
		{deletion.Draining, time.Time{}, time.Hour, false}, // it has not begun
		{deletion.DetachingVolumes, start, 30 * time.Second, true},
		{deletion.RemovingNode, start, 1000 * time.Hour, false},    // zero means for ever
		{deletion.BeforeTerminate, start, 1000 * time.Hour, false}, // no hook is timed out
	} {
		if got := hasTimedOut(c.start, timeoutOf(m, c.stage), start.Add(c.after)); got != c.want {
			t.Errorf("%s after %s: timed out is %v", c.stage, c.after, got)
		}
	}
}
