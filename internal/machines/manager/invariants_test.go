package manager_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// at returns the span of request number n: each takes half a second, and the next begins half a second later.
func at(n int) span {
	begin := time.Date(2026, 1, 1, 12, 0, n, 0, time.UTC)
	return span{Begin: begin, End: begin.Add(time.Second / 2)}
}

// A recording builds a history request by request.
type recording struct {
	history
	machine    machinev1beta1.Machine
	clusterAPI *clusterv1.Machine // replaces machine if it is not nil
	node       corev1.Node
	next       int
}

// report begins with a machine that has a node, infrastructure and hooks, and was just deleted.
func newRecording(preDrain, preTerminate int) *recording {
	s := &recording{history: history{Name: "m"}}
	s.machine.Name, s.machine.Finalizers = "m", []string{machinev1beta1.MachineFinalizer}
	s.machine.Status.NodeRef = &corev1.ObjectReference{Name: "n"}
	s.hooks(preDrain, preTerminate)
	s.Node.States = append(s.Node.States, recorded[corev1.Node]{span: s.now(), Object: &corev1.Node{}})
	s.Infrastructure.States = append(s.Infrastructure.States,
		recorded[metav1.PartialObjectMetadata]{span: s.now(), Object: &metav1.PartialObjectMetadata{}})
	s.machine.DeletionTimestamp = &metav1.Time{Time: at(s.next).Begin}
	s.phase(machinev1beta1.PhaseDeleting)
	return s
}

// now returns the span of the next request.
func (r *recording) now() span {
	r.next++
	return at(r.next)
}

func (r *recording) write() *recording {
	state := stateOfOpenShift(r.machine.DeepCopy())
	if r.clusterAPI != nil {
		state = stateOfClusterAPI(r.clusterAPI.DeepCopy())
	}
	r.Machine.States = append(r.Machine.States, recorded[machineState]{span: r.now(), Object: state})
	return r
}

func (r *recording) phase(phase string) *recording {
	r.machine.Status.Phase = &phase
	return r.write()
}

// hooks leaves some hooks.
func (r *recording) hooks(preDrain, preTerminate int) *recording {
	hook := machinev1beta1.LifecycleHook{Name: "hook", Owner: "owner"}
	r.machine.Spec.LifecycleHooks = machinev1beta1.LifecycleHooks{}
	for range preDrain {
		r.machine.Spec.LifecycleHooks.PreDrain = append(r.machine.Spec.LifecycleHooks.PreDrain, hook)
	}
	for range preTerminate {
		r.machine.Spec.LifecycleHooks.PreTerminate = append(r.machine.Spec.LifecycleHooks.PreTerminate, hook)
	}
	return r.write()
}

func (r *recording) exclude() *recording {
	r.machine.Annotations = map[string]string{excludeAnnotation: ""}
	return r.write()
}

func (r *recording) drained(status corev1.ConditionStatus) *recording {
	r.machine.Status.Conditions = []machinev1beta1.Condition{{Type: machinev1beta1.MachineDrained, Status: status}}
	return r.write()
}

func (r *recording) skipped() *recording {
	r.machine.Status.Conditions = []machinev1beta1.Condition{{
		Type: machinev1beta1.MachineDrained, Status: corev1.ConditionTrue, Message: "Node drain skipped",
	}}
	return r.write()
}

func (r *recording) cordon() *recording {
	r.node.Spec.Unschedulable = true
	r.Node.States = append(r.Node.States,
		recorded[corev1.Node]{span: r.now(), Object: r.node.DeepCopy(), By: controllerAgent})
	return r
}

func (r *recording) evict(by string) *recording {
	r.Evictions = append(r.Evictions, podEviction{span: r.now(), Pod: "p", By: by, Code: 201})
	return r
}

func (r *recording) terminate() *recording {
	r.InfrastructureDeletes = append(r.InfrastructureDeletes, r.now())
	return r
}

func (r *recording) infrastructureGone() *recording {
	r.Infrastructure.States = append(r.Infrastructure.States, recorded[metav1.PartialObjectMetadata]{span: r.now()})
	return r
}

func (r *recording) deleteNode() *recording {
	r.Node.States = append(r.Node.States, recorded[corev1.Node]{span: r.now(), By: controllerAgent})
	return r
}

func (r *recording) release() *recording {
	r.machine.Finalizers = nil
	if r.clusterAPI != nil {
		r.clusterAPI.Finalizers = nil
	}
	return r.write()
}

// unsure has the Machine written, or not: the log does not report.
func (r *recording) unsure() *recording {
	r.Machine.Unsure = append(r.Machine.Unsure, r.now())
	return r
}

// pod adds a pod on the node.
func (r *recording) pod() *recording {
	r.Pods = map[string]*timeline[corev1.Pod]{
		"p": {States: []recorded[corev1.Pod]{{span: r.now(), Object: &corev1.Pod{}}}},
	}
	return r
}

// podEnds ends the pod, or begins its end: the log does not show which.
func (r *recording) podEnds() *recording {
	r.Pods["p"].Unsure = append(r.Pods["p"].Unsure, r.now())
	return r
}

