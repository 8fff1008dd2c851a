package drain_test

import (
	"context"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// The tests create the pods of DaemonSets by hand, because they need finished pods and pods whose set does not exist.
var cluster = sandboxtest.New(sandbox.Options{
	Controllers: []string{"*", "-daemonset-controller", "-garbage-collector-controller"},
})

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

var (
	nodes   = corev1.SchemeGroupVersion.WithResource("nodes")
	pods    = corev1.SchemeGroupVersion.WithResource("pods")
	budgets = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
)

// A fixture is a node of one test, with its pods.
type fixture struct {
	testing.TB
	client    drain.Client
	namespace string
	node      *corev1.Node
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	d := &fixture{TB: t, client: unthrottled(t, ""), namespace: cluster.Namespace(t)}
	node, err := d.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "drained-"},
		// The node has only the pods that the test creates.
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "test", Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		_ = d.client.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
	})
	d.node = sandboxtest.Await(t, cluster, nodes, node.Name, func(n *corev1.Node) bool {
		return n != nil && hasCondition(n.Status.Conditions, corev1.ConditionTrue)
	})
	return d
}

func hasCondition(conditions []corev1.NodeCondition, ready corev1.ConditionStatus) bool {
	for _, condition := range conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == ready
		}
	}
	return false
}

// unthrottled returns a client of the administrator, or of a user who has only the rights of all authenticated users.
func unthrottled(t testing.TB, user string) drain.Client {
	t.Helper()
	config := rest.CopyConfig(cluster.Sandbox(t).Config)
	config.QPS = -1
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	}
	return connect(t, config)
}

func connect(t testing.TB, config *rest.Config) drain.Client {
	t.Helper()
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := drain.NewClient(config, shared)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// pod puts a pod on the node. It never ends by itself, and takes an hour to end unless reported otherwise.
func (f *fixture) pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	f.Helper()
	seconds := int64(3600)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"app": name},
			Annotations: map[string]string{"sandbox.runlevel.dev/stop-after": "1h"},
		},
		Spec: corev1.PodSpec{
			NodeName: f.node.Name, TerminationGracePeriodSeconds: &seconds,
			Containers: []corev1.Container{{Name: "it", Image: "registry.example/it"}},
		},
	}
	if change != nil {
		change(pod)
	}
	made, err := f.client.CoreV1().Pods(f.namespace).Create(f.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		f.Fatal(err)
	}
	return made
}

// awaitPod waits until a pod is as wanted.
func (f *fixture) awaitPod(name string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	f.Helper()
	return sandboxtest.Await(f, cluster, pods, f.namespace+"/"+name, wanted)
}

func (f *fixture) awaitRunning(names ...string) {
	f.Helper()
	for _, name := range names {
		f.awaitPod(name, func(p *corev1.Pod) bool { return p != nil && isReady(p) })
	}
}

func (f *fixture) awaitGone(names ...string) {
	f.Helper()
	for _, name := range names {
		f.awaitPod(name, func(p *corev1.Pod) bool { return p == nil })
	}
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// budget has at least some pods with a label app stay, and waits until it is worked out.
func (f *fixture) budget(name, app string, atLeast int, change func(*policyv1.PodDisruptionBudget)) {
	f.Helper()
	least := intstr.FromInt(atLeast)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
	if change != nil {
		change(budget)
	}
	if _, err := f.client.PolicyV1().PodDisruptionBudgets(f.namespace).Create(f.Context(), budget,
		metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	f.awaitBudget(name, func(b *policyv1.PodDisruptionBudget) bool {
		return b.Status.ObservedGeneration == b.Generation
	})
}

func (f *fixture) awaitBudget(name string, wanted func(*policyv1.PodDisruptionBudget) bool) {
	f.Helper()
	sandboxtest.Await(f, cluster, budgets, f.namespace+"/"+name, func(b *policyv1.PodDisruptionBudget) bool {
		return b != nil && b.Status.ObservedGeneration > 0 && wanted(b)
	})
}

func (f *fixture) evict() []drain.HeldPod {
	f.Helper()
	left, err := drain.Evict(f.Context(), f.client, f.node, nil)
	if err != nil {
		f.Fatal(err)
	}
	return left
}

func (f *fixture) look() []drain.HeldPod {
	f.Helper()
	left, err := drain.HeldPods(f.Context(), f.client, f.node, nil)
	if err != nil {
		f.Fatal(err)
	}
	return left
}

// story returns the holds of pods, one per line, without the namespace and times of the test.
func (f *fixture) story(left []drain.HeldPod) string {
	var lines []string
	for _, pod := range left {
		message := strings.ReplaceAll(pod.Message, f.namespace+"/", "")
		if before, after, ok := strings.Cut(message, "since "); ok {
			_, after, _ = strings.Cut(after, ",")
			message = before + "since then," + after
		}
		lines = append(lines, string(pod.Hold)+": "+message)
	}
	return strings.Join(lines, "\n")
}

func (f *fixture) expect(left []drain.HeldPod, want string) {
	f.Helper()
	if got := f.story(left); got != strings.TrimSpace(want) {
		f.Errorf("left on the node:\n%s\nwant:\n%s", got, strings.TrimSpace(want))
	}
}
