package operator

import (
	"testing"
	"testing/fstest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestTheCountOfAnApplyDoesNotGoBack when an object that was applied turns out not to be ready. It begins anew with the
// next apply.
func TestTheCountOfAnApplyDoesNotGoBack(t *testing.T) {
	t.Parallel()
	c, err := cluster.Connect(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	release, _, err := payload.Load(t.Context(), fstest.MapFS{
		"0000_10_web_10.yaml": {Data: []byte(
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: shop}}`,
		)},
	}, payload.Options{Name: payload.DefaultName, Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	m := newStateMachine(c, Options{})
	m.session = &session.Session{}
	r := &currentRelease{machine: m, release: targetRelease{
		target: &target{}, payload: release, packed: &files.Packed{},
	}}
	m.current = r
	onEvent := r.applyOptions().Apply.OnEvent
	state := func(phase apply.StepPhase, action object.Action) *apply.RunState {
		wait := apply.Wait{
			ID:   release.Manifests[0].ID(),
			File: release.Manifests[0].Path,
			For:  "none of its pods is ready",
		}
		return &apply.RunState{Nodes: []apply.RunNodeState{
			{Steps: []apply.RunStepState{{Wait: wait, Phase: phase, Action: action}}},
		}}
	}
	for i, step := range []struct {
		begin bool
		state *apply.RunState
		done  int
	}{
		{true, state(apply.Done, object.Created), 1},
		{false, state(apply.InWait, object.Created), 1},
		{true, state(apply.InWait, object.Created), 0},
	} {
		if step.begin {
			if err := r.OnBegin(&session.Outcome{Mode: graph.Install}); err != nil {
				t.Fatal(err)
			}
		}
		onEvent(apply.Event{Type: apply.StateChanged, State: step.state})
		if got := m.output().Applied.Done; got != step.done {
			t.Errorf("after step %d, %d are done, want %d", i, got, step.done)
		}
	}
}

// TestFailuresOfTheApplyBefore count until the next apply has done the same step.
func TestFailuresOfTheApplyBefore(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	step := func(phase apply.StepPhase, action object.Action, reason string, since time.Time) apply.RunStepState {
		return apply.RunStepState{
			Wait: apply.Wait{
				ID:     kinds.ID{Kind: "Job", Namespace: "shop", Name: "check"},
				File:   "check.yaml",
				Reason: reason,
				Since:  since,
			},
			Phase:  phase,
			Action: action,
		}
	}
	refused := step(apply.HasFailed, object.Failed, "Invalid", since)
	broken := step(apply.HasFailed, object.Created, "WorkloadFailed", since)
	for name, c := range map[string]struct {
		before, now apply.RunStepState
		want        []apply.RunStepState
	}{
		"not reached yet": {refused, step(apply.Blocked, object.NotDone, "", time.Time{}),
			[]apply.RunStepState{refused}},
		"tried again": {refused, step(apply.InRetry, object.NotDone, "Busy", since), []apply.RunStepState{refused}},
		"refused again, for the same": {refused,
			step(apply.HasFailed, object.Failed, "Invalid", since.Add(time.Hour)), []apply.RunStepState{refused}},
		"refused again, for something else": {refused,
			step(apply.HasFailed, object.Failed, "Forbidden", since.Add(time.Hour)),
			[]apply.RunStepState{step(apply.HasFailed, object.Failed, "Forbidden", since.Add(time.Hour))}},
		"applied, and not ready": {refused, step(apply.InWait, object.Created, "", since), nil},
		"done":                   {refused, step(apply.Done, object.Created, "", time.Time{}), nil},
		"unchanged, and not ready yet": {broken, step(apply.InWait, object.Unchanged, "", since),
			[]apply.RunStepState{broken}},
		"changed, and not ready yet": {broken, step(apply.InWait, object.Configured, "", since), nil},
		"unchanged, and ready":       {broken, step(apply.Done, object.Unchanged, "", time.Time{}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := &currentRelease{
				before: []apply.RunStepState{c.before},
				steps:  &apply.RunState{Nodes: []apply.RunNodeState{{Steps: []apply.RunStepState{c.now}}}},
			}
			if diff := cmp.Diff(c.want, r.failures()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
