package await

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// since sets the time since when a Deployment is available.
func since(object *unstructured.Unstructured, when time.Time) *unstructured.Unstructured {
	status := object.Object["status"].(map[string]any)
	status["conditions"] = []any{map[string]any{
		"type":               "Available",
		"status":             "True",
		"lastTransitionTime": when.UTC().Format(time.RFC3339),
	}}
	return object
}

// unprobed returns a fleet of one Deployment without a readiness probe.
func unprobed(t *testing.T) (*Tracker, *payload.Manifest, *watch) {
	tr, manifests, s := fleet(t, 1)
	m := manifests[0]
	m.Object().Object["spec"] = map[string]any{
		"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "web"}}}},
	}
	return tr, m, s
}

// TestWorkloadWithoutAProbeSettles: it is ready when it has been available for a while, and not at once.
func TestWorkloadWithoutAProbeSettles(t *testing.T) {
	tr, m, s := unprobed(t)
	tr.NoteApplied(m, deployment(m, 1, 0))
	isReady := make(chan bool, 1)
	w := tr.Await([]kinds.ID{m.ID()}, false)
	go func() { isReady <- len(endOf(tr, w)) == 0 }()
	s.observe(deployment(m, 2, 1), true)
	if !tr.IsWaiting(m.ID()) {
		t.Error("the Deployment is ready as soon as its containers have started")
	}
	s.observe(deployment(m, 3, 0), true)
	s.observe(since(deployment(m, 4, 1), time.Now().Add(-time.Hour)), true) // set by other pods
	if !tr.IsWaiting(m.ID()) {
		t.Error("the Deployment is ready as soon as its containers have started again")
	}
	select {
	case <-isReady:
	case <-time.After(time.Minute):
		t.Error("the Deployment never settles")
	}
}

// TestReadyWithoutSettling has the workloads that are ready at once.
func TestReadyWithoutSettling(t *testing.T) {
	longAgo := time.Now().Add(-time.Minute)
	for name, see := range map[string]func(tr *Tracker, m *payload.Manifest, s *watch){
		"it was ready when it was applied": func(tr *Tracker, m *payload.Manifest, s *watch) {
			tr.NoteApplied(m, deployment(m, 1, 1))
		},
		"it needed no apply": func(tr *Tracker, m *payload.Manifest, s *watch) {
			tr.Assume(m, false)
			s.observe(deployment(m, 1, 1), true)
		},
		"it has been available for a while": func(tr *Tracker, m *payload.Manifest, s *watch) {
			tr.NoteApplied(m, deployment(m, 1, 0))
			s.observe(since(deployment(m, 2, 1), longAgo), true)
		},
		"minReadySeconds": func(tr *Tracker, m *payload.Manifest, s *watch) {
			m.Object().Object["spec"].(map[string]any)["minReadySeconds"] = int64(1)
			tr.NoteApplied(m, deployment(m, 1, 0))
			s.observe(deployment(m, 2, 1), true)
		},
		"the pods are simulated": func(tr *Tracker, m *payload.Manifest, s *watch) {
			tr.simulates = true
			tr.NoteApplied(m, deployment(m, 1, 0))
			s.observe(deployment(m, 2, 1), true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr, m, s := unprobed(t)
			if see(tr, m, s); tr.IsWaiting(m.ID()) {
				t.Error("the workload is not ready at once")
			}
		})
	}
}
