package cli

import (
	"context"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/manifests"
)

// machineDemo is the last act of the demo, on the control plane of the others.
type machineDemo struct {
	demo
	deleted string // the machine that is deleted
}

// controllerName is the program that the Deployment of the machine controller runs.
const controllerName = "machine-controller"

const demoMachineNamespace = "hello-machines"

// demoMachineSet is what the last act makes: machines that have a Node, and nothing behind it.
const demoMachineSet = `
apiVersion: machine.openshift.io/v1beta1
kind: MachineSet
metadata: {name: web, namespace: ` + demoMachineNamespace + `}
spec:
  replicas: 2
  selector: {matchLabels: {set: web}}
  template:
    metadata: {labels: {set: web}}
    spec:
      lifecycleHooks:
        preDrain: [{name: Backup, owner: backup-operator}]
      providerSpec:
        value: {apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: KwokMachine}
`

var (
	machineSetsResource = schema.GroupVersionResource{Group: "machine.openshift.io", Version: "v1beta1", Resource: "machinesets"}
	machinesResource    = schema.GroupVersionResource{Group: "machine.openshift.io", Version: "v1beta1", Resource: "machines"}
)

// withMachines tells the last act, if the program of the machine controller is beside this one.
func (d *demo) withMachines(ctx context.Context) error {
	return d.withPods(ctx, controllerName, "runlevel-machines", "the last act, with machines", func(string) error {
		m := &machineDemo{demo: *d}
		return play(ctx, m.installController, m.makeMachines, m.deleteMachine, m.letMachineGo, m.withGuard)
	})
}

// installController applies the bundled payload, as a release of its own.
func (d *machineDemo) installController(ctx context.Context) error {
	return d.applyBundled(ctx, manifests.Files(), "manifests", "machines")
}

// applyBundled applies a payload of this program, as a release of its own.
func (d *machineDemo) applyBundled(ctx context.Context, files fs.FS, source, name string) error {
	d.title("runlevel apply " + source + " --name " + name)
	return d.applyPayload(ctx, files, source, name, func(*reporter, *session.Options) {})
}

// makeNamespace makes a namespace.
func (d *machineDemo) makeNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := d.cluster.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	return err
}

// makeMachines makes a MachineSet, and waits until its machines run.
func (d *machineDemo) makeMachines(ctx context.Context) error {
	d.title("two machines, which a backup operator holds by a hook before they are drained")
	if err := d.makeNamespace(ctx, demoMachineNamespace); err != nil {
		return err
	}
	set := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(demoMachineSet), &set.Object); err != nil {
		return err
	}
	sets := d.cluster.Objects.Resource(machineSetsResource).Namespace(demoMachineNamespace)
	if _, err := sets.Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := sandbox.Await(ctx, sets, set.GetName(), func(seen *unstructured.Unstructured) bool {
		if seen == nil {
			return false
		}
		ready, _, _ := unstructured.NestedInt64(seen.Object, "status", "readyReplicas")
		return ready == 2
	})
	if err != nil {
		return err
	}
	machines, err := d.machines().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, item := range machines.Items {
		if err := d.awaitPhase(ctx, item.GetName(), "Running"); err != nil {
			return err
		}
	}
	return d.list(ctx)
}

// awaitPhase waits until a machine is in a phase, or gone.
func (d *machineDemo) awaitPhase(ctx context.Context, name, wanted string) error {
	_, err := sandbox.Await(ctx, d.machines(), name, func(seen *unstructured.Unstructured) bool {
		if seen == nil {
			return true
		}
		phase, _, _ := unstructured.NestedString(seen.Object, "status", "phase")
		return phase == wanted
	})
	return err
}

// deleteMachine deletes a machine, which its hook holds. The MachineSet makes another one at once.
func (d *machineDemo) deleteMachine(ctx context.Context) error {
	machines, err := d.machines().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(machines.Items) == 0 {
		return fmt.Errorf("list the machines of %s: there are none", demoMachineNamespace)
	}
	d.deleted = machines.Items[0].GetName()
	d.title("kubectl delete machine " + d.deleted)
	if err := d.machines().Delete(ctx, d.deleted, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := d.awaitPhase(ctx, d.deleted, "Deleting"); err != nil {
		return err
	}
	return d.list(ctx)
}

// letMachineGo removes the hook as its owner would, and waits until machine and node are gone.
func (d *machineDemo) letMachineGo(ctx context.Context) error {
	d.title("the backup is done, and its operator removes the hook")
	patch := []byte(`{"spec": {"lifecycleHooks": {"preDrain": null}}}`)
	if _, err := d.machines().Patch(ctx, d.deleted, apitypes.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	if _, err := sandbox.Await(ctx, d.machines(), d.deleted, isGone); err != nil {
		return err
	}
	nodes := d.cluster.Objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	if _, err := sandbox.Await(ctx, nodes, d.deleted, isGone); err != nil {
		return err
	}
	fmt.Fprintf(d.streams.Out, "machine and node %s are gone\n", d.deleted)
	return d.list(ctx)
}

func (d *machineDemo) machines() dynamic.ResourceInterface {
	return d.cluster.Objects.Resource(machinesResource).Namespace(demoMachineNamespace)
}

// list shows the machines, as runlevel machines does.
func (d *machineDemo) list(ctx context.Context) error {
	d.title("runlevel machines")
	f := &machinesFlags{format: asText}
	list, err := listMachines(ctx, d.cluster, overview.MachineQuery{})
	if err != nil {
		return err
	}
	return f.print(d.streams.Out, list, d.cluster.Now())
}
