package operator_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// hookedShop is a release of a Deployment with hooks, whose pods take a while to be ready.
const hookedShop = shop + `
-- 0000_30_web_10_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  annotations:
    runlevel.dev/lifecycle-hooks: |
      pre: {failurePolicy: Abort, execNewPod: {containerName: web, command: [check]}}
      mid: {failurePolicy: Abort, execNewPod: {containerName: web, command: [migrate]}}
      post: {failurePolicy: Abort, execNewPod: {containerName: web, command: [announce]}}
spec:
  replicas: 2
  strategy: {type: Recreate}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {sandbox.runlevel.dev/start-after: 2s}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: web, image: "registry.example/web:VERSION"}]}
`

// watchHooks checks that no post hook exists before the rollout is complete.
func (s *stage) watchHooks() *sandboxtest.PodHistory {
	s.t.Helper()
	return sandboxtest.WatchPods(s.t, s.sandbox.Config, "shop", func(now []corev1.Pod) {
		for _, hook := range now {
			if hook.Labels["runlevel.dev/hook"] != "post" || hook.Status.Phase == corev1.PodSucceeded {
				continue
			}
			isNew := func(pod corev1.Pod) bool {
				return pod.Labels["app"] == "web" && pod.Status.Phase == corev1.PodRunning &&
					pod.Spec.Containers[0].Image == hook.Spec.Containers[0].Image
			}
			if ready := len(now) - len(slices.DeleteFunc(slices.Clone(now), isNew)); ready != 2 {
				s.t.Errorf("%s is there when %d of 2 pods run", hook.Name, ready)
			}
		}
	})
}

// hooksOf returns the hooks that have run until now, and how they ended.
func hooksOf(pods *sandboxtest.PodHistory) []string {
	var all []string
	for _, pod := range pods.All() {
		if stage := pod.Labels["runlevel.dev/hook"]; stage != "" {
			_, version, _ := strings.Cut(pod.Spec.Containers[0].Image, ":")
			all = append(all, version+" "+stage+" "+string(pod.Status.Phase))
		}
	}
	slices.Sort(all)
	return all
}

// TestTheOperatorRunsHooks with the rights that it is shipped with: once for each version, and not for repairs.
func TestTheOperatorRunsHooks(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.deploy(s.push("1.0.0", shop))
	s.until("installed", isAt("1.0.0"))
	pods := s.watchHooks()
	s.update(s.push("1.0.1", hookedShop))
	s.until("the Deployment is new", isAt("1.0.1"))
	s.update(s.push("1.0.2", hookedShop))
	s.until("updated", isAt("1.0.2"))
	want := []string{"1.0.1 post Succeeded", "1.0.1 pre Succeeded", "1.0.2 mid Succeeded", "1.0.2 post Succeeded",
		"1.0.2 pre Succeeded"}
	if diff := cmp.Diff(want, hooksOf(pods)); diff != "" {
		t.Errorf("hooks that have run (-want +got):\n%s", diff)
	}

	web := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: "shop", Name: "web"}
	s.must(s.client.Get(t.Context(), key, web))
	before := web.UID
	s.must(s.client.Delete(t.Context(), web))
	s.await("the Deployment is made again", func() bool {
		return s.client.Get(t.Context(), key, web) == nil && web.UID != before && !web.Spec.Paused &&
			web.Status.ReadyReplicas == 2
	})
	if diff := cmp.Diff(want, hooksOf(pods)); diff != "" {
		t.Errorf("hooks that have run after a repair (-want +got):\n%s", diff)
	}
}

// TestTheOperatorMayNotRunHooks: an operator that may not create pods of hooks does not start a release with hooks.
func TestTheOperatorMayNotRunHooks(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.deploy(s.push("1.0.0", shop))
	s.until("installed", isAt("1.0.0"))
	pods := s.watchHooks()
	all := s.setRights(
		rbacv1.PolicyRule{
			APIGroups: []string{"apps", "config.openshift.io", "apiextensions.k8s.io"},
			Resources: []string{"*"},
			Verbs:     []string{"get", "list", "watch", "create", "patch", "delete"},
		},
		rbacv1.PolicyRule{
			APIGroups: []string{""},
			Resources: []string{"configmaps", "namespaces", "events"},
			Verbs:     []string{"get", "list", "watch", "create", "patch", "delete"},
		},
	)
	s.update(s.push("1.0.1", hookedShop))
	refused := s.until("it is refused", has("ReleaseAccepted", configv1.ConditionFalse, "PreconditionChecks"))
	if got := find(refused, "ReleaseAccepted").Message; !strings.Contains(got,
		"may not create, delete pods in namespace shop, which the lifecycle hooks of") {
		t.Errorf("message is %q, want the missing right", got)
	}
	s.setRights(all...)
	s.until("updated", isAt("1.0.1"))
	if diff := cmp.Diff([]string{"1.0.1 post Succeeded", "1.0.1 pre Succeeded"}, hooksOf(pods)); diff != "" {
		t.Errorf("hooks that have run (-want +got):\n%s", diff)
	}
}

// setRights sets the rights with which the operator applies a release, and returns the previous ones.
func (s *stage) setRights(rules ...rbacv1.PolicyRule) (before []rbacv1.PolicyRule) {
	s.t.Helper()
	role := &rbacv1.ClusterRole{}
	s.must(s.client.Get(s.t.Context(), client.ObjectKey{Name: "runlevel-operator-apply"}, role))
	before, role.Rules = role.Rules, rules
	s.must(s.client.Update(s.t.Context(), role))
	return before
}
