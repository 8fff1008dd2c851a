package controlplane

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
)

func TestSnapshotKeepsTheEarliestTime(t *testing.T) {
	t.Parallel()
	s := &Snapshot{}
	for _, after := range []time.Duration{time.Hour, time.Second, time.Minute} {
		s.lookAgain(after)
	}
	if s.after != time.Second {
		t.Errorf("got %s, want 1s", s.after)
	}
}

// TestSnapshotMachines checks why a machine cannot be updated in place, and when it counts as broken.
func TestSnapshotMachines(t *testing.T) {
	t.Parallel()
	isTrue := func(kinds ...string) (all []metav1.Condition) {
		for _, kind := range kinds {
			all = append(all, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
		}
		return all
	}
	for name, c := range map[string]struct {
		annotation                       string
		conditions                       []metav1.Condition
		isReplaced, isUpdating, isBroken bool
	}{
		"available":                     {conditions: isTrue("Ready", "Available")},
		"not available for long enough": {conditions: isTrue("Ready")},
		"not ready":                     {isBroken: true},
		"to be remediated": {
			annotation: clusterv1.RemediateMachineAnnotation,
			conditions: isTrue("Ready", "Available"),
			isReplaced: true,
		},
		"updated":                             {annotation: clusterv1.UpdateInProgressAnnotation, isUpdating: true},
		"updated, which is not in the status": {conditions: isTrue("Updating"), isUpdating: true},
	} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name:        "m",
			Annotations: map[string]string{c.annotation: ""},
		}}
		m.Status.NodeRef.Name, m.Status.Conditions = "m", c.conditions
		s := &Snapshot{plane: &v1alpha1.RunlevelControlPlane{}, machines: map[string]*clusterv1.Machine{"m": m}}
		if got := s.Machines()[0]; got.IsReplaced != c.isReplaced || got.IsUpdating != c.isUpdating ||
			got.IsBroken != c.isBroken {
			t.Errorf("%s: got %+v, want replaced %t, updating %t, broken %t", name, got, c.isReplaced, c.isUpdating,
				c.isBroken)
		}
	}
}

// TestStatusVersions has the lowest version first, by its numbers, and that of a kubelet instead of the wanted one.
func TestStatusVersions(t *testing.T) {
	t.Parallel()
	var machines []*clusterv1.Machine
	for _, versions := range [][2]string{{"v1.36.10", "v1.36.9"}, {"v1.36.10", ""}, {"v1.36.10", "v1.36.10"},
		{"unknown", ""}} {
		m := &clusterv1.Machine{Spec: clusterv1.MachineSpec{Version: versions[0]}}
		if versions[1] != "" {
			m.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: versions[1]}
		}
		machines = append(machines, m)
	}
	want := []clusterv1.StatusVersion{{Version: "v1.36.9", Replicas: 1}, {Version: "v1.36.10", Replicas: 2}}
	if got := versionsOf(machines); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestNextRemedyCanBeDone chooses the machine that has never joined, because the machine with a user's annotation waits
// for it.
func TestNextRemedyCanBeDone(t *testing.T) {
	t.Parallel()
	plane := &v1alpha1.RunlevelControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "plane", UID: "1"}}
	plane.Status.Initialization.ControlPlaneInitialized = new(true)
	s := newSnapshot(plane, time.Unix(1000, 0))
	for _, name := range []string{"annotated", "unjoined", "healthy"} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			OwnerReferences: []metav1.OwnerReference{ownerOf(plane)},
		}}
		health, joined := metav1.ConditionFalse, name != "unjoined"
		switch name {
		case "annotated":
			m.Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: ""}
		case "healthy":
			health = metav1.ConditionTrue
			m.Status.Conditions = []metav1.Condition{{
				Type:   clusterv1.MachineAvailableCondition,
				Status: metav1.ConditionTrue,
			}}
		}
		if joined {
			m.Status.NodeRef.Name = name
		}
		m.Status.Conditions = append(m.Status.Conditions,
			metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: health},
			metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: health})
		s.machines[name] = m
	}
	next := s.nextRemedy()
	if next == nil || next.Machine.Name != "unjoined" || next.data == nil {
		t.Errorf("got %+v, want the replacement of unjoined", next)
	}
}

// TestRemedyBesideACompletedOne replaces another machine while the record of a remediation remains, since as many
// machines stay as wanted.
func TestRemedyBesideACompletedOne(t *testing.T) {
	t.Parallel()
	plane := &v1alpha1.RunlevelControlPlane{ObjectMeta: metav1.ObjectMeta{
		Name: "plane", UID: "1", Annotations: map[string]string{remediationInProgressAnnotation: `{"machine":"a"}`},
	}}
	plane.Spec.Replicas, plane.Status.Initialization.ControlPlaneInitialized = new(int32(3)), new(true)
	for _, isMissing := range []bool{false, true} {
		s := newSnapshot(plane, time.Unix(1000, 0))
		for _, name := range []string{"b", "c", "d", "e"} {
			m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
				Name:            name,
				OwnerReferences: []metav1.OwnerReference{ownerOf(plane)},
			}}
			m.Status.NodeRef.Name = name
			m.Status.Conditions = []metav1.Condition{{
				Type:   clusterv1.MachineAvailableCondition,
				Status: metav1.ConditionTrue,
			}}
			if name == "d" {
				m.Status.Conditions = []metav1.Condition{
					{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse},
					{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse},
				}
			}
			s.machines[name] = m
		}
		if isMissing {
			delete(s.machines, "b")
			delete(s.machines, "c")
		}
		if data, _, _ := s.remediation(s.machines["d"]); (data != nil) == isMissing {
			t.Errorf("with %d machines: got %+v, want a remediation: %t", len(s.machines), data, !isMissing)
		}
	}
}

// TestExpiryOfAMachineThatHasNotJoined checks that such a machine is not expired: where clocks differ, a new machine
// would be replaced at once.
func TestExpiryOfAMachineThatHasNotJoined(t *testing.T) {
	t.Parallel()
	plane := &v1alpha1.RunlevelControlPlane{}
	plane.Spec.Rollout.After = metav1.Unix(1000, 0)
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(999, 0)}}
	if outdated := outdatedBy(plane, m, MachineObjects{}, time.Unix(1001, 0)); len(outdated) > 0 {
		t.Errorf("got reasons %q, want none", outdated)
	}
	m.Status.NodeRef.Name = "m"
	if outdated := outdatedBy(plane, m, MachineObjects{}, time.Unix(1001, 0)); len(outdated) != 1 {
		t.Errorf("got reasons %q, want one", outdated)
	}
}
