package progress_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/pkg/apply"
)

func ofRecord(run *record.Run) progress.Progress {
	return progress.Of(progress.Intent{}, apply.StateOf(run))
}

// TestProgressOfARecord computes the progress of an update in which a Deployment waits and a ConfigMap has failed,
// while more objects are to come than the record has room for.
func TestProgressOfARecord(t *testing.T) {
	named := func(kind, name string) kinds.ID { return kinds.ID{Kind: kind, Namespace: "shop", Name: name} }
	web, broken, last := named("Deployment", "web"), named("ConfigMap", "broken"), named("Secret", "last")
	run := &record.Run{
		ReportedAt: metav1.NewTime(began), Total: 10, More: 2,
		Levels: []record.RunLevel{{Name: "10", Total: 4}, {Name: "20", Total: 3, Left: 2},
			{Name: "30", Total: 3, Left: 3}},
		Nodes: []record.RunNode{
			{Name: "level 20, web", State: "running", Steps: []record.RunStep{
				{
					ID:    web,
					File:  "0000_20_web_10.yaml",
					State: string(apply.InWait),
					For:   "0 of 1 replicas are available",
					Since: &metav1.Time{Time: began.Add(-time.Minute)},
				},
				{ID: broken, File: "0000_20_web_20.yaml", State: string(apply.HasFailed), For: "no", Reason: "Invalid"},
			}},
			{
				Name:  "level 30, last",
				State: "blocked",
				Steps: []record.RunStep{{ID: last, File: "0000_30_last_10.yaml", State: string(apply.Blocked)}},
			},
		},
	}
	want := progress.Progress{
		Now: began, StateCounts: progress.StateCounts{Total: 10, Done: 5, Waiting: 1, Failed: 1},
		Levels: []progress.Level{
			{Name: "10", Components: []progress.Component{}, StateCounts: progress.StateCounts{Total: 4, Done: 4}},
			{Name: "20", StateCounts: progress.StateCounts{Total: 3, Done: 1, Waiting: 1, Failed: 1},
				Components: []progress.Component{
					{
						Name:        "web",
						Node:        "level 20, web",
						IsRunning:   true,
						StateCounts: progress.StateCounts{Total: 2, Waiting: 1, Failed: 1},
					},
				}},
			{Name: "30", StateCounts: progress.StateCounts{Total: 3}, Components: []progress.Component{
				{Name: "last", Node: "level 30, last", StateCounts: progress.StateCounts{Total: 1}},
			}},
		},
		Waits: []apply.Wait{{
			ID:    web,
			File:  "0000_20_web_10.yaml",
			Node:  "level 20, web",
			For:   "0 of 1 replicas are available",
			Since: began.Add(-time.Minute),
		}},
		Failures: []apply.Event{{
			Type:    apply.Failing,
			Object:  &broken,
			File:    "0000_20_web_20.yaml",
			Node:    "level 20, web",
			Reason:  "Invalid",
			Message: "no",
		}},
	}
	if diff := cmp.Diff(want, ofRecord(run)); diff != "" {
		t.Error(diff)
	}
	if !want.Levels[0].IsDone() || ofRecord(run).Levels[1].IsDone() {
		t.Error("a level without remaining manifests is not done")
	}
	run.Ended = true
	if got := ofRecord(run).Levels[1].Components[0]; got.IsRunning {
		t.Error("a component runs, and its apply has ended")
	}
}

// TestProgressOfARecordWithoutLevels is that of a record which an older program has written.
func TestProgressOfARecordWithoutLevels(t *testing.T) {
	run := &record.Run{Nodes: []record.RunNode{{Steps: []record.RunStep{{State: string(apply.Blocked)}}}}, More: 1}
	if got := ofRecord(run); got.StateCounts != (progress.StateCounts{Total: 2}) || len(got.Levels) > 0 {
		t.Errorf("%+v", got)
	}
}
