package machinedeployment_test

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

// TestInPlace has the scenarios C1 and C2: which machines stay, within the limits of the rollout.
func TestInPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ replicas, surge, unavailable, stay int }{
		"C1: one may be unavailable": {3, 0, 1, 3},
		"C2: a surplus machine":      {3, 1, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			extension := f.extend(true, runtimev1.FailurePolicyFail)
			d := f.start(f.newDeployment(int32(c.replicas), c.surge, c.unavailable))
			before := identities(f.machines())
			stop := f.watchMachines()
			f.MustPatch(d, `{"spec":{"template":{"spec":{"failureDomain":"b","infrastructureRef":{"name":"medium"}}}}}`)
			f.awaitComplete(d, "medium")
			if most, fewest := stop(); most > c.replicas+c.surge || fewest < c.replicas-c.unavailable {
				t.Errorf("at most %d machines, at least %d available", most, fewest)
			}
			stayed := map[string]types.UID{}
			for name, machine := range f.machines() {
				if before[name] == machine.UID {
					stayed[name] = machine.UID
				}
				if machine.Spec.FailureDomain != "b" {
					t.Errorf("%s is in %q", name, machine.Spec.FailureDomain)
				}
			}
			if len(stayed) != c.stay || callsOf(extension, runtimehook.CanUpdateMachineSet) != 1 {
				t.Errorf("%d machines stay, asked %d times", len(stayed),
					callsOf(extension, runtimehook.CanUpdateMachineSet))
			}
			f.checkUpdated("medium", stayed)
			if calls := callsOf(extension, runtimehook.UpdateMachine); calls < c.stay {
				t.Errorf("%d calls of UpdateMachine", calls)
			}
		})
	}
}

// C3: an extension that covers a part only, and why machines are replaced.
func TestInPlacePartially(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	extension := f.extend(false, runtimev1.FailurePolicyFail)
	d := f.start(f.newDeployment(2, 0, 1))
	before := f.machines()
	for _, machine := range before {
		f.MustPatch(machine, `{"metadata":{"annotations":{%q:"test"}}}`, held)
	}
	f.MustPatch(d, `{"spec":{"template":{"spec":{"failureDomain":"b","infrastructureRef":{"name":"medium"}}}}}`)
	f.awaitDeployment(d, func(d *clusterv1.MachineDeployment) bool {
		return strings.HasSuffix(conditionMessage(d, clusterv1.RollingOutCondition),
			"\n* Replaced, not updated in place: machineSet "+
				"spec.template.spec.failureDomain is not covered by extension canupdatemachineset."+f.Namespace)
	})
	for _, machine := range before {
		f.MustPatch(machine, `{"metadata":{"annotations":{%q:null}}}`, held)
	}
	f.awaitComplete(d, "medium")
	for name := range f.machines() {
		if before[name] != nil {
			t.Errorf("%s is not replaced", name)
		}
	}
	if calls := callsOf(extension, runtimehook.UpdateMachine); calls > 0 {
		t.Errorf("%d calls of UpdateMachine", calls)
	}
}

// C7: an extension that fails holds the rollout, unless its failure policy is Ignore.
func TestInPlaceWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, policy := range []runtimev1.FailurePolicy{runtimev1.FailurePolicyFail, runtimev1.FailurePolicyIgnore} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			extension := f.extend(true, policy)
			extension.Serve(runtimehook.CanUpdateMachineSet, func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "out of order", http.StatusInternalServerError)
			})
			d := f.start(f.newDeployment(1, 0, 1))
			before := identities(f.machines())
			f.resize(d, "medium")
			stays := 0
			if policy == runtimev1.FailurePolicyFail {
				stays = 1
				f.awaitDeployment(d, func(d *clusterv1.MachineDeployment) bool {
					return strings.Contains(conditionMessage(d, clusterv1.ScalingUpCondition),
						"can be updated in place: extension canupdatemachineset.") &&
						callsOf(extension, runtimehook.CanUpdateMachineSet) > 2
				})
				if sets := f.sets(); len(sets) != 1 || *sets["small"].Spec.Replicas != 1 {
					t.Fatalf("%d sets although nothing was decided", len(sets))
				}
				extension.Serve(runtimehook.CanUpdateMachineSet, func(w http.ResponseWriter, r *http.Request) {
					cover(w, r, true)
				})
			}
			f.awaitComplete(d, "medium")
			for name, machine := range f.machines() {
				if before[name] == machine.UID {
					stays--
				}
			}
			if stays != 0 {
				t.Errorf("got %d machines that were updated or replaced, want none", stays)
			}
		})
	}
}

