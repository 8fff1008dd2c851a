package drain_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

func TestTolerationOfTheCordon(t *testing.T) {
	t.Parallel()
	const cordon = corev1.TaintNodeUnschedulable
	for want, tolerations := range map[string][]corev1.Toleration{
		"": {{Key: "gpu", Operator: corev1.TolerationOpExists},
			{Key: cordon, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
		"{operator: Exists}":                        {{Key: "gpu"}, {Operator: corev1.TolerationOpExists}},
		"{key: " + cordon + ", effect: NoSchedule}": {{Key: cordon, Effect: corev1.TaintEffectNoSchedule}},
	} {
		if got := drain.CordonToleration(&corev1.Pod{Spec: corev1.PodSpec{Tolerations: tolerations}}); got != want {
			t.Errorf("of %v: %q, want %q", tolerations, got, want)
		}
	}
}

// awaitSecondAfter waits until a second after the moment has passed.
func (f *fixture) awaitSecondAfter(moment time.Time) {
	f.Helper()
	err := wait.PollUntilContextTimeout(f.Context(), 50*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			return time.Now().Unix() > moment.Unix(), nil
		})
	if err != nil {
		f.Fatal(err)
	}
}

// TestHeldPodsReportsPodsAfterTheCordon cordons a node that has a pod, and puts another one there, as a controller does
// whose pods tolerate the cordon.
func TestHeldPodsReportsPodsAfterTheCordon(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	tolerates := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	d.pod("before", tolerates)
	last := d.pod("plain", nil).CreationTimestamp
	d.awaitRunning("before", "plain")
	d.awaitSecondAfter(last.Time) // times are whole seconds
	if err := drain.Cordon(t.Context(), d.client, d.node); err != nil {
		t.Fatal(err)
	}
	d.node = sandboxtest.Await(t, cluster, nodes, d.node.Name, func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeUnschedulable
		})
	})
	d.pod("later", tolerates)
	d.awaitRunning("later")
	want := map[string]drain.HeldPod{
		"before": {Toleration: "{operator: Exists}"}, "plain": {},
		"later": {Toleration: "{operator: Exists}", IsAfterCordon: true},
	}
	for _, pod := range d.look() {
		if want := want[pod.Name]; pod.Toleration != want.Toleration || pod.IsAfterCordon != want.IsAfterCordon {
			t.Errorf("pod %s has toleration %q, and came after the cordon: %t; want %q, %t",
				pod.Name, pod.Toleration, pod.IsAfterCordon, want.Toleration, want.IsAfterCordon)
		}
	}
}
