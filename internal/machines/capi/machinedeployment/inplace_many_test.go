package machinedeployment_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var crowd = flag.Int("crowd", 20, "how many machines are updated in place at once")

// TestInPlaceCrowd has many machines updated at once, and the controllers start again while they are moved and while
// they are updated.
func TestInPlaceCrowd(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	f := newIdleFixture(t)
	extension := f.extend(true, runtimev1.FailurePolicyFail)
	extension.Answer(runtimehook.UpdateMachine, inProgress)
	stop := f.manage()
	d := f.start(f.newDeployment(int32(*crowd), 0, *crowd))
	before := identities(f.machines())
	began := time.Now()
	f.resize(d, "medium")
	for _, c := range []struct {
		annotation string
		machines   int
	}{
		{clusterv1.UpdateInProgressAnnotation, 1}, {clusterv1.UpdateInProgressAnnotation, *crowd / 2},
		{runtimev1.PendingHooksAnnotation, 1}, {runtimev1.PendingHooksAnnotation, *crowd},
	} {
		f.awaitAnnotated(c.annotation, c.machines)
		stop()
		stop = f.manage()
	}
	extension.Answer(runtimehook.UpdateMachine, done)
	f.awaitComplete(d, "medium")
	t.Logf("%d machines updated in place in %s", *crowd, time.Since(began).Round(time.Second))
	f.checkUpdated("medium", before)
	if len(f.machines()) != *crowd {
		t.Errorf("%d machines", len(f.machines()))
	}
}

// awaitAnnotated waits until so many machines have an annotation.
func (f *fixture) awaitAnnotated(annotation string, wanted int) {
	f.Helper()
	f.Eventually(fmt.Sprintf("%d machines with annotation %s", wanted, annotation), func() bool {
		count := 0
		for _, machine := range f.machines() {
			if _, hasIt := machine.Annotations[annotation]; hasIt {
				count++
			}
		}
		return count >= wanted
	})
}
