package manager_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/manifests"
)

var deployed = machinetest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(deployed.Run(m)) }

// deploy applies the manifests for a version of the release.
func deploy(t *testing.T, version string) {
	t.Helper()
	c := deployed.Connect(t)
	for _, object := range append(install.Definitions(), manifests.Objects()...) {
		if object.GetKind() == "Deployment" {
			text, err := yaml.Marshal(object.Object)
			if err == nil {
				object = &unstructured.Unstructured{}
				err = yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "0.0.1-snapshot", version)),
					&object.Object)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if object.GetKind() == "ClusterOperator" { // which the controller makes
			continue
		}
		sandboxtest.ApplyObject(t, c, object)
	}
}

// TestTheControllerAsItIsShipped runs it from its Deployment, with the rights of its service account: it reports, makes
// the machines of a set, reports which right it lacks, is killed, and is replaced by another version.
func TestTheControllerAsItIsShipped(t *testing.T) {
	t.Parallel()
	deploy(t, "1.0.0")
	pods := runPods(t, deployed.Sandbox(t).Config,
		map[string]string{"runlevel-cluster": sandboxtest.Program(t, "runlevel-cluster")})
	scheme, err := manager.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(deployed.Sandbox(t).Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	awaitOperator(t, c, "1.0.0", configv1.OperatorAvailable, configv1.ConditionTrue, "")
	namespace := deployed.Namespace(t)
	set := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "set"}}
	spec := `{replicas: 1, selector: {matchLabels: {set: a}}, template: {metadata: {labels: {set: a}},
		spec: {providerSpec: {value: {apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: ExternalMachine}}}}}`
	if err := yaml.Unmarshal([]byte(spec), &set.Spec); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	scale := func(replicas int32) {
		t.Helper()
		patch := client.MergeFrom(set.DeepCopy())
		set.Spec.Replicas = &replicas
		if err := c.Patch(t.Context(), set, patch); err != nil {
			t.Fatal(err)
		}
	}
	awaitReplicas := func(replicas int32) {
		t.Helper()
		machinetest.Await(t, c, set, client.ObjectKeyFromObject(set), func(s *machinev1beta1.MachineSet) bool {
			return s.Status.Replicas == replicas
		})
	}
	awaitReplicas(1)

	role := &rbacv1.ClusterRole{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "machine-controller"}, role); err != nil {
		t.Fatal(err)
	}
	given := role.DeepCopy()
	role.Rules[0].Verbs = []string{"get", "list", "watch"} // verbs for machines
	if err := c.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	scale(2)
	awaitOperator(t, c, "1.0.0", configv1.OperatorDegraded, configv1.ConditionTrue,
		"lacks the right to create machines of machine.openshift.io")
	role.Rules = given.Rules
	if err := c.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	awaitReplicas(2)
	awaitOperator(t, c, "1.0.0", configv1.OperatorDegraded, configv1.ConditionFalse, "")

	running, err := pods.AwaitReady(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(running[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	scale(3)
	awaitReplicas(3)
	deploy(t, "1.0.1")
	awaitOperator(t, c, "1.0.1", configv1.OperatorAvailable, configv1.ConditionTrue, "")
	scale(4)
	awaitReplicas(4)
	testLife(t, c)
}

// testLife has a machine on a simulated node made, linked, held by a hook, drained and deleted, with the rights that
// the payload gives.
func testLife(t *testing.T, c client.Client) {
	t.Helper()
	namespace := deployed.Namespace(t)
	name := namespace + "-m"
	m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	spec := `{lifecycleHooks: {preDrain: [{name: Hold, owner: test}]}, metadata: {labels: {role: web}},
		providerSpec: {value: {apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: KwokMachine}}}`
	if err := yaml.Unmarshal([]byte(spec), &m.Spec); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	isIn := func(phase string) func(*machinev1beta1.Machine) bool {
		return func(m *machinev1beta1.Machine) bool { return ptr.Deref(m.Status.Phase, "") == phase }
	}
	deployed.AwaitMachine(t, namespace, name, isIn(machinev1beta1.PhaseRunning))
	node := machinetest.Await(t, c, &corev1.Node{}, client.ObjectKey{Name: name}, func(n *corev1.Node) bool {
		return n.Labels["role"] == "web"
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod"}}
	pod.Spec = corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "main", Image: "example"}}}
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	runDaemons(t, c, namespace, node.Name)
	if err := c.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m = deployed.AwaitMachine(t, namespace, name, isIn(machinev1beta1.PhaseDeleting))
	held := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, held); err != nil || held.Spec.Unschedulable {
		t.Errorf("the node is cordoned while a hook holds its machine: %v", err)
	}
	release := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"lifecycleHooks":{"preDrain":[]}}}`))
	if err := c.Patch(t.Context(), m, release); err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{pod, m, node, &v1alpha1.KwokMachine{ObjectMeta: m.ObjectMeta}} {
		machinetest.AwaitGone(t, c, object, client.ObjectKeyFromObject(object))
	}
}

// awaitOperator waits until the ClusterOperator reports a version and a condition.
func awaitOperator(t *testing.T, c client.Client, version string, target configv1.ClusterStatusConditionType,
	status configv1.ConditionStatus, text string) {
	t.Helper()
	machinetest.Await(t, c, &configv1.ClusterOperator{}, client.ObjectKey{Name: "machine-controller"},
		func(o *configv1.ClusterOperator) bool {
			if len(o.Status.Versions) != 1 || o.Status.Versions[0].Version != version {
				return false
			}
			for _, condition := range o.Status.Conditions {
				if condition.Type == target {
					return condition.Status == status && strings.Contains(condition.Message, text)
				}
			}
			return false
		})
}

// runDaemons runs a pod of a DaemonSet on a node, which a drain does not evict.
func runDaemons(t testing.TB, c client.Client, namespace, node string) {
	t.Helper()
	daemons := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "daemons"}}
	spec := `{selector: {matchLabels: {app: d}}, template: {metadata: {labels: {app: d}},
		spec: {nodeSelector: {kubernetes.io/hostname: ` + node + `}, containers: [{name: main, image: example}]}}}`
	if err := yaml.Unmarshal([]byte(spec), &daemons.Spec); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), daemons); err != nil {
		t.Fatal(err)
	}
	machinetest.Await(t, c, daemons, client.ObjectKeyFromObject(daemons), func(d *appsv1.DaemonSet) bool {
		return d.Status.NumberReady == 1
	})
}
