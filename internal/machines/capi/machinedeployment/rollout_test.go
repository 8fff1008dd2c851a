package machinedeployment_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// TestATemplateIsRolledOut has machines of another template take the place of others, within each limit.
func TestATemplateIsRolledOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ replicas, surge, unavailable int }{
		"a surplus machine first":         {2, 1, 0},
		"two machines may be missing":     {3, 0, 2},
		"a surplus and a missing machine": {3, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			d := f.start(f.newDeployment(int32(c.replicas), c.surge, c.unavailable))
			before, first := f.machines(), f.sets()["small"]
			stop := f.watchMachines()
			f.resize(d, "medium")
			d = f.awaitComplete(d, "medium")
			if most, fewest := stop(); most > c.replicas+c.surge || fewest < c.replicas-c.unavailable {
				t.Errorf("at most %d machines, at least %d available", most, fewest)
			}
			for name, machine := range f.machines() {
				if before[name] != nil || machine.Labels[clusterv1.MachineDeploymentNameLabel] != "web" ||
					machine.Labels["role"] != "web" {
					t.Errorf("%s: %v", name, machine.Labels)
				}
			}
			set := f.sets()["medium"]
			if d.Annotations[clusterv1.RevisionAnnotation] != "2" ||
				set.Annotations[clusterv1.RevisionAnnotation] != "2" ||
				first.Annotations[clusterv1.RevisionAnnotation] != "1" || !metav1.IsControlledBy(set, d) ||
				!strings.HasPrefix(set.Name, "web-") {
				t.Errorf("revisions: %v, %v, %v", d.Annotations, set.Annotations, first.Annotations)
			}
		})
	}
}

// Fields of a template that are propagated to existing machines do not cause new machines.
func TestLabelsAndTimeoutsReachExistingMachines(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := f.newDeployment(1, 1, 0)
	d.Spec.Template.Annotations = map[string]string{"first": "1"}
	d = f.start(d)
	f.MustPatch(d,
		`{"spec":{"template":{"metadata":{"labels":{"rack":"b"},"annotations":{"first":null}},"spec":{"deletion":{"nodeDrainTimeoutSeconds":30}}}}}`)
	for name := range f.machines() {
		machinetest.Await(t, f, &clusterv1.Machine{}, f.Key(name), func(m *clusterv1.Machine) bool {
			timeout := m.Spec.Deletion.NodeDrainTimeoutSeconds
			_, hasFirst := m.Annotations["first"]
			return m.Labels["rack"] == "b" && !hasFirst && timeout != nil && *timeout == 30
		})
	}
	if d = f.awaitComplete(d, "small"); d.Annotations[clusterv1.RevisionAnnotation] != "1" || len(f.machines()) != 1 {
		t.Errorf("revision %s, %d machines", d.Annotations[clusterv1.RevisionAnnotation], len(f.machines()))
	}
}

func TestOnDelete(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := f.newDeployment(2, 1, 0)
	d.Spec.Rollout.Strategy = clusterv1.MachineDeploymentRolloutStrategy{
		Type: clusterv1.OnDeleteMachineDeploymentStrategyType,
	}
	d = f.start(d)
	before := f.machines()
	f.resize(d, "medium")
	f.awaitDeployment(d, func(d *clusterv1.MachineDeployment) bool {
		return hasCondition(d, clusterv1.RollingOutCondition, metav1.ConditionTrue)
	})
	f.awaitSet("medium", func(set *clusterv1.MachineSet) bool { return *set.Spec.Replicas == 0 })
	small := f.awaitSet("small", func(set *clusterv1.MachineSet) bool {
		return set.Annotations[clusterv1.DisableMachineCreateAnnotation] == "true"
	})
	if *small.Spec.Replicas != 2 {
		t.Errorf("%d replicas of a template that was changed", *small.Spec.Replicas)
	}
	for _, machine := range before {
		f.MustDelete(machine)
		f.AwaitGone(machine)
	}
	f.awaitComplete(d, "medium")
}

// TestRolloutAfter rolls out again although the template has not changed.
func TestRolloutAfter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := f.start(f.newDeployment(1, 1, 0))
	before := f.machines()
	set := f.sets()["small"]
	after := set.CreationTimestamp.Add(1e9).UTC().Format("2006-01-02T15:04:05Z07:00")
	f.MustPatch(d, `{"spec":{"rollout":{"after":%q}}}`, after)
	for name := range before {
		machinetest.AwaitGone(t, f, &clusterv1.Machine{}, f.Key(name))
	}
	f.AwaitGone(set)
	f.awaitComplete(d, "small")
	if len(f.machines()) != 1 {
		t.Errorf("%d machines", len(f.machines()))
	}
}
