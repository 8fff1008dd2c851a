package manager_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// recordClusterAPI begins with a Machine of Cluster API that has a node, infrastructure and annotations, and was just
// deleted.
func recordClusterAPI(annotations ...string) *recording {
	s := newRecording(0, 0)
	s.Machine.States = nil
	s.clusterAPI = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name: "m", Finalizers: []string{clusterv1.MachineFinalizer}, Annotations: map[string]string{},
		DeletionTimestamp: &metav1.Time{Time: at(s.next).Begin},
	}}
	s.clusterAPI.Status.NodeRef.Name = "n"
	for _, key := range annotations {
		s.clusterAPI.Annotations[key] = "owner"
	}
	return s.write()
}

// stage makes the Machine report in which stage its deletion is.
func (r *recording) stage(reason string) *recording {
	r.clusterAPI.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineDeletingCondition, Reason: reason}}
	return r.write()
}

// removeHooks removes all hooks.
func (r *recording) removeHooks() *recording {
	r.clusterAPI.Annotations = nil
	return r.write()
}

// sparedPod adds a pod on the node that a rule spares.
func (r *recording) sparedPod() *recording {
	r.pod().Pods["p"].States[0].Object = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{sparedLabel: "yes"}},
	}
	return r
}

// complete is the rest of a deletion from the end of the infrastructure on, as it should be.
func (r *recording) complete() *recording {
	r.terminate().infrastructureGone().deleteNode().stage("DeletionCompleted")
	r.clusterAPI.Finalizers = nil
	return r.write()
}

func TestInvariantsOfClusterAPI(t *testing.T) {
	t.Parallel()
	const (
		preDrain, preTerminate = "pre-drain.delete.hook.machine.cluster.x-k8s.io/a",
			"pre-terminate.delete.hook.machine.cluster.x-k8s.io/a"
		exclude           = "machine.cluster.x-k8s.io/exclude-node-draining"
		draining, waiting = "DrainingNode", "WaitingForPreTerminateHook"
	)
	for name, test := range map[string]struct {
		recorded *recording
		broken   []string // the invariants, by their first words
	}{
		"as it should be": {
			recordClusterAPI(preDrain).removeHooks().stage(draining).cordon().evict(controllerAgent).complete(), nil,
		},
		"cordoned under a hook": {recordClusterAPI(preDrain).cordon().removeHooks().complete(),
			[]string{"no node is cordoned"}},
		"terminated under a pre-drain hook": {recordClusterAPI(preDrain, exclude).terminate().removeHooks().complete(),
			[]string{"no infrastructure is deleted while"}},
		"terminated under another hook": {recordClusterAPI(preTerminate).terminate().removeHooks().complete(),
			[]string{"no infrastructure is deleted while"}},
		"terminated with a pod": {recordClusterAPI().pod().stage(draining).cordon().complete(),
			[]string{"a drain is over when"}},
		"terminated without its pod": {recordClusterAPI().pod().stage(draining).cordon().podEnds().complete(), nil},
		"waiting for hooks with a pod": {recordClusterAPI(preTerminate).pod().stage(
			waiting,
		).podEnds().removeHooks().complete(), []string{"a drain is over when"}},
		"excluded, with a pod":          {recordClusterAPI(exclude).pod().complete(), nil},
		"with a pod that a rule spares": {recordClusterAPI().sparedPod().stage(draining).cordon().complete(), nil},
		"evicted a pod that a rule spares": {recordClusterAPI().sparedPod().stage(draining).cordon().evict(
			controllerAgent,
		).complete(), []string{"a pod that a rule spares"}},
		"drained again": {recordClusterAPI(preTerminate).stage(waiting).cordon().removeHooks().complete(),
			[]string{"a completed drain"}},
		"back to an earlier stage": {recordClusterAPI(preTerminate).stage(waiting).removeHooks().stage(
			draining,
		).complete(), []string{"a deletion does not go back"}},
		"back from what can't be looked at": {
			recordClusterAPI().stage(draining).stage("InternalError").stage(draining).complete(), nil,
		},
		"released before it was complete": {recordClusterAPI().stage(
			draining,
		).terminate().infrastructureGone().deleteNode().release(), []string{"the finalizer goes last"}},
		"released with its infrastructure": {recordClusterAPI().stage(
			"DeletionCompleted",
		).release().deleteNode().infrastructureGone(),
			[]string{"a Node is deleted after", "the finalizer goes last", "the finalizer goes last"}},
	} {
		t.Run(name, func(t *testing.T) { test.recorded.expect(t, test.broken) })
	}
}
