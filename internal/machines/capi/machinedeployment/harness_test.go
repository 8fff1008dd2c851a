package machinedeployment_test

import (
	"os"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi"
	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment"
	"github.com/runlevel/runlevel/internal/machines/capi/machineset"
	"github.com/runlevel/runlevel/internal/machines/infra/kwok"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var stage = machinetest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }

// held is a hook that keeps a deleted machine: a rollout stays in its middle.
const held = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/held"

// A fixture is the namespace of one test, with a Cluster and templates, and a client.
type fixture struct{ *machinetest.Fixture }

// newFixture creates a namespace, and runs the controllers for it until the test ends.
func newFixture(t testing.TB) *fixture {
	f := newIdleFixture(t)
	f.manage()
	return f
}

// newIdleFixture creates a namespace that no controller reconciles yet.
func newIdleFixture(t testing.TB) *fixture {
	f := &fixture{stage.NewFixture(t)}
	f.MustCreate(f.NewCluster(), f.newTemplate("small"), f.newTemplate("medium"), f.newTemplate("large"),
		&v1alpha1.KwokConfigTemplate{ObjectMeta: f.Meta("plain")})
	return f
}

func (f *fixture) newTemplate(name string) *v1alpha1.KwokMachineTemplate {
	template := &v1alpha1.KwokMachineTemplate{ObjectMeta: f.Meta(name)}
	template.Spec.Template.Spec.Node.Labels = map[string]string{"size": name, "only-" + name: "yes"}
	return template
}

// manage runs the controllers of deployments, sets, machines and infrastructure, which see this namespace only.
func (f *fixture) manage() (stop func()) {
	f.Helper()
	return f.manageIn(stage.Sandbox(f).Config)
}

func (f *fixture) manageIn(reach *rest.Config) (stop func()) {
	f.Helper()
	return stage.ManageIn(f, f.Namespace, reach, func(m ctrl.Manager) error {
		for _, add := range []func(ctrl.Manager) error{
			setUpDeployments, setUpSets, kwok.SetupWithManager, kwok.SetupConfigsWithManager,
		} {
			if err := add(m); err != nil {
				return err
			}
		}
		return capi.SetupWithManager(f.Context(), m, capi.Options{})
	})
}

func setUpDeployments(m ctrl.Manager) error {
	return machinedeployment.SetupWithManager(m, runtimehook.NewInPlaceHooks(m.GetClient(), m.GetAPIReader()))
}

func setUpSets(m ctrl.Manager) error {
	return machineset.SetupWithManager(m, machineset.Options{})
}

// newDeployment returns one of small machines.
func (f *fixture) newDeployment(replicas int32, surge, unavailable int) *clusterv1.MachineDeployment {
	labels := map[string]string{"role": "web"}
	d := &clusterv1.MachineDeployment{ObjectMeta: f.Meta("web")}
	d.Spec = clusterv1.MachineDeploymentSpec{
		ClusterName: "c",
		Replicas:    &replicas,
		Selector:    metav1.LabelSelector{MatchLabels: labels},
	}
	d.Spec.Rollout.Strategy.Type = clusterv1.RollingUpdateMachineDeploymentStrategyType
	most, fewest := intstr.FromInt(surge), intstr.FromInt(unavailable)
	d.Spec.Rollout.Strategy.RollingUpdate.MaxSurge, d.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = &most,
		&fewest
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec = machinetest.MachineSpec()
	return d
}

// resize makes a deployment want machines of another template.
func (f *fixture) resize(d *clusterv1.MachineDeployment, template string) {
	f.Helper()
	f.MustPatch(d, `{"spec":{"template":{"spec":{"infrastructureRef":{"name":%q}}}}}`, template)
}

// machines returns the machines of the namespace, by name.
func (f *fixture) machines() map[string]*clusterv1.Machine {
	f.Helper()
	var list clusterv1.MachineList
	f.MustList(&list)
	found := map[string]*clusterv1.Machine{}
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	return found
}

