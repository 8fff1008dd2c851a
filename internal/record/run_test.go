package record_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
)

// running returns the state of an apply that waits for one object.
func running(unchanged metav1.Time, since time.Time, wait string) *record.Run {
	moment := metav1.NewTime(since)
	return &record.Run{Version: "1", ReportedAt: unchanged, Nodes: []record.RunNode{
		{Name: "level 10, db", State: "running", Steps: []record.RunStep{{
			ID: kinds.ID{Kind: "ConfigMap", Namespace: "shop", Name: "db"}, State: "waiting", For: wait, Since: &moment,
		}}},
		{Name: "level 20, web", State: "blocked", After: []int{0}},
	}}
}

func TestUnchangedRunsAreTheSame(t *testing.T) {
	before := running(at(1), at(0).Time, "1 of 3")
	tests := map[string]struct {
		now  *record.Run
		want bool
	}{
		"reported later":              {running(at(2), at(0).Time, "1 of 3"), true},
		"an inexact clock":            {running(at(2), at(0).Add(time.Second), "1 of 3"), true},
		"it waits for something else": {running(at(2), at(0).Time, "2 of 3"), false},
		"it has begun again":          {running(at(2), at(1).Time, "1 of 3"), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.now.Same(before); got != test.want {
				t.Errorf("the runs are equal: %t, want %t", got, test.want)
			}
		})
	}
	if before.Same(nil) {
		t.Error("a run equals a missing run")
	}
}

// What waits at one moment may be a hook of an object, and at the next the object: each has a time of its own.
func TestTimesOfHooksAreTheirOwn(t *testing.T) {
	withHook := func(unchanged metav1.Time, hookSince, since time.Time) *record.Run {
		run := running(unchanged, since, "1 of 3")
		moment, hook := metav1.NewTime(hookSince), run.Nodes[0].Steps[0]
		hook.Hook, hook.Since = "post", &moment
		run.Nodes[0].Steps = append(run.Nodes[0].Steps, hook)
		return run
	}
	before := withHook(at(1), at(0).Add(10*time.Second), at(0).Time)
	if now := withHook(at(2), at(0).Add(11*time.Second), at(0).Time); !now.Same(before) {
		t.Error("the time of the hook was held against that of the object")
	}
}

func TestRunIsDroppedIfItDoesNotFit(t *testing.T) {
	s := record.NewStore(cluster.Client(t), cluster.Namespace(t), "web")
	r := full()
	r.Run = running(at(1), at(0).Time, "1 of 3")
	for i := range 8000 {
		r.Run.Nodes[0].Steps = append(r.Run.Nodes[0].Steps, record.RunStep{
			ID:    kinds.NewID(kinds.ConfigMap, "shop", fmt.Sprintf("config-map-with-a-long-name-%d", i)),
			State: "blocked",
		})
	}
	save(t, s, r)
	got := load(t, s)
	if got.Run != nil {
		t.Fatalf("%d steps have fitted", len(got.Run.Nodes[0].Steps))
	}
	if len(got.History) != len(full().History) || len(got.History[0].Tombstones) != len(full().History[0].Tombstones) {
		t.Errorf("there was room for the rest, and the history is %v", got.History)
	}
	r.Run.Nodes[0].Steps, r.Fingerprints = r.Run.Nodes[0].Steps[:1000], make([]byte, 1<<20-100_000)
	save(t, s, r)
	if got := load(t, s); got.Run != nil || len(got.Fingerprints) != len(r.Fingerprints) {
		t.Errorf("fingerprints have %d bytes, want %d", len(got.Fingerprints), len(r.Fingerprints))
	}
	if r.Run == nil {
		t.Error("saving took the run from the caller's record")
	}
}
