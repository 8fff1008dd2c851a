package operator

import (
	"testing"
	"testing/fstest"

	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestTheCountOfAnApplyDoesNotGoBack when an object that was applied turns out not to be ready. It begins anew with the next apply.
func TestTheCountOfAnApplyDoesNotGoBack(t *testing.T) {
	t.Parallel()
	c, err := cluster.Connect(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	release, _, err := payload.Load(t.Context(), fstest.MapFS{
		"0000_10_web_10.yaml": {Data: []byte(`{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: shop}}`)},
	}, payload.Options{Name: payload.DefaultName, Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	a := newApplier(c, Options{})
	a.session = &session.Session{}
	r := newRunning(t.Context(), a, &target{}, release)
	onEvent := r.options().Apply.OnEvent
	event := func(kind apply.EventType, action object.Action) apply.Event {
		id := release.Manifests[0].ID()
		return apply.Event{Time: c.Now(), Type: kind, Action: action, Object: &id, File: release.Manifests[0].Path, Message: "none of its pods is ready"}
	}
	for i, step := range []struct {
		begin bool
		event apply.Event
		done  int
	}{
		{true, event(apply.Applied, object.Created), 1},
		{false, event(apply.Waiting, ""), 1},
		{true, event(apply.Waiting, ""), 0},
	} {
		if step.begin {
			if err := r.begin(&session.Outcome{Mode: graph.Install}); err != nil {
				t.Fatal(err)
			}
		}
		onEvent(step.event)
		if got := r.seen().Done; got != step.done {
			t.Errorf("after step %d, %d are done, want %d", i, got, step.done)
		}
	}
}
