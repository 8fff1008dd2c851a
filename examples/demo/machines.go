package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
)

// machinesAct is the last act: machines are deleted while hooks hold them, updated in place, and replaced.
type machinesAct struct {
	*demo
	deleted string // the first deleted machine
}

const (
	machinesNamespace = "hello-machines"
	image             = "runlevel=registry.example/runlevel:demo" // which nothing pulls: the pods are processes
)

// machineSet creates machines that have a Node, and nothing behind it.
const machineSet = `
apiVersion: machine.openshift.io/v1beta1
kind: MachineSet
metadata: {name: web, namespace: ` + machinesNamespace + `}
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

func (d *demo) playMachines(ctx context.Context) error {
	return d.withPods(ctx, "machine-controller", "runlevel-machines", func(string) error {
		act := &machinesAct{demo: d}
		install := func(ctx context.Context) error {
			return d.runlevel(ctx, "apply", "manifests", "--name", "machines", "--image", image)
		}
		return play(ctx, act.chooseDialects, install, act.makeMachines, act.list, act.deleteMachine, act.list,
			act.letGo, act.list, act.playControlPlane, act.playGuard)
	})
}

// chooseDialects has the controller work on the Machines of both APIs.
func (a *machinesAct) chooseDialects(ctx context.Context) error {
	const namespace = "runlevel-machines"
	if err := a.createNamespace(ctx, namespace); err != nil {
		return err
	}
	flags := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "machine-controller"},
		Data:       map[string]string{"machine-controller.yaml": "dialects: openshift,cluster-api\n"},
	}
	_, err := a.client.CoreV1().ConfigMaps(namespace).Create(ctx, flags, metav1.CreateOptions{})
	return err
}

func (a *machinesAct) list(ctx context.Context) error { return a.runlevel(ctx, "machines") }

func (a *machinesAct) machines() dynamic.ResourceInterface {
	return a.resource("machine.openshift.io", "v1beta1", "machines", machinesNamespace)
}

// createNamespace creates a namespace.
func (a *machinesAct) createNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := a.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	return err
}

// makeMachines creates a MachineSet, and waits until its machines run.
func (a *machinesAct) makeMachines(ctx context.Context) error {
	title("two machines, which a backup operator holds by a hook before they are drained")
	if err := a.createNamespace(ctx, machinesNamespace); err != nil {
		return err
	}
	set := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(machineSet), &set.Object); err != nil {
		return err
	}
	sets := a.resource("machine.openshift.io", "v1beta1", "machinesets", machinesNamespace)
	if _, err := sets.Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := objectwatch.Await(ctx, sets, set.GetName(), func(live *unstructured.Unstructured) bool {
		if live == nil {
			return false
		}
		ready, _, _ := unstructured.NestedInt64(live.Object, "status", "readyReplicas")
		return ready == 2
	})
	if err != nil {
		return err
	}
	machines, err := a.machines().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, machine := range machines.Items {
		a.deleted = machine.GetName()
		if err := a.awaitPhase(ctx, machine.GetName(), "Running"); err != nil {
			return err
		}
	}
	return nil
}

// awaitPhase waits until a machine is in a phase, or deleted.
func (a *machinesAct) awaitPhase(ctx context.Context, name, wanted string) error {
	_, err := objectwatch.Await(ctx, a.machines(), name, func(live *unstructured.Unstructured) bool {
		if live == nil {
			return true
		}
		phase, _, _ := unstructured.NestedString(live.Object, "status", "phase")
		return phase == wanted
	})
	return err
}

// delete deletes a machine.
func (a *machinesAct) delete(ctx context.Context, name string) error {
	title("kubectl delete machine " + name)
	return a.machines().Delete(ctx, name, metav1.DeleteOptions{})
}

// deleteMachine deletes a machine, which its hook holds. The MachineSet creates another one at once.
func (a *machinesAct) deleteMachine(ctx context.Context) error {
	if err := a.delete(ctx, a.deleted); err != nil {
		return err
	}
	return a.awaitPhase(ctx, a.deleted, "Deleting")
}

// letGo removes the hook as its owner would, and waits until machine and node no longer exist.
func (a *machinesAct) letGo(ctx context.Context) error {
	title("the backup is done, and its operator removes the hook")
	patch := []byte(`{"spec": {"lifecycleHooks": {"preDrain": null}}}`)
	if _, err := a.machines().Patch(ctx, a.deleted, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	if _, err := objectwatch.Await(ctx, a.machines(), a.deleted, isGone); err != nil {
		return err
	}
	if _, err := objectwatch.Await(ctx, a.resource("", "v1", "nodes", ""), a.deleted, isGone); err != nil {
		return err
	}
	fmt.Printf("machine and node %s are gone\n", a.deleted)
	return nil
}