// An undiscovered extension holds the rollout. The rollout continues after the discovery.
func TestInPlaceOnceDiscovered(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	config := newExtension(t, true).Register(t, f, f.Namespace)
	d := f.start(f.newDeployment(1, 0, 1))
	before := identities(f.machines())
	f.resize(d, "medium")
	f.awaitDeployment(d, func(d *clusterv1.MachineDeployment) bool {
		return strings.Contains(conditionMessage(d, clusterv1.ScalingUpCondition), "is not discovered yet")
	})
	runtimehooktest.Discover(t, f, config, runtimev1.FailurePolicyFail, runtimehook.CanUpdateMachineSet,
		runtimehook.UpdateMachine)
	f.awaitComplete(d, "medium")
	f.checkUpdated("medium", before)
}

// TestInPlaceWhileTheWatchLags makes the watch of ExtensionConfigs lag behind: the extension that was just created
// counts, and the machine is not replaced.
func TestInPlaceWhileTheWatchLags(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	gate := machinetest.NewWatchGate("extensionconfigs")
	f.manageIn(gate.Config(stage.Sandbox(t).Config))
	d := f.start(f.newDeployment(1, 0, 1))
	before := identities(f.machines())
	gate.Close()
	t.Cleanup(gate.Open)
	f.extend(true, runtimev1.FailurePolicyFail)
	f.resize(d, "medium")
	f.Eventually("a machine is updated, or replaced", func() bool {
		for name, machine := range f.machines() {
			_, isPending := machine.Annotations[runtimev1.PendingHooksAnnotation]
			if isPending || machine.DeletionTimestamp != nil || before[name] == "" {
				return true
			}
		}
		return false
	})
	gate.Open()
	f.awaitComplete(d, "medium")
	f.checkUpdated("medium", before)
}

// C9: machines that a person deletes come back of the new template.
func TestNotInPlaceOnDelete(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	extension := f.extend(true, runtimev1.FailurePolicyFail)
	d := f.newDeployment(1, 1, 0)
	d.Spec.Rollout.Strategy = clusterv1.MachineDeploymentRolloutStrategy{
		Type: clusterv1.OnDeleteMachineDeploymentStrategyType,
	}
	d = f.start(d)
	before := f.machines()
	f.resize(d, "medium")
	f.awaitSet("medium", func(*clusterv1.MachineSet) bool { return true })
	for _, machine := range before {
		f.MustDelete(machine)
	}
	f.awaitComplete(d, "medium")
	if len(extension.Calls()) > 0 {
		t.Errorf("asked %v", extension.Calls())
	}
}

// TestInPlaceInTheMiddle makes a deployment change while a machine is updated in place.
func TestInPlaceInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change, template string
		machines, stay   int
	}{
		"another template": {`{"spec":{"template":{"spec":{"infrastructureRef":{"name":"large"}}}}}`, "large", 3, 3},
		"back again":       {`{"spec":{"template":{"spec":{"infrastructureRef":{"name":"small"}}}}}`, "small", 3, 3},
		"scaled up":        {`{"spec":{"replicas":4}}`, "medium", 4, 3},
		"scaled down":      {`{"spec":{"replicas":2}}`, "medium", 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			extension := f.extend(true, runtimev1.FailurePolicyFail)
			d := f.start(f.newDeployment(3, 0, 1))
			before := identities(f.machines())
			extension.Answer(runtimehook.UpdateMachine, inProgress)
			f.resize(d, "medium")
			f.awaitUpdating()
			f.MustPatch(d, "%s", c.change)
			f.awaitDeployment(d, func(*clusterv1.MachineDeployment) bool { return true })
			extension.Answer(runtimehook.UpdateMachine, done)
			f.awaitComplete(d, c.template)
			stayed := map[string]types.UID{}
			for name, machine := range f.machines() {
				if before[name] == machine.UID {
					stayed[name] = machine.UID
				}
			}
			if len(stayed) != c.stay || len(f.machines()) != c.machines {
				t.Errorf("%d of %d machines stay", len(stayed), len(f.machines()))
			}
			f.checkUpdated(c.template, stayed)
		})
	}
}

// If a machine is deleted during its update, it is recreated, and the others are updated.
func TestInPlaceDeletionWins(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	extension := f.extend(true, runtimev1.FailurePolicyFail)
	d := f.start(f.newDeployment(3, 0, 1))
	before := identities(f.machines())
	extension.Answer(runtimehook.UpdateMachine, inProgress)
	f.resize(d, "medium")
	updating := f.awaitUpdating()
	f.MustDelete(updating)
	f.AwaitGone(updating)
	extension.Answer(runtimehook.UpdateMachine, done)
	f.awaitComplete(d, "medium")
	delete(before, updating.Name)
	f.checkUpdated("medium", before)
	if len(f.machines()) != 3 {
		t.Errorf("%d machines", len(f.machines()))
	}
}

func conditionMessage(d *clusterv1.MachineDeployment, kind string) string {
	for _, condition := range d.Status.Conditions {
		if condition.Type == kind {
			return condition.Message
		}
	}
	return ""
}
