package drain_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

func TestCordon(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for range 2 {
		if err := drain.Cordon(t.Context(), d.client, d.node.DeepCopy()); err != nil { // as read before
			t.Fatal(err)
		}
	}
	sandboxtest.Await(t, cluster, nodes, d.node.Name, func(n *corev1.Node) bool { return n.Spec.Unschedulable })

	other := d.node.DeepCopy()
	other.UID = "fc0b4e5a-0000-4000-8000-000000000000"
	if err := drain.Cordon(t.Context(), d.client, other); err == nil {
		t.Error("a node of the same name was cordoned")
	}
	other.Name = "no-such-node"
	if err := drain.Cordon(t.Context(), d.client, other); !apierrors.IsNotFound(err) {
		t.Errorf("cordon a node that does not exist: got error %v, want NotFound", err)
	}
}

// Each kind of pod is on the node: those that stay are not reported of.
func TestWhichPodsGo(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.daemonSet("agent")
	does := func(what string, then func(*corev1.Pod)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Annotations["sandbox.runlevel.dev/pod"] = what
			if then != nil {
				then(p)
			}
		}
	}
	d.pod("agent", ofDaemonSet("agent"))
	d.pod("agent-finished", does("fail", ofDaemonSet("agent")))
	d.pod("finished", does("complete", nil))
	d.pod("mirror", func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "of a file" })
	d.pod("orphan", ofDaemonSet("uninstalled"))
	d.pod("scratch", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{
			Name:         "tmp",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		}}
	})
	d.pod("unmanaged", nil)
	d.awaitRunning("agent", "mirror", "orphan", "scratch", "unmanaged")
	for _, name := range []string{"finished", "agent-finished"} {
		d.awaitPod(name, func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		})
	}
	d.expect(d.look(), `
ToBeEvicted: pod agent-finished is not evicted yet
ToBeEvicted: pod finished is not evicted yet
ToBeEvicted: pod orphan is not evicted yet
ToBeEvicted: pod scratch is not evicted yet
ToBeEvicted: pod unmanaged is not evicted yet
`)
	const ending = `
Ending: pod orphan has been ending since then, with 3600 s of grace
Ending: pod scratch has been ending since then, with 3600 s of grace
Ending: pod unmanaged has been ending since then, with 3600 s of grace
`
	d.expect(d.evict(), ending)
	d.awaitGone("finished", "agent-finished")
	d.expect(d.evict(), ending)
	d.expect(d.look(), ending)
	for _, name := range []string{"agent", "mirror"} {
		d.awaitPod(name, func(p *corev1.Pod) bool { return p != nil && p.DeletionTimestamp == nil })
	}
}

// daemonSet creates a DaemonSet, which no controller reconciles.
func (f *fixture) daemonSet(name string) {
	f.Helper()
	labels := map[string]string{"set": name}
	_, err := f.client.AppsV1().DaemonSets(f.namespace).Create(f.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "it", Image: "registry.example/it"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		f.Fatal(err)
	}
}

// ofDaemonSet makes a DaemonSet the controller of a pod.
func ofDaemonSet(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		controls := true
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "DaemonSet", Name: name, UID: "fc0b4e5a-0000-4000-8000-000000000000",
			Controller: &controls,
		}}
	}
}
