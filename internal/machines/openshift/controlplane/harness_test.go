package controlplane_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/infra/external"
	"github.com/runlevel/runlevel/internal/machines/infra/kwok"
	"github.com/runlevel/runlevel/internal/machines/openshift"
	"github.com/runlevel/runlevel/internal/machines/openshift/controlplane"
	"github.com/runlevel/runlevel/internal/machines/openshift/nodelink"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var stage = machinetest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }

// A fixture is the namespace of one test, with the machines of a control plane. Their nodes don't have the label of the
// control plane: the nodes of one test would be unmanaged in the others.
type fixture struct{ *machinetest.Fixture }

// newFixture creates a namespace.
func newFixture(t *testing.T) *fixture {
	t.Parallel()
	return &fixture{stage.NewFixture(t)}
}

// manageMachines runs the controllers of Machines and infrastructure until the test ends. One process handles the
// machines of all namespaces: two would give the same address to machines.
func manageMachines(t *testing.T) {
	t.Helper()
	stage.ManageAs(t, stage.Sandbox(t).Config, func(m ctrl.Manager) error {
		return errors.Join(
			kwok.SetupWithManager(m), external.SetupWithManager(m),
			nodelink.SetupWithManager(t.Context(), m),
			openshift.SetupWithManager(t.Context(), m, openshift.Options{}),
		)
	})
}

// manage runs all controllers until the test ends.
func manage(t *testing.T) {
	t.Helper()
	manageMachines(t)
	stage.ManageAs(t, stage.Sandbox(t).Config, controlplane.SetupWithManager)
}

// labelsOf are the labels that a set's definition asks for.
const labelsOf = `{machine.openshift.io/cluster-api-cluster: shop, machine.openshift.io/cluster-api-machine-role: master, machine.openshift.io/cluster-api-machine-type: master}`

// name returns the name of a machine, which is that of its node: other tests have other nodes.
func (f *fixture) name(short string) string { return f.Namespace + "-" + short }

// machine returns a machine to be changed.
func (f *fixture) machine(short string) *machinev1beta1.Machine {
	return &machinev1beta1.Machine{ObjectMeta: f.Meta(f.name(short))}
}

// addMachines creates machines with a providerSpec.value each, and waits until they run.
func (f *fixture) addMachines(values map[string]string) {
	f.Helper()
	for name, value := range values {
		machine := f.machine(name)
		f.Must(yaml.Unmarshal([]byte(labelsOf), &machine.Labels))
		f.Must(yaml.Unmarshal([]byte(`{providerSpec: {value: `+value+`}}`), &machine.Spec))
		f.MustCreate(machine)
	}
	for name := range values {
		f.AwaitMachine(f.name(name), func(m *machinev1beta1.Machine) bool {
			return m.Status.Phase != nil && *m.Status.Phase == machinev1beta1.PhaseRunning
		})
	}
}

// kwokValue returns the providerSpec.value of a simulated machine, in a rack of a size. Its end takes a while, in which
// it is counted.
func kwokValue(rack, size string) string {
	return fmt.Sprintf(`{apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: KwokMachine, spec: {deleteAfter: 1s, node: {labels: {rack: %s, size: %s}}}}`, rack, size)
}

// addThree adds three machines of size small in racks a, b and c.
func (f *fixture) addThree() {
	f.Helper()
	f.addMachines(map[string]string{
		"a": kwokValue("a", "small"),
		"b": kwokValue("b", "small"),
		"c": kwokValue("c", "small"),
	})
}

// newSet returns a set of simulated machines in racks a, b and c.
func (f *fixture) newSet(state, strategy, size string) *machinev1.ControlPlaneMachineSet {
	f.Helper()
	set := &machinev1.ControlPlaneMachineSet{ObjectMeta: f.Meta("cluster")}
	f.Must(yaml.UnmarshalStrict([]byte(fmt.Sprintf(`
state: %s
replicas: 3
strategy: {type: %s}
selector: {matchLabels: {machine.openshift.io/cluster-api-machine-role: master}}
template:
  machineType: machines_v1beta1_machine_openshift_io
  machines_v1beta1_machine_openshift_io:
    metadata: {labels: %s}
    spec: {providerSpec: {value: {
      apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: KwokMachine,
      failureDomains: [{node: {labels: {rack: a}}}, {node: {labels: {rack: b}}}, {node: {labels: {rack: c}}}],
      spec: {deleteAfter: 1s, node: {labels: {size: %s}}}}}}
`, state, strategy, labelsOf, size)), &set.Spec))
	return set
}

// awaitCondition waits until a set's status has a condition, with a text in its message, and returns the set.
func (f *fixture) awaitCondition(kind string, status metav1.ConditionStatus, reason,
	text string) *machinev1.ControlPlaneMachineSet {
	f.Helper()
	return machinetest.Await(f, f, &machinev1.ControlPlaneMachineSet{}, f.Key("cluster"),
		func(set *machinev1.ControlPlaneMachineSet) bool {
			condition := meta.FindStatusCondition(set.Status.Conditions, kind)
			return condition != nil && condition.ObservedGeneration == set.Generation && condition.Status == status &&
				condition.Reason == reason && strings.Contains(condition.Message, text)
		})
}

func (f *fixture) machines() []machinev1beta1.Machine {
	f.Helper()
	var list machinev1beta1.MachineList
	f.MustList(&list)
	return list.Items
}

// owned returns the names of the machines that a set owns.
func (f *fixture) owned() []string {
	f.Helper()
	var names []string
	for _, m := range f.machines() {
		if owner := metav1.GetControllerOf(&m); owner != nil && owner.Kind == "ControlPlaneMachineSet" {
			names = append(names, m.Name)
		}
	}
	return names
}

// expectRacks compares the racks and sizes of the machines.
func (f *fixture) expectRacks(want string) {
	f.Helper()
	if got := f.racks(); got != want {
		f.Errorf("racks and sizes of the machines: got %s, want %s", got, want)
	}
}

// racks returns the racks of the machines, which their nodes have as a label.
func (f *fixture) racks() string {
	f.Helper()
	var racks []string
	for _, m := range f.machines() {
		var value struct {
			Spec struct {
				Node struct{ Labels map[string]string }
			}
			FailureDomains any
		}
		f.Must(yaml.Unmarshal(m.Spec.ProviderSpec.Value.Raw, &value))
		if value.FailureDomains != nil {
			f.Errorf("%s has the failure domains of the template", m.Name)
		}
		racks = append(racks, value.Spec.Node.Labels["rack"]+":"+value.Spec.Node.Labels["size"])
	}
	slices.Sort(racks)
	return strings.Join(racks, " ")
}

func (f *fixture) deleteMachine(name string) {
	f.Helper()
	f.MustDelete(f.machine(name), client.PropagationPolicy(metav1.DeletePropagationBackground))
}
