package main

import (
	"os"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// What DaemonSets and ReplicaSets would have is put on the node by hand.
var shared = sandboxtest.New(sandbox.Options{
	Controllers: []string{"*", "-daemonset-controller", "-replicaset-controller", "-garbage-collector-controller"},
})

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(shared.Run(m))
}

// An oracleNode is a node with a pod of each kind.
type oracleNode struct {
	testing.TB
	client    kubernetes.Interface
	namespace string
	node      *corev1.Node
}

// TestThePodsOfADrainAreThoseOfKubectl asks kubectl's own code which pods go, before and after they were evicted.
func TestThePodsOfADrainAreThoseOfKubectl(t *testing.T) {
	o := newOracleNode(t)
	o.set("agent")
	owned := func(kind, name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { own(p, kind, name) }
	}
	kinds := map[string]func(*corev1.Pod){
		"of-daemonset":          owned("DaemonSet", "agent"),
		"of-daemonset-finished": func(p *corev1.Pod) { own(p, "DaemonSet", "agent"); finish(p) },
		"of-daemonset-gone":     owned("DaemonSet", "uninstalled"),
		"of-replicaset":         owned("ReplicaSet", "web"),
		"of-controller-unknown": owned("Cache", "c"),
		"mirror":                func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "of a file" },
		"emptydir":              addEmptyDir,
		"emptydir-daemonset":    func(p *corev1.Pod) { own(p, "DaemonSet", "agent"); addEmptyDir(p) },
		"unmanaged":             nil,
		"finished":              finish,
		"budget":                nil,
		"budget-finished":       finish,
		"ends":                  nil,
	}
	for name, change := range kinds {
		o.pod(name, change)
	}
	o.budget("budget")
	o.budget("budget-finished")
	for name := range kinds {
		o.awaitStarted(name)
	}
	if err := o.client.CoreV1().Pods(o.namespace).Delete(t.Context(), "ends", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ours, kubectls := o.ours(), o.kubectls()
	if !slices.Equal(ours, kubectls) {
		t.Fatalf("these pods are to go:\n%v, as kubectl drain says\n%v", ours, kubectls)
	}
	if len(kubectls) != 10 {
		t.Errorf("the pods are not of all kinds: %v are to go", kubectls)
	}

	if _, err := drain.Evict(t.Context(), o.client, o.node); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"finished", "budget-finished", "of-daemonset-finished"} {
		sandboxtest.Await(t, shared, corev1.SchemeGroupVersion.WithResource("pods"), o.namespace+"/"+name, func(p *corev1.Pod) bool { return p == nil })
	}
	if ours, kubectls := o.ours(), o.kubectls(); !slices.Equal(ours, kubectls) || len(ours) != 7 {
		t.Errorf("after the evictions, these pods are to go:\n%v, as kubectl drain says\n%v", ours, kubectls)
	}
}

func newOracleNode(t *testing.T) *oracleNode {
	t.Helper()
	direct, err := kubernetes.NewForConfig(shared.Sandbox(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	o := &oracleNode{TB: t, client: direct, namespace: shared.Namespace(t)}
	o.node, err = o.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "drained-"},
		// Only what is put there is on it.
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "test", Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// set makes a DaemonSet, which no controller looks at.
func (o *oracleNode) set(name string) {
	o.Helper()
	labels := map[string]string{"set": name}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newPod("", "").Spec},
		},
	}
	set.Spec.Template.Spec.NodeName = ""
	if _, err := o.client.AppsV1().DaemonSets(o.namespace).Create(o.Context(), set, metav1.CreateOptions{}); err != nil {
		o.Fatal(err)
	}
}

// pod puts a pod on the node. It takes an hour to end.
func (o *oracleNode) pod(name string, change func(*corev1.Pod)) {
	o.Helper()
	pod := newPod(name, o.node.Name)
	pod.Namespace, pod.Labels = o.namespace, map[string]string{"app": name}
	pod.Annotations = map[string]string{"sandbox.runlevel.dev/stop-after": "1h"}
	seconds := int64(3600)
	pod.Spec.TerminationGracePeriodSeconds = &seconds
	if change != nil {
		change(pod)
	}
	if _, err := o.client.CoreV1().Pods(o.namespace).Create(o.Context(), pod, metav1.CreateOptions{}); err != nil {
		o.Fatal(err)
	}
}

// awaitStarted waits until a pod runs, or has ended if it is to.
func (o *oracleNode) awaitStarted(name string) {
	o.Helper()
	sandboxtest.Await(o, shared, corev1.SchemeGroupVersion.WithResource("pods"), o.namespace+"/"+name, func(p *corev1.Pod) bool {
		isFinished := p != nil && p.Status.Phase == corev1.PodSucceeded
		return isFinished || p != nil && p.Status.Phase == corev1.PodRunning && p.Annotations["sandbox.runlevel.dev/pod"] == ""
	})
}

// budget forbids to evict the pod of a name.
func (o *oracleNode) budget(name string) {
	o.Helper()
	all := intstr.FromString("100%")
	_, err := o.client.PolicyV1().PodDisruptionBudgets(o.namespace).Create(o.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		o.Fatal(err)
	}
}

// ours are the pods that have to go, as package drain says.
func (o *oracleNode) ours() []string {
	o.Helper()
	held, err := drain.HeldPods(o.Context(), o.client, o.node)
	if err != nil {
		o.Fatal(err)
	}
	var names []string
	for _, pod := range held {
		names = append(names, pod.Name)
	}
	return sorted(names)
}

// kubectls are those of kubectl drain --force --ignore-daemonsets --delete-emptydir-data.
func (o *oracleNode) kubectls() []string {
	o.Helper()
	list, errs := drainHelper(o.Context(), o.client).GetPodsForDeletion(o.node.Name)
	if len(errs) > 0 {
		o.Fatal(errs)
	}
	var names []string
	for _, pod := range list.Pods() {
		names = append(names, pod.Name)
	}
	return sorted(names)
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

// own has a pod belong to a controller.
func own(p *corev1.Pod, kind, name string) {
	controls := true
	apiVersion := "apps/v1"
	if kind == "Cache" {
		apiVersion = "example.com/v1"
	}
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: kind, Name: name, UID: "fc0b4e5a-0000-4000-8000-000000000000", Controller: &controls,
	}}
}

func finish(p *corev1.Pod) { p.Annotations["sandbox.runlevel.dev/pod"] = "complete" }

func addEmptyDir(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}
