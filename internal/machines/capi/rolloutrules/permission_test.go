package rolloutrules

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/annotation"
)

// TestPermission asks the quorum guard, and looks at the answer later.
func TestPermission(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.November, 28, 12, 0, 0, 0, time.UTC)
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/" + QuorumHook: "clusteroperator/etcd",
	}}}
	expect := func(when string, after time.Duration, awaits, isPermitted, mayBegin bool) {
		t.Helper()
		then := now.Add(after)
		if AwaitsPermission(m, then) != awaits || IsPermitted(m, then) != isPermitted || MayBegin(m, then) != mayBegin {
			t.Errorf("%s, %s: got waiting %t, permitted %t, may begin %t, want %t, %t, %t", when, after,
				AwaitsPermission(m, then), IsPermitted(m, then), MayBegin(m, then), awaits, isPermitted, mayBegin)
		}
	}
	expect("without a request", 0, false, false, false)
	Request(m, now)
	expect("requested", 0, true, false, false)
	expect("requested by a fast clock", -time.Second, false, false, false)
	expect("requested", 59*time.Second, true, false, false)
	expect("requested", time.Minute, false, false, false)
	m.Annotations[annotation.UpdateHeld] = "a member does not answer"
	Permit(m)
	if reason, ok := m.Annotations[annotation.UpdateHeld]; ok {
		t.Errorf("the permitted machine is held: %s", reason)
	}
	expect("permitted", 59*time.Second, false, true, true)
	expect("permitted, by a slow clock", -time.Minute, false, false, true)
	expect("permitted", time.Minute, false, false, true)
	expect("permitted", 2*time.Minute, false, false, false)
	Request(m, now.Add(time.Minute))
	expect("requested again", time.Minute, true, false, false)
	DropRequest(m)
	expect("withdrawn", time.Minute, false, false, false)
	delete(m.Annotations, clusterv1.PreTerminateDeleteHookAnnotationPrefix+"/"+QuorumHook)
	expect("without a guard", 0, false, true, false)
}
