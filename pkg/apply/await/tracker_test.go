package await

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/pkg/payload"
)

var deployments = cluster.Resource{
	GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
	Kind:                 "Deployment", Namespaced: true,
}

// fleet returns a Tracker of some Deployments, without a cluster: the test provides the observations.
func fleet(t testing.TB, count int) (*Tracker, []*payload.Manifest, *watch) {
	t.Helper()
	folder := fstest.MapFS{}
	for i := range count {
		folder[fmt.Sprintf("0000_10_web_%05d.yaml", i)] = &fstest.MapFile{Data: fmt.Appendf(nil,
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web-%d, namespace: shop}}", i)}
	}
	release, _, err := payload.Load(t.Context(), folder, payload.Options{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	silent := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			deployments.GroupVersionResource: "DeploymentList", {Version: "v1", Resource: "nodes"}: "NodeList",
		})
	silent.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no answer")
	})
	tr := New(t.Context(), &cluster.Cluster{Objects: silent},
		Options{Release: "shop", Standard: func(*payload.Manifest) ready.Standard { return ready.Full }})
	t.Cleanup(tr.Close)
	for _, m := range release.Manifests {
		tr.Expect(m, deployments)
	}
	s := &watch{
		tracker: tr, resource: deployments,
		key:   watchKey{resource: deployments.GroupVersionResource, labels: "runlevel.dev/release=shop"},
		early: map[kinds.ID]*unstructured.Unstructured{},
	}
	tr.watches[s.key] = s
	return tr, release.Manifests, s
}

// IsWaiting reports whether an object is tracked, and not ready.
func (t *Tracker) IsWaiting(id kinds.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.known[id]
	return o != nil && o.state != expected && o.Verdict.State != ready.Ready
}

// deployment returns the observed Deployment of a manifest.
func deployment(m *payload.Manifest, version int, available int64) *unstructured.Unstructured {
	object := m.Object().DeepCopy()
	object.SetLabels(map[string]string{"runlevel.dev/release": "shop"})
	object.SetUID(types.UID(m.ID().Name))
	object.SetGeneration(1)
	object.SetResourceVersion(strconv.Itoa(version))
	object.Object["status"] = map[string]any{
		"observedGeneration": int64(1),
		"replicas":           int64(1),
		"updatedReplicas":    int64(1),
		"availableReplicas":  available,
	}
	return object
}

// Each object has its own standard of readiness: by the upstream standard, a Deployment need not be fully available.
func TestObjectsHaveTheirOwnStandards(t *testing.T) {
	tr, manifests, _ := fleet(t, 2)
	tr.options.Standard = func(m *payload.Manifest) ready.Standard {
		if m == manifests[0] {
			return ready.Full
		}
		return ready.Upstream
	}
	clear(tr.known)
	clear(tr.objects)
	var got []bool
	for i, m := range manifests {
		tr.Expect(m, deployments)
		tr.NoteApplied(m, deployment(m, i+1, 0))
		got = append(got, tr.IsWaiting(m.ID()))
	}
	if !slices.Equal(got, []bool{true, false}) {
		t.Errorf("got waiting: %t", got)
	}
}

// If an object needs no apply any more and is ready, the wait for it ends.
func TestAssumedObjectEndsItsWait(t *testing.T) {
	tr, manifests, _ := fleet(t, 1)
	m := manifests[0]
	tr.NoteApplied(m, deployment(m, 1, 0))
	w := tr.Await([]kinds.ID{m.ID()}, false)
	tr.Assume(m, true)
	if !slices.ContainsFunc(tr.Events(), func(e Event) bool {
		return e.Type == Ended && e.Wait == w && len(e.Failed) == 0
	}) {
		t.Error("the wait has not ended")
	}
}