// end is the rest of a deletion from the drain on, as it should be.
func (r *recording) end() *recording {
	return r.drained(corev1.ConditionTrue).terminate().infrastructureGone().deleteNode().release()
}

func TestInvariants(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		recorded *recording
		broken   []string // the invariants, by their first words
	}{
		"as it should be": {
			newRecording(1, 1).hooks(0, 1).cordon().evict(controllerAgent).drained("True").hooks(0, 0).end(), nil,
		},
		"cordoned under a hook": {newRecording(1, 0).cordon().hooks(0, 0).evict(controllerAgent).end(),
			[]string{"no node is cordoned"}},
		"evicted under a hook": {newRecording(1, 0).cordon().evict(controllerAgent).hooks(0, 0).end(),
			[]string{"no node is cordoned", "no node is cordoned"}},
		"drained by the hook's owner": {newRecording(1, 0).evict("the owner").hooks(0, 0).cordon().end(), nil},
		"excluded from draining":      {newRecording(1, 0).exclude().end(), nil},
		"terminated under a hook": {newRecording(0, 1).cordon().drained("True").terminate().hooks(0, 0).end(),
			[]string{"no infrastructure is deleted while"}},
		"terminated undrained": {newRecording(0, 0).cordon().terminate().end(),
			[]string{"no infrastructure is deleted before"}},
		"evicted before the cordon": {newRecording(0, 0).evict(controllerAgent).cordon().end(),
			[]string{"a node is cordoned before"}},
		"drained twice": {newRecording(0, 0).cordon().drained("True").evict(controllerAgent).end(),
			[]string{"a completed drain"}},
		"late pre-drain hook": {newRecording(0, 0).cordon().drained("True").hooks(1, 0).end(), nil},
		"Node deleted early": {newRecording(0, 0).cordon().drained(
			"True",
		).terminate().deleteNode().infrastructureGone().release(), []string{"a Node is deleted after"}},
		"released undrained": {newRecording(0, 0).cordon().infrastructureGone().deleteNode().release(),
			[]string{"the finalizer goes last"}},
		"released with infrastructure": {newRecording(0, 0).cordon().drained(
			"True",
		).terminate().deleteNode().release().infrastructureGone(),
			[]string{"a Node is deleted after", "the finalizer goes last"}},
		"released with the Node": {newRecording(0, 0).cordon().drained(
			"True",
		).terminate().infrastructureGone().release().deleteNode(), []string{"the finalizer goes last"}},
		"not drained any more": {newRecording(0, 0).cordon().drained("True").drained("False").end(),
			[]string{"a deletion does not go back"}},
		"not deleting any more": {newRecording(0, 0).phase("Running").cordon().end(),
			[]string{"a deletion does not go back"}},
		"drained with a pod":      {newRecording(0, 0).pod().cordon().end(), []string{"a drain is over"}},
		"drained without its pod": {newRecording(0, 0).pod().cordon().podEnds().end(), nil},
		"skipped the drain of a pod": {
			newRecording(0, 0).pod().exclude().skipped().terminate().infrastructureGone().deleteNode().release(), nil,
		},
		"hook removed, perhaps": {newRecording(1, 0).unsure().cordon().end(), nil},
		"hook still there for sure": {newRecording(1, 0).unsure().write().cordon().end(),
			[]string{"no node is cordoned"}},
	} {
		t.Run(name, func(t *testing.T) { test.recorded.expect(t, test.broken) })
	}
}

// expect expects a history to break some invariants, of which the first words are given.
func (r *recording) expect(t *testing.T, invariants []string) {
	t.Helper()
	broken := violationsOf(map[string]*history{"m": &r.history})
	beginsWith := cmp.Comparer(func(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) })
	if diff := cmp.Diff(invariants, broken, beginsWith, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("broken (-want +got):\n%s", diff)
	}
}

// A machine not being deleted keeps its node and infrastructure.
func TestInvariantOfTheLiving(t *testing.T) {
	t.Parallel()
	s := newRecording(0, 0)
	for i := range s.Machine.States {
		s.Machine.States[i].Object.DeletionTimestamp = nil
	}
	if found := deletionsOfLiving(&s.terminate().history); len(found) != 1 {
		t.Errorf("infrastructure of a living machine was deleted, and found was %q", found)
	}
}

// Two nodes of the control plane are cordoned at once only if one node was deleted.
func TestInvariantOfTheControlPlane(t *testing.T) {
	t.Parallel()
	controlPlane := func(skip int) *history {
		s := newRecording(0, 0)
		s.node.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		s.next += skip
		return &s.cordon().end().history
	}
	item, other, late := controlPlane(0), controlPlane(1), controlPlane(30)
	if found := drainsOfControlPlane(map[string]*history{"a": item, "b": other}); len(found) != 1 {
		t.Errorf("two are drained at once, and found was %q", found)
	}
	if found := drainsOfControlPlane(map[string]*history{"a": item, "b": late}); len(found) != 0 {
		t.Errorf("two are drained one after the other, and found was %q", found)
	}
}
