package machinehook

import (
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// TestProgressOfDeletions has each moment of a deletion, and its progress towards the drain and the end.
func TestProgressOfDeletions(t *testing.T) {
	for _, c := range []struct {
		moment           string
		machine          client.Object
		drain, terminate stageProgress
	}{
		{"deletion not noticed", openShift(), stageAhead, stageAhead},
		{"before the drain", openShift(deleting, onNode), stageReached, stageAhead},
		{"the drain fails", openShift(deleting, onNode, drained(corev1.ConditionFalse)), stageReached, stageAhead},
		{"without a node, the drain not skipped yet", openShift(deleting), stageAhead, stageAhead},
		{"excluded, the drain not skipped yet", openShift(deleting, onNode, excluded), stageAhead, stageAhead},
		{"drained", openShift(deleting, onNode, drained(corev1.ConditionTrue)), stagePassed, stageReached},
		{"drain skipped", openShift(deleting, drained(corev1.ConditionTrue)), stagePassed, stageReached},
		{"infrastructure goes", openShift(deleting, onNode, drained(corev1.ConditionTrue), terminating), stagePassed,
			stagePassed},
		{"deletion not noticed", &clusterv1.Machine{}, stageAhead, stageAhead},
		{"not deleting", clusterAPI(clusterv1.MachineNotDeletingReason), stageAhead, stageAhead},
		{"deletion begun", clusterAPI(clusterv1.MachineDeletingReason), stageAhead, stageAhead},
		{"error", clusterAPI(clusterv1.MachineDeletingInternalErrorReason), stageAhead, stageAhead},
		{"pre-drain", clusterAPI(clusterv1.MachineDeletingWaitingForPreDrainHookReason), stageReached, stageAhead},
		{"drain", clusterAPI(clusterv1.MachineDeletingDrainingNodeReason), stageAhead, stageAhead},
		{"volumes", clusterAPI(clusterv1.MachineDeletingWaitingForVolumeDetachReason), stageAhead, stageAhead},
		{"pre-terminate", clusterAPI(clusterv1.MachineDeletingWaitingForPreTerminateHookReason), stagePassed,
			stageReached},
		{"infrastructure", clusterAPI(clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason), stagePassed,
			stagePassed},
		{"completed", clusterAPI(clusterv1.MachineDeletingDeletionCompletedReason), stagePassed, stagePassed},
	} {
		api, _ := machineAPIOf(c.machine)
		drain, terminate := api.progress(c.machine, deletion.BeforeDrain),
			api.progress(c.machine, deletion.BeforeTerminate)
		if drain != c.drain || terminate != c.terminate {
			t.Errorf("%s, %s: %d before the drain, want %d; %d before the end, want %d", api.name, c.moment, drain,
				c.drain, terminate, c.terminate)
		}
	}
}

func openShift(changes ...func(*machinev1beta1.Machine)) *machinev1beta1.Machine {
	m := &machinev1beta1.Machine{}
	for _, change := range changes {
		change(m)
	}
	return m
}

func deleting(m *machinev1beta1.Machine) { m.Status.Phase = ptr.To(machinev1beta1.PhaseDeleting) }

func onNode(m *machinev1beta1.Machine) { m.Status.NodeRef = &corev1.ObjectReference{Name: "n"} }

func excluded(m *machinev1beta1.Machine) { annotate(m, deletion.ExcludeNodeDraining, "true") }

func drained(status corev1.ConditionStatus) func(*machinev1beta1.Machine) {
	return func(m *machinev1beta1.Machine) {
		m.Status.Conditions = append(m.Status.Conditions,
			machinev1beta1.Condition{Type: machinev1beta1.MachineDrained, Status: status})
	}
}

func terminating(m *machinev1beta1.Machine) {
	m.Status.Conditions = append(m.Status.Conditions, machinev1beta1.Condition{
		Type: machinev1beta1.InstanceExistsCondition, Status: corev1.ConditionTrue,
		Reason: deletion.InstanceTerminating,
	})
}

func clusterAPI(reason string) *clusterv1.Machine {
	m := &clusterv1.Machine{}
	m.Status.Conditions = []metav1.Condition{{
		Type:   clusterv1.MachineDeletingCondition,
		Status: metav1.ConditionTrue,
		Reason: reason,
	}}
	return m
}

// TestPausesBetweenAdditions checks that a hook that is removed repeatedly is restored after growing pauses, and at
// once after a calm period.
func TestPausesBetweenAdditions(t *testing.T) {
	var a additions
	m, now := &machinev1beta1.Machine{}, time.Now()
	pause := func() time.Duration {
		last, _ := a.noteRemoval(m)
		return last.at.Add(last.pause).Sub(now)
	}
	if got := pause(); got > 0 {
		t.Errorf("the first time, it pauses %s", got)
	}
	for _, want := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		a.record(m, now)
		if got := pause(); got != time.Duration(want)*time.Second {
			t.Errorf("it pauses %s, want %d s", got, want)
		}
	}
	now = now.Add(calm)
	if got := pause(); got > 0 {
		t.Errorf("after it was calm, it pauses %s", got)
	}
	a.record(m, now)
	if got := pause(); got != firstPause {
		t.Errorf("after it was calm, it pauses %s the next time", got)
	}
}
