package drain_test

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/drain"
)

// writeConditions writes conditions for the deletion of a machine, and returns the node after that.
func (f *fixture) writeConditions(wanted drain.Conditions) *corev1.Node {
	f.Helper()
	report := drain.Report{Reason: drain.MachineDeletion, Machine: "test/a", Conditions: wanted}
	if err := drain.WriteConditions(f.Context(), f.client, f.node, report); err != nil {
		f.Fatal(err)
	}
	var err error
	if f.node, err = f.client.CoreV1().Nodes().Get(f.Context(), f.node.Name, metav1.GetOptions{}); err != nil {
		f.Fatal(err)
	}
	return f.node
}

// patchStatus writes the status of the node, as another writer does.
func (f *fixture) patchStatus(patch string) {
	f.Helper()
	var err error
	if f.node, err = f.client.CoreV1().Nodes().Patch(f.Context(), f.node.Name, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		f.Fatal(err)
	}
}

// statuses returns the statuses of the node's conditions.
func statuses(node *corev1.Node) map[corev1.NodeConditionType]corev1.ConditionStatus {
	all := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, c := range node.Status.Conditions {
		all[c.Type] = c.Status
	}
	return all
}

// TestConditionsOfADrain drains a node with the conditions of its kubelet, and of an administrator who plans something
// else.
func TestConditionsOfADrain(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.patchStatus(`{"status": {"conditions": [
		{"type": "MaintenancePlanned", "status": "True", "reason": "Window"}, {"type": "Disk", "status": "True"}]}}`)
	want := statuses(d.node)
	if got := statuses(d.writeConditions(drain.DeletionConditions(true, false))); !maps.Equal(got, want) {
		t.Errorf("conditions of a schedulable node: got %v, want %v", got, want)
	}
	if err := drain.Cordon(t.Context(), d.client, d.node); err != nil {
		t.Fatal(err)
	}
	want[corev1.NodeDrainInProgress] = corev1.ConditionTrue
	if got := statuses(d.writeConditions(drain.DeletionConditions(true, false))); !maps.Equal(got, want) {
		t.Errorf("conditions during the drain: got %v, want %v", got, want)
	}
	want[corev1.NodeDrainInProgress], want[corev1.NodeDrained] = corev1.ConditionFalse, corev1.ConditionTrue
	if got := statuses(d.writeConditions(drain.DeletionConditions(false, true))); !maps.Equal(got, want) {
		t.Errorf("conditions after the drain: got %v, want %v", got, want)
	}
	want[corev1.NodeDrained] = corev1.ConditionFalse
	if got := statuses(d.writeConditions(drain.Ended)); !maps.Equal(got, want) {
		t.Errorf("conditions after the deletion: got %v, want %v", got, want)
	}
	if planned := conditions.OfNode(d.node, corev1.NodeMaintenancePlanned); planned.Reason != "Window" {
		t.Errorf("the administrator's condition: got reason %q, want Window", planned.Reason)
	}
}

// TestConditionsAreWrittenOnce has a user without rights: only a change needs a request.
func TestConditionsAreWrittenOnce(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	node := d.writeConditions(drain.DeletionConditions(false, false))
	report := drain.Report{Reason: drain.MachineDeletion, Machine: "test/a"}
	write := func(wanted drain.Conditions) error {
		report.Conditions = wanted
		return drain.WriteConditions(t.Context(), unthrottled(t, "nobody"), node, report)
	}
	if err := write(drain.DeletionConditions(false, false)); err != nil {
		t.Errorf("write the same conditions: got %v, want no request", err)
	}
	want := "write the conditions of node " + node.Name + ": "
	if err := write(drain.Ended); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("write without the right: got %v, want %s…", err, want)
	}
	node.UID = "before"
	if err := drain.WriteConditions(t.Context(), d.client, node, report); err == nil {
		t.Error("write the conditions of another node of that name: got no error")
	}
}
