package drain_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A budget that allows no disruption holds its pod, which is reported before and after the attempt, until it is
// loosened.
func TestBudget(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.pod("web", nil)
	d.pod("free", nil)
	d.awaitRunning("web", "free")
	d.budget("keep-web", "web", 1, nil)
	d.awaitBudget("keep-web", func(b *policyv1.PodDisruptionBudget) bool { return b.Status.CurrentHealthy == 1 })
	const web = "Budget: pod web is held by PodDisruptionBudget keep-web, which allows no disruption: 1 healthy, 1 needed"
	d.expect(d.look(), "ToBeEvicted: pod free is not evicted yet\n"+web)
	left := d.evict()
	d.expect(left, "Ending: pod free has been ending since then, with 3600 s of grace\n"+web)
	if budgets := left[1].Budgets; len(budgets) != 1 || budgets[0] != "keep-web" {
		t.Errorf("budgets %q, want keep-web", budgets)
	}

	loosen := []byte(`{"spec": {"minAvailable": 0}}`)
	_, err := d.client.PolicyV1().PodDisruptionBudgets(d.namespace).Patch(t.Context(), "keep-web", types.MergePatchType,
		loosen, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.awaitBudget("keep-web", func(b *policyv1.PodDisruptionBudget) bool { return b.Status.DisruptionsAllowed == 1 })
	d.expect(d.evict(), `
Ending: pod free has been ending since then, with 3600 s of grace
Ending: pod web has been ending since then, with 3600 s of grace
`)
}

// The API server evicts no pod that two budgets apply to, and does not report which.
func TestTwoBudgets(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.pod("web", nil)
	d.awaitRunning("web")
	d.budget("a", "web", 0, nil)
	d.budget("b", "web", 0, nil)
	const want = "Refused: pod web has 2 PodDisruptionBudgets (a, b), and the API server evicts none that has more " +
		"than one"
	d.expect(d.look(), want)
	d.expect(d.evict(), want)
}

// An unready pod is evicted at once only if the policy of its budget allows it: here too few other pods are healthy.
func TestUnhealthyPods(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	crashing := func(p *corev1.Pod) {
		p.Annotations["sandbox.runlevel.dev/pod"] = "crash"
		p.Annotations["sandbox.runlevel.dev/run-for"] = "1h"
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "never"}}
	}
	d.pod("careful", crashing)
	d.pod("careless", crashing)
	for _, name := range []string{"careful", "careless"} {
		d.awaitPod(name, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		status := []byte(`{"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Test"}]}}`)
		_, err := d.client.CoreV1().Pods(d.namespace).Patch(t.Context(), name, types.StrategicMergePatchType, status,
			metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
	}
	d.budget("careful", "careful", 1, nil)
	d.budget("careless", "careless", 1, func(b *policyv1.PodDisruptionBudget) {
		always := policyv1.AlwaysAllow
		b.Spec.UnhealthyPodEvictionPolicy = &always
	})
	for _, name := range []string{"careful", "careless"} {
		d.awaitBudget(name, func(b *policyv1.PodDisruptionBudget) bool { return b.Status.CurrentHealthy == 0 })
	}
	const careful = "Budget: pod careful is held by PodDisruptionBudget careful, which allows no disruption: 0 " +
		"healthy, 1 needed\n"
	d.expect(d.look(), careful+"ToBeEvicted: pod careless is not evicted yet")
	d.expect(d.evict(), careful+"Ending: pod careless has been ending since then, with 3600 s of grace")
}
