package manager_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// patience is the timeout of waits: far longer than any wait takes.
const patience = 5 * time.Minute

// scriptedDefinition defines the infrastructure that the test itself provides.
const scriptedDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: scriptedmachines.infrastructure.runlevel.dev
  labels: {cluster.x-k8s.io/v1beta2: v1alpha1} # it keeps Cluster API's contract in this version
spec:
  group: infrastructure.runlevel.dev
  names: {kind: ScriptedMachine, listKind: ScriptedMachineList, plural: scriptedmachines, singular: scriptedmachine}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// A script deletes a machine request by request, as controllers would, and as they would not.
type script struct {
	t              *testing.T
	admin          client.Client
	controllers    client.Client
	machine        *machinev1beta1.Machine
	node           *corev1.Node
	pod            *corev1.Pod
	infrastructure *unstructured.Unstructured
}

// newScript creates a machine with a pre-drain and a pre-terminate hook, its node with a pod, and its infrastructure.
func newScript(t *testing.T, config *rest.Config, name string) *script {
	t.Helper()
	s := &script{t: t, admin: connectAs(t, config, "admin"), controllers: connectAs(t, config, controllerAgent)}
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}
	s.machine = &machinev1beta1.Machine{ObjectMeta: *meta.DeepCopy()}
	s.machine.Finalizers = []string{machinev1beta1.MachineFinalizer}
	hooks := []machinev1beta1.LifecycleHook{{Name: "hook", Owner: "owner"}}
	s.machine.Spec.LifecycleHooks = machinev1beta1.LifecycleHooks{PreDrain: hooks, PreTerminate: hooks}
	s.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-" + name}}
	s.pod = &corev1.Pod{ObjectMeta: *meta.DeepCopy(), Spec: corev1.PodSpec{
		NodeName: s.node.Name, Containers: []corev1.Container{{Name: "app", Image: "none"}},
	}}
	s.infrastructure = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infrastructure.runlevel.dev/v1alpha1", "kind": "ScriptedMachine",
	}}
	s.infrastructure.SetNamespace(meta.Namespace)
	s.infrastructure.SetName(name)
	s.infrastructure.SetFinalizers([]string{"test.runlevel.dev/provider"})
	for _, object := range []client.Object{s.node, s.pod, s.infrastructure, s.machine} {
		s.must(s.admin.Create(t.Context(), object))
	}
	s.status(func(status *machinev1beta1.MachineStatus) {
		status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: s.node.Name}
	})
	return s
}

