package machinedeployment_test

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

func TestAPauseInTheMiddle(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	f := newFixture(t)
	d := f.start(f.newDeployment(2, 1, 0))
	resume := f.stopInTheMiddle(d)
	f.MustPatch(d, `{"spec":{"paused":true}}`)
	f.awaitDeployment(d, func(*clusterv1.MachineDeployment) bool { return true })
	resume()
	f.awaitDeployment(d, func(d *clusterv1.MachineDeployment) bool { return *d.Status.Replicas == 2 })
	f.resize(d, "large") // has the controller look again
	f.awaitDeployment(d, func(d *clusterv1.MachineDeployment) bool {
		return hasCondition(d, clusterv1.RollingOutCondition, metav1.ConditionTrue)
	})
	if sets := f.sets(); len(sets) != 2 || *sets["small"].Spec.Replicas != 1 || *sets["medium"].Spec.Replicas != 1 {
		t.Fatalf("got %d sets: a paused rollout continues", len(sets))
	}
	// A deployment whose rollout is paused is scaled all the same.
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
	if err := f.SubResource("scale").Update(t.Context(), d, client.WithSubResourceBody(scale)); err != nil {
		t.Fatal(err)
	}
	// which set grows depends on their ages
	f.awaitDeployment(d, func(d *clusterv1.MachineDeployment) bool { return *d.Status.Replicas == 3 })
	f.MustPatch(d, `{"spec":{"paused":null}}`)
	f.awaitComplete(d, "large")
}

func TestAnotherTemplateInTheMiddle(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	f := newFixture(t)
	d := f.start(f.newDeployment(2, 1, 0))
	stop := f.watchMachines()
	resume := f.stopInTheMiddle(d)
	f.resize(d, "large")
	f.awaitSet("large", func(*clusterv1.MachineSet) bool { return true })
	resume()
	d = f.awaitComplete(d, "large")
	if most, fewest := stop(); most > 3 || fewest < 2 {
		t.Errorf("at most %d machines, at least %d available", most, fewest)
	}
	if revision := d.Annotations[clusterv1.RevisionAnnotation]; revision != "3" {
		t.Errorf("revision %s, not 3", revision)
	}
}

// A template that comes back finds its set.
func TestRollbackInTheMiddle(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := f.start(f.newDeployment(2, 1, 0))
	first := f.sets()["small"]
	resume := f.stopInTheMiddle(d)
	f.resize(d, "small")
	f.awaitSet("small", func(set *clusterv1.MachineSet) bool {
		return set.UID == first.UID && set.Annotations[clusterv1.RevisionAnnotation] == "3" &&
			set.Annotations["machinedeployment.clusters.x-k8s.io/revision-history"] == "1"
	})
	resume()
	f.awaitComplete(d, "small")
	if set := f.sets()["small"]; set.UID != first.UID {
		t.Error("another set with the first template")
	}
}

func TestRestartInTheMiddle(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	stopControllers := f.manage()
	d := f.start(f.newDeployment(2, 1, 0))
	stop := f.watchMachines()
	resume := f.stopInTheMiddle(d)
	medium := f.sets()["medium"]
	stopControllers()
	resume()
	f.manage()
	f.awaitComplete(d, "medium")
	if most, fewest := stop(); most > 3 || fewest < 2 || f.sets()["medium"].UID != medium.UID {
		t.Errorf("at most %d machines, at least %d available", most, fewest)
	}
}

func TestADeletedDeploymentWaitsForItsMachines(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := f.start(f.newDeployment(1, 1, 0))
	for _, machine := range f.machines() {
		f.MustPatch(machine, `{"metadata":{"annotations":{%q:"test"}}}`, held)
	}
	f.MustDelete(d)
	f.awaitDeployment(d, func(d *clusterv1.MachineDeployment) bool {
		return hasCondition(d, clusterv1.DeletingCondition, metav1.ConditionTrue)
	})
	for name, machine := range f.machines() {
		machinetest.Await(t, f, &clusterv1.Machine{}, f.Key(name), func(m *clusterv1.Machine) bool {
			return m.DeletionTimestamp != nil
		})
		f.awaitDeployment(d, func(*clusterv1.MachineDeployment) bool { return true })
		f.MustPatch(machine, `{"metadata":{"annotations":{%q:null}}}`, held)
	}
	f.AwaitGone(d)
	if machines, sets := f.machines(), f.sets(); len(machines)+len(sets) > 0 {
		t.Errorf("the deployment was deleted before %d machines and %d sets", len(machines), len(sets))
	}
}

// kubectl delete --cascade=orphan leaves sets, which another deployment adopts.
func TestSetsOfADeletedDeploymentAreAdopted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := f.start(f.newDeployment(1, 1, 0))
	set, machines := f.sets()["small"], f.machines()
	last := set.DeepCopy()
	last.ObjectMeta = f.Meta("last")
	last.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} // no controller gives it another owner
	last.Spec.Replicas = new(int32)
	last.Spec.Selector.MatchLabels = map[string]string{"set": "last"}
	last.Spec.Template.Labels = last.Spec.Selector.MatchLabels
	machinetest.AwaitCollector(t, f, last)
	f.MustDelete(d, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	f.AwaitGone(d)
	again := f.start(f.newDeployment(1, 1, 0))
	if now := f.sets()["small"]; now.UID != set.UID || !metav1.IsControlledBy(now, again) {
		t.Errorf("set: got %v, want UID %s and the new deployment as controller", now.ObjectMeta, set.UID)
	}
	for name := range machines {
		if f.machines()[name] == nil {
			t.Errorf("%s was deleted", name)
		}
	}
}

func TestInvalidDeploymentsReportTheProblem(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := f.newDeployment(1, 1, 0)
	d.Spec.Template.Spec.InfrastructureRef.Name = "missing"
	f.MustCreate(d)
	awaitMessage := func(want string) {
		t.Helper()
		f.awaitDeployment(d, func(d *clusterv1.MachineDeployment) bool { return scalingUp(d) == want })
	}
	f.awaitDeployment(d, func(d *clusterv1.MachineDeployment) bool { return scalingUp(d) != "" })
	f.MustCreate(f.newTemplate("missing"))
	f.awaitComplete(d, "missing")
	f.MustPatch(d, `{"spec":{"rollout":{"strategy":{"rollingUpdate":{"maxSurge":0}}}}}`)
	awaitMessage("spec.rollout.strategy.rollingUpdate: maxSurge and maxUnavailable are both 0, so no machine could " +
		"be replaced")
	f.MustPatch(d,
		`{"spec":{"rollout":{"strategy":{"rollingUpdate":{"maxSurge":1}}},"template":{"metadata":{"labels":{"role":"db"}}}}}`)
	awaitMessage(`spec.selector "role=web" does not match the labels in spec.template.metadata.labels: "role=db"`)
	if len(f.machines()) != 1 {
		t.Errorf("%d machines", len(f.machines()))
	}
}

func scalingUp(d *clusterv1.MachineDeployment) string {
	for _, condition := range d.Status.Conditions {
		if condition.Type == clusterv1.ScalingUpCondition {
			return condition.Message
		}
	}
	return ""
}
