package machinedeployment_test

import (
	"testing"

	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// leastWrites is the least number of writes of an update of one machine in place.
const leastWrites = 10

// TestInPlaceRestartBetweenWrites kills the controllers before writes of an update in place, one after the other, at
// each of its five steps (C11). Other controllers continue, and the machine stays the same.
func TestInPlaceRestartBetweenWrites(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	f.extend(true, runtimev1.FailurePolicyFail)
	stop := f.manage()
	d := f.start(f.newDeployment(1, 0, 1))
	before := identities(f.machines())
	stop()
	step, template := 4, "small"
	if sandboxtest.IsThorough() {
		step = 1
	}
	for number, isCut := 1, true; isCut; number += step {
		template = map[string]string{"small": "medium", "medium": "small"}[template]
		cut := sandboxtest.NewCut(number)
		stop := f.manageIn(sandboxtest.Before(stage.Sandbox(t).Config, cut.Check))
		f.resize(d, template)
		isCut = f.awaitCutOrUpdated(cut, template)
		stop()
		if !isCut && number <= leastWrites {
			t.Fatalf("the controllers did not die at write %d", number)
		}
		stop = f.manage()
		f.awaitComplete(d, template)
		stop()
		f.checkUpdated(template, before)
		if len(f.machines()) != 1 || t.Failed() {
			t.Fatalf("%d machines after the controllers died before write %d: %s", len(f.machines()), number,
				cut.Missed())
		}
	}
}

// awaitCutOrUpdated waits until the controllers are cut off or have completed a rollout. It returns whether they are
// cut off.
func (f *fixture) awaitCutOrUpdated(cut *sandboxtest.ConnectionCut, template string) bool {
	f.Helper()
	f.Eventually("the controllers are cut off, or all machines are of template "+template, func() bool {
		sets := f.sets()
		return cut.Missed() != "" || len(sets) == 1 && sets[template] != nil
	})
	return cut.Missed() != ""
}
