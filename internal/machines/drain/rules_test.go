package drain_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/machines/drain"
)

// rulesByLabel reads the rule of a pod from its labels.
func rulesByLabel(_ context.Context, pod *corev1.Pod) (drain.PodRule, error) {
	rule := drain.PodRule{Behavior: drain.EvictPod}
	switch pod.Labels["turn"] {
	case "first":
		rule.Order = -5
	case "last":
		rule.Order = 10
	case "never":
		rule.Behavior = drain.SkipPod
	case "completes":
		rule.Behavior = drain.WaitCompleted
	case "odd":
		return rule, errors.New("no such turn")
	}
	return rule, nil
}

func withTurn(turn string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels["turn"] = turn }
}

// evictByRules evicts pods, and returns the holds of the remaining ones by name.
func (f *fixture) evictByRules() map[string]drain.PodHold {
	f.Helper()
	remaining, err := drain.Evict(f.Context(), f.client, f.node, rulesByLabel)
	if err != nil {
		f.Fatal(err)
	}
	holds := map[string]drain.PodHold{}
	for _, pod := range remaining {
		holds[pod.Name] = pod.Hold
	}
	return holds
}

func TestRulesOrderEvictions(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for name, turn := range map[string]string{"a": "first", "b": "", "c": "last", "d": "never", "e": "completes"} {
		d.pod(name, withTurn(turn))
	}
	d.awaitRunning("a", "b", "c", "d", "e")
	want := map[string]drain.PodHold{"a": drain.Ending, "b": drain.Later, "c": drain.Later, "e": drain.CompletionLater}
	for range 2 { // the second time a is still there
		if diff := cmp.Diff(want, d.evictByRules()); diff != "" {
			t.Fatalf("at first (-want +got):\n%s", diff)
		}
	}
	d.endNow("a")
	want = map[string]drain.PodHold{"b": drain.Ending, "c": drain.Later, "e": drain.Completion}
	if diff := cmp.Diff(want, d.evictByRules()); diff != "" {
		t.Fatalf("then (-want +got):\n%s", diff)
	}
	d.endNow("b")
	d.finish("e")
	want = map[string]drain.PodHold{"c": drain.Ending}
	if diff := cmp.Diff(want, d.evictByRules()); diff != "" {
		t.Fatalf("at last (-want +got):\n%s", diff)
	}
	d.endNow("c")
	if remaining := d.evictByRules(); len(remaining) > 0 {
		t.Errorf("remaining pods: got %v, want none", remaining)
	}
	staying, err := drain.StayingPods(t.Context(), d.client, d.node, rulesByLabel)
	var names []string
	for _, pod := range staying {
		names = append(names, pod.Name)
	}
	if diff := cmp.Diff([]string{"d", "e"}, names); err != nil || diff != "" {
		t.Errorf("what stays: %v (-want +got):\n%s", err, diff)
	}
}

func TestARuleThatCanNotBeFoundStopsTheDrain(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.pod("a", nil)
	d.pod("b", withTurn("odd"))
	d.awaitRunning("a", "b")
	_, err := drain.Evict(t.Context(), d.client, d.node, rulesByLabel)
	if err == nil || !strings.Contains(err.Error(), "/b: no such turn") {
		t.Error(err)
	}
	d.awaitPod("a", func(p *corev1.Pod) bool { return p != nil && p.DeletionTimestamp == nil })
}

func TestARefusalIsQuoted(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.pod("db", nil)
	d.awaitRunning("db")
	d.budget("db", "db", 1, nil)
	remaining, err := drain.Evict(t.Context(), d.client, d.node, rulesByLabel)
	const want = "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget db needs 1 " +
		"healthy pods and has 1 currently"
	if err != nil || len(remaining) != 1 || remaining[0].Refusal != want {
		t.Errorf("%+v, %v", remaining, err)
	}
}

// endNow ends a pod that was evicted, without its grace.
func (f *fixture) endNow(name string) {
	f.Helper()
	f.awaitPod(name, func(p *corev1.Pod) bool { return p != nil && p.DeletionTimestamp != nil })
	if err := f.client.CoreV1().Pods(f.namespace).Delete(f.Context(), name, *metav1.NewDeleteOptions(0)); err != nil {
		f.Fatal(err)
	}
	f.awaitGone(name)
}

// finish makes a pod complete.
func (f *fixture) finish(name string) {
	f.Helper()
	done := []byte(`{"status": {"phase": "Succeeded"}}`)
	if _, err := f.client.CoreV1().Pods(f.namespace).Patch(f.Context(), name, types.MergePatchType, done,
		metav1.PatchOptions{}, "status"); err != nil {
		f.Fatal(err)
	}
	f.awaitPod(name, func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodSucceeded })
}