func TestObservationsOfAnObject(t *testing.T) {
	const before, now, after = 5, 7, 9
	for name, c := range map[string]struct {
		see  func(tr *Tracker, m *payload.Manifest, s *watch)
		want ready.State
	}{
		"ready before the response arrives": {func(tr *Tracker, m *payload.Manifest, s *watch) {
			s.observe(deployment(m, after, 1), true)
			tr.NoteApplied(m, deployment(m, now, 0))
		}, ready.Ready},
		"an old list": {func(tr *Tracker, m *payload.Manifest, s *watch) {
			tr.NoteApplied(m, deployment(m, now, 0))
			s.observeList([]*unstructured.Unstructured{deployment(m, before, 1)}, strconv.Itoa(before))
		}, ready.Waiting},
		"a list from before it was created": {func(tr *Tracker, m *payload.Manifest, s *watch) {
			tr.NoteApplied(m, deployment(m, now, 1))
			s.observeList(nil, strconv.Itoa(before))
		}, ready.Ready},
		"another one of its name, before": {func(tr *Tracker, m *payload.Manifest, s *watch) {
			tr.NoteApplied(m, deployment(m, now, 1))
			old := deployment(m, before, 0)
			old.SetUID("another")
			s.observe(old, true)
			s.observe(old, false)
		}, ready.Ready},
		"another one, by its own watch": {func(tr *Tracker, m *payload.Manifest, s *watch) {
			tr.NoteApplied(m, deployment(m, now, 1))
			s.key.labels = ""
			s.observe(deployment(m, before, 0), false)
		}, ready.Ready},
		"deleted, by its own watch": {func(tr *Tracker, m *payload.Manifest, s *watch) {
			tr.NoteApplied(m, deployment(m, now, 1))
			s.key.labels = ""
			s.observe(deployment(m, after, 1), false)
		}, ready.Waiting},
		"deleted, and an older state comes late": {func(tr *Tracker, m *payload.Manifest, s *watch) {
			tr.NoteApplied(m, deployment(m, now, 1))
			s.key.labels = ""
			s.observe(deployment(m, after, 1), false)
			s.observe(deployment(m, now, 1), true)
		}, ready.Waiting},
		"ready, and an older state comes late": {func(tr *Tracker, m *payload.Manifest, s *watch) {
			tr.NoteApplied(m, deployment(m, before, 0))
			tr.do(func() { tr.startWatching(tr.known[m.ID()]) })
			s.observe(deployment(m, after, 1), true)
			s.observe(deployment(m, now, 0), true)
		}, ready.Ready},
		"ready, and then it breaks": {func(tr *Tracker, m *payload.Manifest, s *watch) {
			tr.NoteApplied(m, deployment(m, before, 0))
			tr.do(func() { tr.startWatching(tr.known[m.ID()]) })
			s.observe(deployment(m, now, 1), true)
			s.observe(deployment(m, after, 0), true)
		}, ready.Waiting},
		"ready before the wait": {func(tr *Tracker, m *payload.Manifest, s *watch) {
			tr.NoteApplied(m, deployment(m, before, 0))
			s.observe(deployment(m, now, 1), true)
			tr.do(func() { tr.startWatching(tr.known[m.ID()]) })
		}, ready.Ready},
		"refused, though it exists": {func(_ *Tracker, m *payload.Manifest, s *watch) {
			s.observe(deployment(m, now, 1), true)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tr, manifests, s := fleet(t, 1)
			c.see(tr, manifests[0], s)
			var got ready.State
			tr.do(func() { got = tr.known[manifests[0].ID()].Verdict.State })
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A wait that begins late counts from its begin, and not from the apply of the object.
func TestWaitCountsFromItsBegin(t *testing.T) {
	tr, manifests, s := fleet(t, 1)
	m := manifests[0]
	tr.NoteApplied(m, deployment(m, 5, 0))
	tr.do(func() {
		tr.known[m.ID()].Since = time.Now().Add(-time.Hour)
		tr.startWatching(tr.known[m.ID()])
	})
	s.observe(deployment(m, 7, 1), true)
	if events := tr.Events(); len(events) != 1 || events[0].Type != Ready || events[0].Waited > time.Minute {
		t.Errorf("got events %+v, want one that the object is ready, after less than a minute", events)
	}
}

// TestFailureEndsAWait, also if another object is not ready yet. A cancelled wait does not report its end.
func TestFailureEndsAWait(t *testing.T) {
	tr, manifests, s := fleet(t, 2)
	ids := []kinds.ID{manifests[0].ID(), manifests[1].ID()}
	for i, m := range manifests {
		tr.NoteApplied(m, deployment(m, i+1, 0))
	}
	w, cancelled := tr.Await(ids, false), tr.Await(ids, false)
	tr.Cancel(cancelled)
	failed := deployment(manifests[1], 5, 0)
	failed.Object["status"].(map[string]any)["conditions"] = []any{map[string]any{
		"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
		"lastTransitionTime": "2026-01-01T00:00:00Z",
	}}
	s.observe(failed, true)
	var ended []Event
	for _, event := range tr.Events() {
		if event.Type == Ended {
			ended = append(ended, event)
		}
	}
	if len(ended) != 1 || ended[0].Wait != w || len(ended[0].Failed) != 1 ||
		ended[0].Failed[0].Manifest != manifests[1] {
		t.Errorf("got ends of waits %+v, want one for which %s has failed", ended, manifests[1].ID())
	}
}

// A rollout that had exceeded its deadline before gets its deadline again, also before a wait for it begins.
func TestRolloutThatWasGivenUpHasItsDeadlineAgain(t *testing.T) {
	tr, manifests, s := fleet(t, 1)
	m := manifests[0]
	givenUp := func(version int) *unstructured.Unstructured {
		object := deployment(m, version, 0)
		object.Object["spec"] = map[string]any{"progressDeadlineSeconds": int64(0)}
		object.Object["status"].(map[string]any)["conditions"] = []any{map[string]any{
			"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
			"lastTransitionTime": "2026-01-01T00:00:00Z",
		}}
		return object
	}
	tr.NoteApplied(m, givenUp(5))
	tr.do(func() { tr.startWatching(tr.known[m.ID()]) })
	s.observe(givenUp(7), true)
	if failed := wait(tr, manifests); len(failed) != 1 {
		t.Errorf("got %d failed objects", len(failed))
	}
}

// A watch shows an existing object once. An object that need not be applied may be expected long after that.
func TestObjectSeenBeforeItIsExpected(t *testing.T) {
	tr, manifests, s := fleet(t, 5)
	states := func() (states []ready.State) {
		tr.do(func() {
			for _, m := range manifests {
				states = append(states, tr.known[m.ID()].Verdict.State)
			}
		})
		return states
	}
	first, later := manifests[0], manifests[1:]
	tr.do(func() {
		for _, m := range later {
			delete(tr.known, m.ID())
			delete(tr.objects, m.ID())
		}
	})
	await(tr, first)
	shown := make([]*unstructured.Unstructured, 0, len(manifests))
	for _, m := range manifests[:4] {
		shown = append(shown, deployment(m, 5, 1))
	}
	s.observeList(shown, "5")
	s.observe(deployment(later[1], 7, 0), true)  // breaks
	s.observe(deployment(later[2], 7, 1), false) // the object is deleted
	for _, m := range later {
		tr.Expect(m, deployments)
		await(tr, m)
	}
	if diff := cmp.Diff([]ready.State{ready.Ready, ready.Ready, ready.Waiting, ready.Waiting, ready.Waiting},
		states()); diff != "" {
		t.Error(diff)
	}
	for i, m := range manifests {
		wantAlone := i >= 3 // the watch does not show these objects
		tr.do(func() {
			if isAlone := tr.known[m.ID()].watch.key.labels == ""; isAlone != wantAlone {
				t.Errorf("%s has its own watch: %t", m.ID(), isAlone)
			}
		})
	}
}

// wait waits until objects are ready, or some have failed.
func wait(tr *Tracker, manifests []*payload.Manifest) []Object {
	var ids []kinds.ID
	for _, m := range manifests {
		ids = append(ids, m.ID())
	}
	return endOf(tr, tr.Await(ids, false))
}

// endOf waits until a wait has ended, and returns the objects that have failed.
func endOf(tr *Tracker, w *GroupWait) []Object {
	for {
		for _, event := range tr.Events() {
			if event.Type == Ended && event.Wait == w {
				return event.Failed
			}
		}
		<-tr.Signal()
	}
}

// await waits for an object that needs no apply.
func await(tr *Tracker, m *payload.Manifest) {
	tr.Assume(m, false)
	tr.do(func() { tr.startWatching(tr.known[m.ID()]) })
}

// BenchmarkAwait shows how the cost of waits grows: the cost of one object must stay constant.
func BenchmarkAwait(b *testing.B) {
	for _, count := range []int{500, 2_000, 8_000} {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				tr, manifests, s := fleet(b, count)
				for i, m := range manifests {
					tr.NoteApplied(m, deployment(m, i+1, 0))
				}
				b.StartTimer()
				done := make(chan []Object)
				go func() { done <- wait(tr, manifests) }()
				for i, m := range manifests {
					s.observe(deployment(m, count+i+1, 1), true)
				}
				<-done
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/object")
		})
	}
}