// connectAs returns a client that the audit log knows by a name.
func connectAs(t *testing.T, config *rest.Config, agent string) client.Client {
	t.Helper()
	config = rest.CopyConfig(config)
	config.UserAgent = agent
	c, err := client.New(config, client.Options{Scheme: machinetest.NewScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *script) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// change patches an object of the script, also while others write to it.
func (s *script) change(by client.Client, object client.Object, change func()) {
	s.t.Helper()
	before := object.DeepCopyObject().(client.Object)
	change()
	s.must(by.Patch(s.t.Context(), object, client.MergeFrom(before)))
}

func (s *script) status(change func(*machinev1beta1.MachineStatus)) {
	s.t.Helper()
	before := s.machine.DeepCopy()
	change(&s.machine.Status)
	s.must(s.controllers.Status().Patch(s.t.Context(), s.machine, client.MergeFrom(before)))
}

func (s *script) delete() {
	s.must(s.admin.Delete(s.t.Context(), s.machine))
	s.must(s.admin.Get(s.t.Context(), client.ObjectKeyFromObject(s.machine), s.machine))
	deleting := machinev1beta1.PhaseDeleting
	s.status(func(status *machinev1beta1.MachineStatus) { status.Phase = &deleting })
}

func (s *script) releaseDrain() {
	s.change(s.admin, s.machine, func() { s.machine.Spec.LifecycleHooks.PreDrain = nil })
}

func (s *script) releaseTermination() {
	s.change(s.admin, s.machine, func() { s.machine.Spec.LifecycleHooks.PreTerminate = nil })
}

func (s *script) drain() {
	s.must(s.admin.Get(s.t.Context(), client.ObjectKeyFromObject(s.node), s.node))
	s.change(s.controllers, s.node, func() { s.node.Spec.Unschedulable = true })
	s.must(s.controllers.SubResource("eviction").Create(s.t.Context(), s.pod, &policyv1.Eviction{}))
}

func (s *script) recordDrained() {
	s.status(func(status *machinev1beta1.MachineStatus) {
		status.Conditions = []machinev1beta1.Condition{{
			Type: machinev1beta1.MachineDrained, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		}}
	})
}

func (s *script) terminate() { s.must(s.controllers.Delete(s.t.Context(), s.infrastructure)) }

func (s *script) endInfrastructure() {
	s.change(s.admin, s.infrastructure, func() { s.infrastructure.SetFinalizers(nil) })
}

func (s *script) deleteNode() { s.must(s.controllers.Delete(s.t.Context(), s.node)) }

func (s *script) release() {
	s.change(s.controllers, s.machine, func() { s.machine.Finalizers = nil })
}

// TestRecorder deletes machines in the right and in wrong orders, with a crash of the API server in between, and has
// their histories reported from the audit log of a real API server.
func TestRecorder(t *testing.T) {
	t.Parallel()
	control := startSandbox(t, sandbox.NoNodes)
	right, early := newScript(t, control.Config, "right"), newScript(t, control.Config, "early")
	hasty, idle := newScript(t, control.Config, "hasty"), newScript(t, control.Config, "idle")

	inOrder(right.delete, right.releaseDrain, right.drain, right.recordDrained)
	inOrder(early.delete, early.drain, early.releaseDrain, early.recordDrained, early.releaseTermination)
	inOrder(hasty.delete, hasty.releaseDrain, hasty.drain, hasty.recordDrained, hasty.terminate,
		hasty.releaseTermination)
	early.must(control.Kill(sandbox.APIServer))
	crashes := []time.Time{time.Now()}
	early.must(control.Resume(t.Context(), sandbox.APIServer))
	inOrder(right.releaseTermination, right.terminate, right.endInfrastructure, right.deleteNode, right.release)
	inOrder(early.terminate, early.deleteNode, early.endInfrastructure, early.release)
	inOrder(hasty.endInfrastructure, hasty.release, hasty.deleteNode)
	inOrder(idle.delete, idle.releaseDrain, idle.recordDrained, idle.releaseTermination)
	inOrder(idle.terminate, idle.endInfrastructure, idle.deleteNode, idle.release)

	histories := awaitReleases(t, control, crashes, 4, inDefault...)
	want := []string{
		"a Node is deleted after the infrastructure: early: deleted the Node",
		"a drain is over when no pod is left: idle: over with pod idle",
		"no infrastructure is deleted while a hook holds it: hasty: terminated",
		"no node is cordoned or drained while a pre-drain hook is there: early: drained", // the cordon
		"no node is cordoned or drained while a pre-drain hook is there: early: drained", // the eviction
		"the finalizer goes last: hasty: released with a Node",
	}
	var found []string
	for _, violation := range violationsOf(histories) {
		what, _, _ := strings.Cut(violation, " at ")
		found = append(found, what)
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

func inOrder(acts ...func()) {
	for _, act := range acts {
		act()
	}
}

// startSandbox starts a control plane whose audit log has the requests that the histories of machines need.
func startSandbox(t *testing.T, nodes int) *sandbox.Sandbox {
	t.Helper()
	definitions, err := filepath.Glob("../../../manifests/*.crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	scripted := filepath.Join(t.TempDir(), "scripted.yaml")
	if err := os.WriteFile(scripted, []byte(scriptedDefinition), 0o600); err != nil {
		t.Fatal(err)
	}
	control := sandboxtest.Start(t, sandbox.Options{
		AuditPolicy: auditPolicy, CRDs: append(definitions, scripted), Nodes: nodes,
	})
	return control
}

// awaitReleases waits until the audit log reports the whole deletion of each machine that lines with some texts are
// about, of which there are count or more, and returns their histories.
func awaitReleases(t *testing.T, control *sandbox.Sandbox, crashes []time.Time, count int,
	about ...string) map[string]*history {
	t.Helper()
	var histories map[string]*history
	missing := ""
	err := wait.PollUntilContextTimeout(t.Context(), time.Second/4, patience, true,
		func(context.Context) (bool, error) {
			requests, err := readAudit(control, crashes, about...)
			if err != nil {
				return false, err
			}
			histories = historiesOf(requests)
			missing = unless(len(histories) >= count, "%d of %d machines are there", len(histories), count)
			for name, h := range histories {
				if item := missingWrite(h); item != "" {
					missing = name + ": " + item
				}
			}
			return missing == "", nil
		})
	if err != nil {
		t.Fatalf("the audit log does not contain the whole deletion of all machines: %s: %v", missing, err)
	}
	return histories
}

// missingWrite returns a write that the history of a machine's whole deletion lacks.
func missingWrite(h *history) string {
	isLinked := func(m *machineState) bool { return m != nil && m.node != "" }
	if _, hadNode := h.Machine.firstWhen(isLinked); hadNode && !h.Node.mayBe(isGone) {
		return fmt.Sprintf("its Node is not deleted, in %d writes", len(h.Node.States))
	}
	if !h.Machine.mayBe(isLetGo) {
		return fmt.Sprintf("it has its finalizer, in %d writes", len(h.Machine.States))
	}
	return ""
}
