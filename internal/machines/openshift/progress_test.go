package openshift

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

func TestTheProgressOfADrain(t *testing.T) {
	t.Parallel()
	var p drainProgress
	for _, step := range []struct {
		remaining []string
		problem   string
		want      int
	}{
		{remaining: []string{"a", "b"}, want: 1},
		{remaining: []string{"a", "b"}, want: 2},
		{remaining: []string{"b"}, want: 1},
		{remaining: []string{"b"}, want: 2},
		{problem: "no connection", want: 3}, // not progress
		{remaining: []string{"b"}, want: 4},
	} {
		if p = p.afterEviction(step.remaining, false, step.problem); p.looks != step.want {
			t.Errorf("after %+v: got %+v, want %d looks", step, p, step.want)
		}
	}
}

func TestWhatADrainWaitsFor(t *testing.T) {
	t.Parallel()
	waits := func(reason, message string, after time.Duration) *deletion.Wait {
		return &deletion.Wait{Stage: deletion.Draining, Reason: reason, Message: message, After: after}
	}
	for name, c := range map[string]struct {
		given drainProgress
		want  *deletion.Wait
	}{
		"an empty node is drained": {drainProgress{}.afterEviction(nil, false, ""), nil},
		"a problem does not count as an empty node": {drainProgress{}.afterEviction(nil, false,
			"list pods: no connection"),
			waits("DrainError", "list pods: no connection", 5*time.Second)},
		"a problem is reported instead of pods": {
			drainProgress{}.afterEviction([]string{"pod a"}, false, "list pods: no connection"),
			waits("DrainError", "list pods: no connection", 5*time.Second),
		},
		"a full node": {
			drainProgress{}.afterEviction([]string{"a", "b", "c", "d", "e", "f", "g"}, true, ""),
			waits("DrainError", "a; b; c; d; e; and 2 more", 5*time.Second),
		},
	} {
		if diff := cmp.Diff(c.want, c.given.wait()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestDrainRetries has pods that stay: at first they are terminating. A refused eviction is retried after a
// longer time from the start.
func TestDrainRetries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		isStuck bool
		after   []time.Duration
		errorAt int
	}{
		{after: []time.Duration{1, 2, 4, 8, 10, 10, 10}, errorAt: 5},
		{isStuck: true, after: []time.Duration{5, 10, 20, 40, 60, 60}},
	} {
		var p drainProgress
		for i, after := range c.after {
			p = p.afterEviction([]string{"pod a"}, c.isStuck, "")
			wait, reason := p.wait(), "PodsEnd"
			if i >= c.errorAt {
				reason = "DrainError"
			}
			if wait.After != after*time.Second || wait.Reason != reason {
				t.Errorf("stuck %v, try %d: %+v", c.isStuck, i+1, wait)
			}
		}
	}
}