// sets returns the sets of the namespace, by the infrastructure template of their machines.
func (f *fixture) sets() map[string]*clusterv1.MachineSet {
	f.Helper()
	var list clusterv1.MachineSetList
	f.MustList(&list)
	found := map[string]*clusterv1.MachineSet{}
	for i := range list.Items {
		found[list.Items[i].Spec.Template.Spec.InfrastructureRef.Name] = &list.Items[i]
	}
	if len(found) != len(list.Items) {
		f.Fatalf("%d sets of %d templates", len(list.Items), len(found))
	}
	return found
}

// awaitDeployment waits until a deployment is as wanted, and its status reports its newest generation.
func (f *fixture) awaitDeployment(d *clusterv1.MachineDeployment,
	isWanted func(*clusterv1.MachineDeployment) bool) *clusterv1.MachineDeployment {
	f.Helper()
	return machinetest.Await(f, f, &clusterv1.MachineDeployment{}, client.ObjectKeyFromObject(d),
		func(d *clusterv1.MachineDeployment) bool {
			return d.Status.ObservedGeneration == d.Generation && isWanted(d)
		})
}

// awaitComplete waits until all machines are those of a template and available, and the other sets are deleted.
func (f *fixture) awaitComplete(d *clusterv1.MachineDeployment, template string) *clusterv1.MachineDeployment {
	f.Helper()
	return f.awaitDeployment(d, func(d *clusterv1.MachineDeployment) bool {
		want := *d.Spec.Replicas
		s := d.Status
		if s.UpToDateReplicas == nil || *s.UpToDateReplicas != want || *s.AvailableReplicas != want ||
			*s.Replicas != want {
			return false
		}
		sets := f.sets()
		return len(sets) == 1 && sets[template] != nil &&
			hasCondition(d, clusterv1.MachinesUpToDateCondition, metav1.ConditionTrue) &&
			hasCondition(d, clusterv1.RollingOutCondition, metav1.ConditionFalse)
	})
}

// awaitSet waits until the set of a template is as wanted.
func (f *fixture) awaitSet(template string, isWanted func(*clusterv1.MachineSet) bool) *clusterv1.MachineSet {
	f.Helper()
	var name string
	f.Eventually("a set of template "+template, func() bool {
		set := f.sets()[template]
		if set != nil {
			name = set.Name
		}
		return set != nil
	})
	return machinetest.Await(f, f, &clusterv1.MachineSet{}, f.Key(name), isWanted)
}

// start creates a deployment of small machines, and waits until they are available.
func (f *fixture) start(d *clusterv1.MachineDeployment) *clusterv1.MachineDeployment {
	f.Helper()
	f.MustCreate(d)
	return f.awaitComplete(d, "small")
}

// stopInTheMiddle begins a rollout to medium machines, and blocks the deletion of the first machine. It returns a
// function that lets the rollout continue.
func (f *fixture) stopInTheMiddle(d *clusterv1.MachineDeployment) (resume func()) {
	f.Helper()
	small := f.machines()
	for _, machine := range small {
		f.MustPatch(machine, `{"metadata":{"annotations":{%q:"test"}}}`, held)
	}
	f.resize(d, "medium")
	f.awaitSet("small", func(set *clusterv1.MachineSet) bool { return *set.Spec.Replicas < int32(len(small)) })
	f.awaitSet("medium", func(set *clusterv1.MachineSet) bool {
		return set.Status.AvailableReplicas != nil && *set.Status.AvailableReplicas == 1
	})
	return func() {
		f.Helper()
		for _, machine := range small {
			f.MustPatch(machine, `{"metadata":{"annotations":{%q:null}}}`, held)
		}
	}
}

func hasCondition(d *clusterv1.MachineDeployment, kind string, status metav1.ConditionStatus) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == kind && c.Status == status
	})
}
