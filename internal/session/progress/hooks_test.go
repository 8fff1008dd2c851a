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
	"github.com/runlevel/runlevel/pkg/apply/object"
)

var web = kinds.ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}

// TestHooksCountWithTheirObjects folds the rollout of a Deployment with hooks: one object, whatever its hooks do.
func TestHooksCountWithTheirObjects(t *testing.T) {
	fold := progress.New(progress.Intent{Began: began, InOrder: true, Items: []progress.Item{{Level: "10", Component: "web", File: "web.yaml", ID: web}}})
	about := func(kind apply.EventType, hook string, action object.Action, message string) apply.Event {
		return apply.Event{Time: began.Add(time.Second), Type: kind, Object: &web, Hook: hook, File: "web.yaml", Node: "level 10, web", Action: action, Message: message}
	}
	type counts = progress.StateCounts
	for _, step := range []struct {
		event    apply.Event
		want     counts
		waits    []string
		failures int
		recent   int
	}{
		{about(apply.Waiting, "pre", "", "pod web-pre runs"), counts{Total: 1}, []string{"pre hook of Deployment shop/web"}, 0, 0},
		{about(apply.Logged, "pre", "", "migrating"), counts{Total: 1}, []string{"pre hook of Deployment shop/web"}, 0, 0},
		{about(apply.Applied, "pre", object.Ran, ""), counts{Total: 1}, nil, 0, 1},
		{about(apply.Applied, "mid", object.NotNeeded, ""), counts{Total: 1}, nil, 0, 1},
		{about(apply.Applied, "", object.Configured, ""), counts{Total: 1, Done: 1}, nil, 0, 2},
		{about(apply.Waiting, "", "", "0 of 1 replicas are available"), counts{Total: 1, Waiting: 1}, []string{"Deployment shop/web"}, 0, 2},
		{about(apply.Waiting, "post", "", "pod web-post runs"), counts{Total: 1, Waiting: 1}, []string{"Deployment shop/web", "post hook of Deployment shop/web"}, 0, 2},
		{about(apply.BeReady, "", "", "after 5s"), counts{Total: 1, Waiting: 1}, []string{"post hook of Deployment shop/web"}, 0, 3},
		{about(apply.Failing, "post", object.Failed, "exit code 1"), counts{Total: 1, Failed: 1}, nil, 1, 3},
		{about(apply.Applied, "post", object.Ran, ""), counts{Total: 1, Done: 1}, nil, 0, 4},
	} {
		fold.Event(step.event)
		got := fold.Progress()
		var waits []string
		for _, wait := range got.Waits {
			waits = append(waits, wait.Name())
		}
		if diff := cmp.Diff(step.want, got.StateCounts) + cmp.Diff(step.waits, waits); diff != "" || len(got.Failures) != step.failures || len(got.Recent) != step.recent {
			t.Errorf("after %s %s %s: %d failures, %d events, %s", step.event.Type, step.event.Action, step.event.Name(), len(got.Failures), len(got.Recent), diff)
		}
	}
}

// TestHooksThatTheRecordTells is the progress of a Deployment with hooks, as the record has it.
func TestHooksThatTheRecordTells(t *testing.T) {
	step := func(hook string, state record.StepState) record.RunStep {
		return record.RunStep{ID: web, Hook: hook, File: "0000_10_web_10.yaml", State: state, For: "pod web-hook runs"}
	}
	for name, c := range map[string]struct {
		steps  []record.RunStep
		counts progress.StateCounts
		waits  string
		failed string
	}{
		"the pre hook waits":        {[]record.RunStep{step("pre", record.Waiting), step("", record.Blocked), step("post", record.Blocked)}, progress.StateCounts{Total: 2, Done: 1}, "pre hook of Deployment shop/web", ""},
		"the post hook waits":       {[]record.RunStep{step("post", record.Waiting)}, progress.StateCounts{Total: 2, Done: 1, Waiting: 1}, "post hook of Deployment shop/web", ""},
		"the post hook has failed":  {[]record.RunStep{step("post", record.Failed)}, progress.StateCounts{Total: 2, Done: 1, Failed: 1}, "", "post hook of Deployment shop/web"},
		"the Deployment is waiting": {[]record.RunStep{step("", record.Waiting), step("post", record.Blocked)}, progress.StateCounts{Total: 2, Done: 1, Waiting: 1}, "Deployment shop/web", ""},
	} {
		t.Run(name, func(t *testing.T) {
			run := &record.Run{
				ReportedAt: metav1.NewTime(began), Total: 2, Levels: []record.RunLevel{{Name: "10", Total: 2, Left: 1}},
				Nodes: []record.RunNode{{Name: "level 10, web", State: "running", Steps: c.steps}},
			}
			got := progress.FromRun(run)
			var waits, failed string
			for _, wait := range got.Waits {
				waits += wait.Name()
			}
			for _, failure := range got.Failures {
				failed += failure.Name()
			}
			if diff := cmp.Diff(c.counts, got.StateCounts); diff != "" || waits != c.waits || failed != c.failed {
				t.Errorf("it waits for %q, %q has failed, %s", waits, failed, diff)
			}
			if level := got.Levels[0]; level.IsDone() || level.Components[0].Total != 1 {
				t.Errorf("its level is %+v", level)
			}
		})
	}
}
