package overview

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
)

// TestWhatBecomesOfAMachineOfAControlPlane: what the explanations of a control plane and of its machine have, of states
// that pass quickly.
func TestWhatBecomesOfAMachineOfAControlPlane(t *testing.T) {
	updating := map[string]string{clusterv1.UpdateInProgressAnnotation: ""}
	requested := map[string]string{annotation.UpdateRequested: now.Add(-time.Second).Format(time.RFC3339)}
	for name, c := range map[string]struct {
		annotations      map[string]string
		upToDate         metav1.Condition
		standing, become string
	}{
		"one that is updated": {updating,
			metav1.Condition{Status: "False", Reason: "Updating", Message: "* step 2 of 3"},
			"updated in place", "updates it in place"},
		"one without an answer": {requested,
			metav1.Condition{Status: "False", Reason: "NotUpToDate", Message: "* Version v1, v2 required"},
			"outdated, and the etcd quorum guard does not permit its update in place yet: it has not answered yet, " +
				"Version v1, v2 required",
			"is to update it in place, and waits for the etcd quorum guard to permit that: it has not answered yet"},
		"one whose request is left": {requested, metav1.Condition{Status: "True", Reason: "UpToDate"},
			"up to date, and not available", "has it, and it is up to date, and not available"},
	} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}}
		c.upToDate.Type = clusterv1.MachineUpToDateCondition
		m.Status.Conditions = []metav1.Condition{c.upToDate}
		standing, why := standingOf(m, now)
		if got := standing.with(why); got != c.standing {
			t.Errorf("%s: %q, want %q", name, got, c.standing)
		}
		f := &planeFacts{plane: &v1alpha1.RunlevelControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "plane"}}}
		got, _ := f.replacing(m, now)
		if want := "RunlevelControlPlane plane " + c.become; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
