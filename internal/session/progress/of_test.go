package progress_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TestProgressOfAnUpdate tests an update in which a Deployment waits, a ConfigMap is tried again, another one has
// failed, and a delete is pending.
func TestProgressOfAnUpdate(t *testing.T) {
	named := func(kind, name string) kinds.ID { return kinds.ID{Kind: kind, Namespace: "shop", Name: name} }
	web, settings, broken, old := named("Deployment", "web"), named("ConfigMap", "settings"),
		named("ConfigMap", "Broken"), named("Secret", "old")
	plan := progress.Intent{Title: "update of release shop", Began: began, InOrder: true}
	timeAt := func(after time.Duration) time.Time { return began.Add(after) }
	retried := apply.Wait{
		ID:      settings,
		File:    "settings.yaml",
		Node:    "level 9, db",
		For:     "no",
		Since:   timeAt(time.Second),
		IsRetry: true,
	}
	waiting := apply.Wait{
		ID:    web,
		File:  "web.yaml",
		Node:  "level 30, web",
		For:   "0 of 1 replicas are available",
		Since: timeAt(2 * time.Second),
	}
	state := &apply.RunState{
		Now: timeAt(5 * time.Second),
		Components: []apply.ComponentState{{Name: "level 9, db", Began: timeAt(time.Second), IsRunning: true},
			{Name: "level 9, old", Began: timeAt(time.Second), IsDone: true}},
		Nodes: []apply.RunNodeState{
			{Name: "level 9, db", Steps: []apply.RunStepState{
				{Wait: retried, Phase: apply.InRetry, Action: object.NotDone},
				{
					Wait: apply.Wait{
						ID:     broken,
						File:   "broken.yaml",
						Node:   "level 9, db",
						Reason: "Invalid",
						For:    "no",
						Since:  timeAt(3 * time.Second),
					},
					Phase:  apply.HasFailed,
					Action: object.Failed,
				},
			}},
			{
				Name: "level 9, old",
				Steps: []apply.RunStepState{{
					Wait:   apply.Wait{ID: old, File: "old.yaml", Node: "level 9, old"},
					Phase:  apply.Done,
					Action: object.Pending,
					Result: "terminating for 1s",
				}},
			},
			{
				Name:  "level 30, web",
				Steps: []apply.RunStepState{{Wait: waiting, Phase: apply.InWait, Action: object.Created}},
			},
		},
	}
	want := progress.Progress{
		Title: "update of release shop", Began: began, Now: timeAt(5 * time.Second),
		StateCounts: progress.StateCounts{Total: 4, Done: 1, Waiting: 1, Failed: 1},
		Levels: []progress.Level{
			{Name: "9", StateCounts: progress.StateCounts{Total: 3, Done: 1, Failed: 1},
				Components: []progress.Component{
					{
						Name:        "db",
						Node:        "level 9, db",
						IsRunning:   true,
						Began:       timeAt(time.Second),
						StateCounts: progress.StateCounts{Total: 2, Failed: 1},
					},
					{
						Name:        "old",
						Node:        "level 9, old",
						IsOver:      true,
						Began:       timeAt(time.Second),
						StateCounts: progress.StateCounts{Total: 1, Done: 1},
					},
				}},
			{Name: "30", StateCounts: progress.StateCounts{Total: 1, Waiting: 1}, Components: []progress.Component{
				{Name: "web", Node: "level 30, web", StateCounts: progress.StateCounts{Total: 1, Waiting: 1}},
			}},
		},
		Waits: []apply.Wait{retried, waiting},
		Failures: []apply.Event{{
			Time:    timeAt(3 * time.Second),
			Type:    apply.Failing,
			Object:  &broken,
			File:    "broken.yaml",
			Node:    "level 9, db",
			Reason:  "Invalid",
			Message: "no",
		}},
		Deletes: []progress.Deleting{{Object: old, Message: "terminating for 1s"}},
	}
	model := progress.New(plan)
	model.State(state)
	model.At(timeAt(5 * time.Second))
	if diff := cmp.Diff(want, model.Progress()); diff != "" {
		t.Error(diff)
	}
	model.Delete(old, "")
	if got := model.Progress(); len(got.Deletes) > 0 || got.Recent[len(got.Recent)-1].Action != object.Deleted {
		t.Errorf("after the object was deleted: %v", got.Deletes)
	}
}

// TestProgressBeforeTheFirstState has all manifests, of which none is done.
func TestProgressBeforeTheFirstState(t *testing.T) {
	plan := progress.Intent{Began: began,
		Planned: &apply.RunState{Nodes: []apply.RunNodeState{{Steps: []apply.RunStepState{
			{
				Wait:   apply.Wait{ID: web, File: "web.yaml", Node: "level 10, web"},
				Phase:  apply.Blocked,
				Action: object.NotDone,
			},
		}}}}}
	if got := progress.Of(plan, nil); got.Total != 1 || got.StateCounts.Left() != 1 || len(got.Levels) != 1 {
		t.Errorf("%+v", got)
	}
}
