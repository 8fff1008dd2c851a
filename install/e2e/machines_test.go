package e2e_test

import (
	"context"
	"os"
	"strings"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// machineNamespace is the namespace of the test's machines.
const machineNamespace = "rack"

// rack is a machine for a node, with a hook.
const rack = `
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {name: NODE, namespace: rack}
spec:
  lifecycleHooks: {preDrain: [{name: backup, owner: example.com/backup}]}
  providerSpec: {value: {apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: ExternalMachine, spec: {}}}
`

// budgeted is a Deployment with a pod on each node, and a budget that allows no evictions.
const budgeted = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: guarded, namespace: rack}
spec:
  replicas: 2
  selector: {matchLabels: {app: guarded}}
  template:
    metadata: {labels: {app: guarded}}
    spec:
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: guarded}}}
      containers:
      - {name: app, image: "registry.example/app:1", command: [/program, serve]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guarded, namespace: rack}
spec: {minAvailable: 2, selector: {matchLabels: {app: guarded}}}
`

// TestMachineController deletes the machine of the node that the machine controller itself runs on: a hook and a budget
// are respected, and its own pod is evicted. It runs alone, since it drains a node.
func TestMachineController(t *testing.T) {
	s := newSerialStage(t)
	image := s.pushRunlevel("machines")
	s.applyFile("../0000_00_runlevel_01_clusteroperators.crd.yaml")
	s.run("apply", "../../manifests", "--name", "machines", "--image", "runlevel="+image)
	s.create(`{apiVersion: v1, kind: Namespace, metadata: {name: rack}}`)
	nodes, err := s.core.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	s.must(err)
	for i := range nodes.Items {
		s.provide(&nodes.Items[i])
	}
	s.create(budgeted)
	s.eventually("a guarded pod runs on each node", func(ctx context.Context) bool {
		return len(s.nodesOf(ctx, "app=guarded", machineNamespace)) == 2
	})

	const controllers, ofController = "runlevel-machines", "app.kubernetes.io/name=machine-controller"
	var drained string
	for name := range s.nodesOf(t.Context(), ofController, controllers) {
		drained = name
	}
	machine := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: drained, Namespace: machineNamespace}}
	s.must(s.client.Delete(t.Context(), machine))
	s.untilPrints([]string{"backup"}, "machines", drained, "-n", machineNamespace)
	if s.isCordoned(drained) {
		t.Error("the node was cordoned before its hook was removed")
	}
	s.must(s.client.Patch(t.Context(), machine,
		client.RawPatch(types.MergePatchType, []byte(`{"spec": {"lifecycleHooks": {"preDrain": null}}}`))))
	s.untilPrints([]string{"guarded"}, "machines", drained, "-n", machineNamespace)
	s.eventually("the controller runs on the other node", func(ctx context.Context) bool {
		on := s.nodesOf(ctx, ofController, controllers)
		return len(on) == 1 && !on[drained]
	})
	if !s.nodesOf(t.Context(), "app=guarded", machineNamespace)[drained] {
		t.Error("the guarded pod was evicted against its budget")
	}
	budget := &unstructured.Unstructured{}
	budget.SetGroupVersionKind(schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"})
	budget.SetName("guarded")
	budget.SetNamespace(machineNamespace)
	s.must(s.client.Patch(t.Context(), budget,
		client.RawPatch(types.MergePatchType, []byte(`{"spec": {"minAvailable": 1}}`))))
	s.eventually("the infrastructure may end", func(ctx context.Context) bool {
		external := externalMachine(drained)
		err := s.client.Get(ctx, client.ObjectKeyFromObject(external), external)
		return err == nil && external.GetDeletionTimestamp() != nil
	})
	s.must(s.client.Patch(t.Context(), externalMachine(drained),
		client.RawPatch(types.MergePatchType, []byte(`{"spec": {"terminated": true}}`))))
	s.eventually("machine and node are deleted", func(ctx context.Context) bool {
		_, err := s.core.CoreV1().Nodes().Get(ctx, drained, metav1.GetOptions{})
		return apierrors.IsNotFound(s.client.Get(ctx, client.ObjectKeyFromObject(machine), machine)) &&
			apierrors.IsNotFound(err)
	})
	s.clean(drained)
}

// clean removes the machines without their nodes, and has the deleted node join again.
func (s *stage) clean(node string) {
	s.t.Helper()
	s.must(s.core.CoreV1().Namespaces().Delete(s.t.Context(), "runlevel-machines", metav1.DeleteOptions{}))
	kubelet := "kubelet-" + strings.TrimPrefix(node, "node-")
	s.must(s.sandbox.Kill(kubelet))
	s.must(s.sandbox.Resume(s.t.Context(), kubelet))
	s.eventually(node+" is ready again", func(ctx context.Context) bool {
		found, err := s.core.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		return err == nil && isReady(found)
	})
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0
		}
	}
	return false
}

// provide creates the machine of a node, and links the two by the address.
func (s *stage) provide(node *corev1.Node) {
	s.t.Helper()
	s.create(strings.ReplaceAll(rack, "NODE", node.Name))
	patch := `{"spec": {"providerID": "rack://` + node.Name + `", "addresses": [{"type": "InternalIP", "address": "` +
		addressOf(node) + `"}]}}`
	s.eventually("an ExternalMachine for "+node.Name, func(ctx context.Context) bool {
		return s.client.Patch(ctx, externalMachine(node.Name),
			client.RawPatch(types.MergePatchType, []byte(patch))) == nil
	})
	s.eventually("the machine of "+node.Name+" is linked", func(ctx context.Context) bool {
		var machine machinev1beta1.Machine
		err := s.client.Get(ctx, client.ObjectKey{Namespace: machineNamespace, Name: node.Name}, &machine)
		return err == nil && machine.Status.NodeRef != nil && machine.Status.NodeRef.Name == node.Name
	})
}

// addressOf returns the address of a node in its network.
func addressOf(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}

func externalMachine(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{
		Group:   "infrastructure.runlevel.dev",
		Version: "v1alpha1",
		Kind:    "ExternalMachine",
	})
	object.SetName(name)
	object.SetNamespace(machineNamespace)
	return object
}

// nodesOf returns the nodes of the ready pods with a label.
func (s *stage) nodesOf(ctx context.Context, label, namespace string) map[string]bool {
	nodes := map[string]bool{}
	pods, err := s.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return nodes
	}
	for _, pod := range pods.Items {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue &&
				pod.DeletionTimestamp == nil {
				nodes[pod.Spec.NodeName] = true
			}
		}
	}
	return nodes
}

func (s *stage) isCordoned(node string) bool {
	s.t.Helper()
	found, err := s.core.CoreV1().Nodes().Get(s.t.Context(), node, metav1.GetOptions{})
	s.must(err)
	return found.Spec.Unschedulable
}

// create creates the objects of a manifest.
func (s *stage) create(manifest string) {
	s.t.Helper()
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		object := &unstructured.Unstructured{}
		s.must(yaml.Unmarshal([]byte(document), &object.Object))
		s.must(s.client.Create(s.t.Context(), object))
	}
}

// applyFile creates the objects of a file.
func (s *stage) applyFile(path string) {
	s.t.Helper()
	text, err := os.ReadFile(path)
	s.must(err)
	s.create(string(text))
}
