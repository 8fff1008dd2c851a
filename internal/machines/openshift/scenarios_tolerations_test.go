package openshift_test

import (
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// ownNode is the label that brings the pods of a Deployment to the node of a scenario.
const ownNode = "example.org/own"

// addDeployment creates a Deployment whose pod runs on a node, and returns that pod.
func (s *scenario) addDeployment(name string, node *corev1.Node, toleration corev1.Toleration) *corev1.Pod {
	s.Helper()
	labels := map[string]string{"app": name}
	s.MustCreate(&appsv1.Deployment{
		ObjectMeta: s.Meta(name),
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector:                  map[string]string{ownNode: node.Labels[ownNode]},
					Tolerations:                   []corev1.Toleration{toleration},
					TerminationGracePeriodSeconds: new(int64),
					Containers:                    []corev1.Container{{Name: "it", Image: "registry.example/it"}},
				},
			},
		},
	})
	return s.awaitPodOf(name, "")
}

// awaitPodOf waits until a Deployment has a pod that runs on a node, and has another name than the previous pod.
func (s *scenario) awaitPodOf(deployment, before string) *corev1.Pod {
	s.Helper()
	var found *corev1.Pod
	s.Eventually("Deployment "+deployment+" has a pod", func() bool {
		var pods corev1.PodList
		s.Must(s.List(s.Context(), &pods, client.InNamespace(s.Namespace), client.MatchingLabels{"app": deployment}))
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil && pod.Name != before {
				found = &pod
				return true
			}
		}
		return false
	})
	return found
}

// TestDrainLeavesWhatComesBack drains a node on which the pod of a Deployment that tolerates the cordon comes back: its
// first pod is evicted, and the next one ends with the node. A pod that does not tolerate it is held by its budget as
// ever.
func TestDrainLeavesWhatComesBack(t *testing.T) {
	for name, isRestarted := range map[string]bool{"in one go": false, "with a restart": true} {
		t.Run(name, func(t *testing.T) { drainWhatComesBack(t, isRestarted) })
	}
}

func drainWhatComesBack(t *testing.T, isRestarted bool) {
	s := newScenario(t)
	stop := s.start(quick)
	node := s.addNode("n", map[string]string{ownNode: s.Namespace})
	agent := s.addDeployment("agent", node, corev1.Toleration{Operator: corev1.TolerationOpExists})
	web := s.addDeployment("web", node, corev1.Toleration{Key: "test", Operator: corev1.TolerationOpExists})
	budget := s.AddBudget("keep-web", "web")
	m := s.addMachine("a", node, machinev1beta1.LifecycleHooks{})
	s.MustDelete(m)
	s.awaitCondition("a", machinev1beta1.MachineDrained, corev1.ConditionFalse,
		"pod "+s.Namespace+"/"+web.Name+" is held by PodDisruptionBudget keep-web")
	next := s.awaitPodOf("agent", agent.Name)
	if isRestarted { // the new controller evicts the present pods once more
		stop()
		s.start(quick)
		next = s.awaitPodOf("agent", next.Name)
	}
	tries := len(s.writes.matching("POST pods/" + web.Name + "/eviction: 429"))
	machinetest.Await(s, s, m, client.ObjectKeyFromObject(m), func(*machinev1beta1.Machine) bool {
		return len(s.writes.matching("POST pods/"+web.Name+"/eviction: 429")) > tries+3
	})
	s.MustGet(next)
	if next.DeletionTimestamp != nil || len(s.writes.matching("pods/"+next.Name)) > 0 {
		t.Errorf("pod %s came back after the cordon, tolerates it, and was evicted", next.Name)
	}
	s.AwaitEvent("a", "DrainLeavesPods", "pod "+s.Namespace+"/"+next.Name+" (toleration {operator: Exists})")
	s.MustDelete(budget)
	s.AwaitGone(m)
	s.AwaitGone(node)
}
