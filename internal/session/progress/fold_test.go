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

// TestProgressOfAnUpdate folds an update in which a Deployment waits, a ConfigMap is tried again, another one
// has failed, and a delete is pending.
func TestProgressOfAnUpdate(t *testing.T) {
	named := func(kind, name string) kinds.ID { return kinds.ID{Kind: kind, Namespace: "shop", Name: name} }
	web, settings, broken, old := named("Deployment", "web"), named("ConfigMap", "settings"), named("ConfigMap", "Broken"), named("Secret", "old")
	fold := progress.New(progress.Intent{Title: "update of release shop", Began: began, InOrder: true, Items: []progress.Item{
		{Level: "30", Component: "web", File: "web.yaml", ID: web},
		{Level: "9", Component: "db", File: "settings.yaml", ID: settings},
		{Level: "9", Component: "db", File: "broken.yaml", ID: broken},
		{Level: "9", Component: "old", File: "old.yaml", ID: old},
	}})
	at := func(after time.Duration) time.Time { return began.Add(after) }
	since := at(2 * time.Second)
	failed := apply.Event{Time: at(3 * time.Second), Type: apply.Failing, Action: object.Failed, Object: &broken, File: "broken.yaml", Node: "level 9, db", Reason: "Invalid", Message: "no"}
	for _, event := range []apply.Event{
		{Time: at(time.Second), Type: apply.Began, Node: "level 9, db"},
		{Time: at(time.Second), Type: apply.Retrying, Object: &settings, File: "settings.yaml", Node: "level 9, db", Message: "attempt 1 failed"},
		{Time: at(2 * time.Second), Type: apply.Applied, Action: object.Pending, Object: &old, File: "old.yaml", Node: "level 9, old", Message: "terminating for 1s"},
		{Time: at(2 * time.Second), Type: apply.Retrying, Object: &settings, File: "settings.yaml", Node: "level 9, db", Message: "attempt 2 failed"},
		failed,
		{Time: at(3 * time.Second), Type: apply.Applied, Action: object.Created, Object: &web, File: "web.yaml", Node: "level 30, web"},
		{Time: at(4 * time.Second), Type: apply.Waiting, Object: &web, File: "web.yaml", Node: "level 30, web", Message: "0 of 1 replicas are available", Since: &since},
	} {
		fold.Event(event)
	}
	fold.At(at(5 * time.Second))
	want := progress.Progress{
		Title: "update of release shop", Began: began, Now: at(5 * time.Second),
		StateCounts: progress.StateCounts{Total: 4, Done: 1, Waiting: 1, Failed: 1},
		Levels: []progress.Level{
			{Name: "9", StateCounts: progress.StateCounts{Total: 3, Done: 1, Failed: 1}, Components: []progress.Component{
				{Name: "db", Node: "level 9, db", IsRunning: true, Began: at(time.Second), StateCounts: progress.StateCounts{Total: 2, Failed: 1}},
				{Name: "old", Node: "level 9, old", StateCounts: progress.StateCounts{Total: 1, Done: 1}},
			}},
			{Name: "30", StateCounts: progress.StateCounts{Total: 1, Waiting: 1}, Components: []progress.Component{
				{Name: "web", Node: "level 30, web", StateCounts: progress.StateCounts{Total: 1, Waiting: 1}},
			}},
		},
		Waits: []progress.Waited{
			{Object: settings, File: "settings.yaml", Node: "level 9, db", For: "attempt 2 failed", Since: at(time.Second), Retrying: true},
			{Object: web, File: "web.yaml", Node: "level 30, web", For: "0 of 1 replicas are available", Since: since},
		},
		Failures: []apply.Event{failed},
		Deletes:  []progress.Deleting{{Object: old, Message: "terminating for 1s"}},
	}
	got := fold.Progress()
	got.Recent = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	fold.Event(apply.Event{Time: at(5 * time.Second), Type: apply.Retrying, Object: &settings, File: "settings.yaml", Message: "attempt 3 failed: no", Failure: "no"})
	if got := fold.Progress().Waits[0].For; got != "no" {
		t.Errorf("a retry is told as %q, which differs for each attempt", got)
	}
	fold.Delete(old, "")
	if got := fold.Progress(); len(got.Deletes) > 0 || got.Recent[len(got.Recent)-1].Action != object.Deleted {
		t.Errorf("after the object is gone: %v", got.Deletes)
	}
}
