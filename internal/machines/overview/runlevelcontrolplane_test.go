package overview

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
)

// TestMemberStates compares the explanations of a control plane and of its machine in short-lived states.
func TestMemberStates(t *testing.T) {
	updating := map[string]string{clusterv1.UpdateInProgressAnnotation: ""}
	requested := map[string]string{annotation.UpdateRequested: now.Add(-time.Second).Format(time.RFC3339)}
	for name, c := range map[string]struct {
		annotations        map[string]string
		upToDate           metav1.Condition
		state, replacement string
	}{
		"updated": {updating,
			metav1.Condition{Status: "False", Reason: "Updating", Message: "* step 2 of 3"},
			"updated in place", "updates it in place"},
		"without an answer": {requested,
			metav1.Condition{Status: "False", Reason: "NotUpToDate", Message: "* Version v1, v2 required"},
			"outdated, and the etcd quorum guard does not permit its update in place yet: it has not answered yet, " +
				"Version v1, v2 required",
			"waits for the etcd quorum guard to permit its update in place: it has not answered yet"},
		"with an old request": {requested, metav1.Condition{Status: "True", Reason: "UpToDate"},
			"up to date, and not available", "has it, and it is up to date, and not available"},
	} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}}
		c.upToDate.Type = clusterv1.MachineUpToDateCondition
		m.Status.Conditions = []metav1.Condition{c.upToDate}
		state, reasons := memberStateOf(m, now)
		if got := state.withReasons(reasons); got != c.state {
			t.Errorf("%s: got state %q, want %q", name, got, c.state)
		}
		f := &planeFacts{plane: &v1alpha1.RunlevelControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "plane"}}, now: now}
		e := &diagnosis.Explanation{}
		f.addReplacement(e, m)
		if got, want := e.Messages[0].Text, "RunlevelControlPlane plane "+c.replacement; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
