package progress_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

var web = kinds.ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}

// TestHooksCountWithTheirObjects is the rollout of a Deployment with hooks: one object, whatever its hooks do.
func TestHooksCountWithTheirObjects(t *testing.T) {
	step := func(hook string, phase apply.StepPhase, action object.Action) apply.RunStepState {
		return apply.RunStepState{
			Wait:   apply.Wait{ID: web, Hook: hook, File: "web.yaml", Node: "level 10, web"},
			Phase:  phase,
			Action: action,
		}
	}
	toCome := func(hook string) apply.RunStepState { return step(hook, apply.Blocked, object.NotDone) }
	ran := func(hook string) apply.RunStepState { return step(hook, apply.Done, object.Ran) }
	type counts = progress.StateCounts
	for name, c := range map[string]struct {
		steps    []apply.RunStepState
		want     counts
		waits    []string
		failures int
	}{
		"the pre hook runs": {[]apply.RunStepState{step("pre", apply.InWait, object.NotDone), toCome(""),
			toCome("post")}, counts{Total: 1}, []string{"pre hook of Deployment shop/web"}, 0},
		"the pre hook has run": {[]apply.RunStepState{ran("pre"), toCome(""), toCome("post")}, counts{Total: 1}, nil,
			0},
		"it is applied": {[]apply.RunStepState{ran("pre"), step("", apply.Done, object.Configured), toCome("post")},
			counts{
				Total: 1,
				Done:  1,
			}, nil, 0},
		"it is not ready": {[]apply.RunStepState{ran("pre"), step("", apply.InWait, object.Configured), toCome("post")},
			counts{Total: 1, Waiting: 1}, []string{"Deployment shop/web"}, 0},
		"the post hook runs": {[]apply.RunStepState{ran("pre"), step("", apply.Done, object.Configured),
			step("post", apply.InWait, object.NotDone)}, counts{
			Total:   1,
			Waiting: 1,
		}, []string{"post hook of Deployment shop/web"}, 0},
		"the post hook has failed": {[]apply.RunStepState{ran("pre"), step("", apply.Done, object.Configured),
			step("post", apply.HasFailed, object.Failed)}, counts{
			Total:  1,
			Failed: 1,
		}, nil, 1},
		"all is done": {[]apply.RunStepState{ran("pre"), step("", apply.Done, object.Configured), ran("post")}, counts{
			Total: 1,
			Done:  1,
		}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := progress.Of(progress.Intent{}, &apply.RunState{Nodes: []apply.RunNodeState{{Steps: c.steps}}})
			var waits []string
			for _, wait := range got.Waits {
				waits = append(waits, wait.Name())
			}
			if diff := cmp.Diff(c.want, got.StateCounts) + cmp.Diff(c.waits, waits); diff != "" ||
				len(got.Failures) != c.failures {
				t.Errorf("%d failures, %s", len(got.Failures), diff)
			}
		})
	}
}

// TestHooksOfARecord computes the progress of a Deployment with hooks from a record.
func TestHooksOfARecord(t *testing.T) {
	step := func(hook string, state apply.StepPhase) record.RunStep {
		return record.RunStep{
			ID:    web,
			Hook:  hook,
			File:  "0000_10_web_10.yaml",
			State: string(state),
			For:   "pod web-hook runs",
		}
	}
	for name, c := range map[string]struct {
		steps  []record.RunStep
		counts progress.StateCounts
		waits  string
		failed string
	}{
		"the pre hook waits": {[]record.RunStep{step("pre", apply.InWait), step("", apply.Blocked),
			step("post", apply.Blocked)}, progress.StateCounts{
			Total: 2,
			Done:  1,
		}, "pre hook of Deployment shop/web", ""},
		"the post hook waits": {[]record.RunStep{step("post", apply.InWait)},
			progress.StateCounts{Total: 2, Done: 1, Waiting: 1}, "post hook of Deployment shop/web", ""},
		"the post hook has failed": {[]record.RunStep{step("post", apply.HasFailed)},
			progress.StateCounts{Total: 2, Done: 1, Failed: 1}, "", "post hook of Deployment shop/web"},
		"the Deployment is waiting": {[]record.RunStep{step("", apply.InWait), step("post", apply.Blocked)},
			progress.StateCounts{Total: 2, Done: 1, Waiting: 1}, "Deployment shop/web", ""},
	} {
		t.Run(name, func(t *testing.T) {
			run := &record.Run{
				ReportedAt: metav1.NewTime(began), Total: 2, Levels: []record.RunLevel{{Name: "10", Total: 2, Left: 1}},
				Nodes: []record.RunNode{{Name: "level 10, web", State: "running", Steps: c.steps}},
			}
			got := ofRecord(run)
			var waits, failed string
			for _, wait := range got.Waits {
				waits += wait.Name()
			}
			for _, failure := range got.Failures {
				failed += failure.Name()
			}
			if diff := cmp.Diff(c.counts, got.StateCounts); diff != "" || waits != c.waits || failed != c.failed {
				t.Errorf("got waits %q, failed hooks %q, %s", waits, failed, diff)
			}
			if level := got.Levels[0]; level.IsDone() || level.Components[0].Total != 1 {
				t.Errorf("its level is %+v", level)
			}
		})
	}
}
