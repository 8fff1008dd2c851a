package drain_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A pod that has ended stays while it has a finalizer.
func TestFinalizers(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.pod("kept", func(p *corev1.Pod) {
		p.Finalizers = []string{"example.org/keep"}
		*p.Spec.TerminationGracePeriodSeconds = 0
	})
	d.awaitRunning("kept")
	const want = "Finalizers: pod kept has terminated; its finalizers hold it: example.org/keep"
	d.expect(d.evict(), want)
	d.expect(d.evict(), want)
	none := []byte(`{"metadata": {"finalizers": null}}`)
	if _, err := d.client.CoreV1().Pods(d.namespace).Patch(t.Context(), "kept", types.MergePatchType, none,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	d.awaitGone("kept")
	d.expect(d.evict(), "")
}

// On a node that can't be reached, pods get a second, those too that were evicted before, and are not waited for
// after that. Budgets hold all the same.
func TestUnreachableNode(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.pod("budgeted", nil)
	d.pod("earlier", nil)
	d.pod("web", nil)
	d.awaitRunning("budgeted", "earlier", "web")
	d.budget("keep", "budgeted", 1, nil)
	if err := d.client.CoreV1().Pods(d.namespace).Delete(t.Context(), "earlier", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range d.node.Status.Conditions {
		if d.node.Status.Conditions[i].Type == corev1.NodeReady {
			d.node.Status.Conditions[i].Status = corev1.ConditionUnknown
		}
	}
	d.evict()
	for _, name := range []string{"earlier", "web"} {
		d.awaitPod(name, func(p *corev1.Pod) bool { return *p.DeletionGracePeriodSeconds <= 1 })
	}
	ctx := t.Context()
	for len(d.evict()) > 1 { // repeat until the second is over
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
	}
	d.expect(d.evict(), "Budget: pod budgeted is held by PodDisruptionBudget keep, which allows no disruption: 1 "+
		"healthy, 1 needed")
	d.awaitPod("web", func(p *corev1.Pod) bool { return p != nil }) // still there
}

// 200 pods are evicted in one pass.
func TestManyPods(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	const many = 200
	for i := range many {
		d.pod(fmt.Sprintf("web-%d", i), nil)
	}
	if remaining := d.look(); len(remaining) != many {
		t.Errorf("got %d remaining pods, want %d", len(remaining), many)
	}
	for _, pod := range d.evict() {
		if pod.Hold != drain.Ending {
			t.Error(pod.Message)
		}
	}
}

// A missing right is reported in one line, however many pods there are.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.pod("a", nil)
	d.pod("b", nil)
	user := "user-of-" + d.node.Name
	d.expectMissing(user, "list the pods of node "+d.node.Name+": pods is forbidden")

	rights := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}}
	meta := metav1.ObjectMeta{Name: user}
	if _, err := d.client.RbacV1().ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rights}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := d.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: user},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.awaitRight(user)
	d.expectMissing(user, "evict pod "+d.namespace+"/")
}

// awaitRight waits until a user may list pods: the API server learns of roles a moment later.
func (f *fixture) awaitRight(user string) {
	f.Helper()
	client := unthrottled(f, user)
	err := wait.PollUntilContextCancel(f.Context(), 100*time.Millisecond, true,
		func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1})
			return err == nil, nil
		})
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) expectMissing(user, prefix string) {
	f.Helper()
	_, err := drain.Evict(f.Context(), unthrottled(f, user), f.node, nil)
	if err == nil || !strings.HasPrefix(err.Error(), prefix) || !strings.Contains(err.Error(), "forbidden") {
		f.Errorf("got %v, want %s…", err, prefix)
	}
	if strings.Contains(fmt.Sprint(err), "\n") {
		f.Errorf("more than a line: %v", err)
	}
}

// BenchmarkLook takes the time of a pass over a node with 110 pods, as many as a kubelet runs by default.
func BenchmarkLook(b *testing.B) {
	d := newFixture(b)
	for i := range 110 {
		d.pod(fmt.Sprintf("web-%d", i), nil)
	}
	for b.Loop() {
		d.look()
	}
}

// A machine whose clock is ahead gives up the pods of an unreachable node no earlier: their end is a time of the API
// server.
func TestThePodsOfAnUnreachableNodeEndByTheServersClock(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.pod("web", nil)
	d.awaitRunning("web")
	for i := range d.node.Status.Conditions {
		if d.node.Status.Conditions[i].Type == corev1.NodeReady {
			d.node.Status.Conditions[i].Status = corev1.ConditionUnknown
		}
	}
	behind := connect(t, sandboxtest.ShiftClock(cluster.Sandbox(t).Config, -time.Minute))
	for len(d.evict()) > 0 { // repeat until the grace period of a second is over by this machine's clock
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
	remaining, err := drain.Evict(t.Context(), behind, d.node, nil)
	if err != nil || len(remaining) != 1 || remaining[0].Hold != drain.Ending {
		t.Errorf("with a clock a minute behind, got pods %v, error %v, want one ending pod", remaining, err)
	}
}
