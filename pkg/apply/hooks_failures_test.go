package apply_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
)

// hookWith is like hookThat, with more fields of the hook, one line for each.
func hookWith(stage, policy, env string, fields ...string) string {
	hook := hookThat(stage, policy, env)
	for _, field := range fields {
		hook += "  " + field + "\n"
	}
	return hook
}

// A hookTrouble prevents the pod of a pre hook from ending well. In texts, POD stands for the name of the pod.
type hookTrouble struct {
	env     string   // environment of the hook
	fields  []string // fields of the hook
	prepare func(hookedShop)
	disturb func(s hookedShop, pod string)
	after   string   // the end of the message after which the pod is disturbed; " runs" if empty
	isFinal bool     // nothing is waited for
	waits   string   // part of a message while the hook waits
	wants   string   // part of the final error
	reason  string   // reason of the event
	pods    []string // remaining pods of hooks
}

const staysAtSeven = `{name: SANDBOX_POD, value: run}, {name: SANDBOX_STOP_AFTER, value: 3s}, {name: SANDBOX_LOG, value: table 7 of 9}`

var hookTroubles = map[string]hookTrouble{
	"an exhausted quota": {
		env: succeeds, fields: []string{"timeoutSeconds: 1"}, prepare: hookedShop.allowNoPods,
		waits:  `its pod can't be created: pods "POD" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0`,
		wants:  `its pod can't be created: pods "POD" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0; its failure policy is Abort`,
		reason: deploymenthook.HookRefused,
	},
	"a missing service account": {
		env: succeeds, fields: []string{"timeoutSeconds: 1", "serviceAccountName: missing"},
		waits:  `its pod can't be created: pods "POD" is forbidden: error looking up service account NS/missing: serviceaccount "missing" not found`,
		wants:  `its pod can't be created: pods "POD" is forbidden: error looking up service account NS/missing: serviceaccount "missing" not found; its failure policy is Abort`,
		reason: deploymenthook.HookRefused,
	},
	"an invalid pod": {
		env: succeeds, fields: []string{"resources: {requests: {cpu: 2}, limits: {cpu: 1}}"}, isFinal: true,
		wants:  `its pod can't be created: Pod "POD" is invalid: spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1; its failure policy is Abort`,
		reason: deploymenthook.HookRefused,
	},
	"an image that can't be pulled": {
		env: `{name: SANDBOX_POD, value: image-pull}`, fields: []string{"timeoutSeconds: 10"},
		waits:  "pod POD waits: ImagePullBackOff: Back-off pulling image",
		wants:  "pod POD has not ended within 10s: it waits: ImagePullBackOff: Back-off pulling image",
		reason: deploymenthook.HookTimedOut,
		pods:   []string{"pre 1 Failed"},
	},
	"a pod that does not start": {
		env:    `{name: SANDBOX_POD, value: hang}, {name: SANDBOX_STOP_AFTER, value: 1ms}`,
		fields: []string{"timeoutSeconds: 10"},
		waits:  "pod POD waits: ContainerCreating",
		wants:  "pod POD has not ended within 10s: it waits: ContainerCreating; its failure policy is Abort",
		reason: deploymenthook.HookTimedOut,
		pods:   []string{"pre 1 Failed"},
	},
	"a pod that does not end": {
		env: staysAtSeven, fields: []string{"timeoutSeconds: 10"},
		waits:  "pod POD runs",
		wants:  "pod POD has not ended within 10s: it runs: table 7 of 9; its failure policy is Abort",
		reason: deploymenthook.HookTimedOut,
		pods:   []string{"pre 1 Failed"},
	},
	"an evicted pod": {
		env: staysAtSeven, disturb: func(s hookedShop, pod string) {
			s.setStatus(pod,
				`{"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. "}`)
		},
		waits:  "pod POD runs",
		wants:  "pod POD has failed: The node was low on resource: memory: table 7 of 9; its failure policy is Abort",
		reason: deploymenthook.HookFailed,
		pods:   []string{"pre 1 Failed"},
	},
	"a deleted pod": {
		env: staysAtSeven, disturb: hookedShop.deletePod,
		waits:  "pod POD of a hook was deleted, and has not ended yet",
		wants:  "pod POD was deleted before it had ended: table 7 of 9; its failure policy is Abort",
		reason: deploymenthook.HookFailed,
	},
	"a pod deleted by force": {
		env: staysAtSeven, fields: []string{"timeoutSeconds: 10"}, disturb: hookedShop.forceDeletePod, isFinal: true,
		wants:  "pod POD no longer exists, and its result was not observed; its failure policy is Abort",
		reason: deploymenthook.HookFailed,
	},
	"a lost node": {
		env: `{name: SANDBOX_POD, value: host}, {name: SANDBOX_STOP_AFTER, value: 1h}, {name: SANDBOX_LOG, value: table 7 of 9}`, fields: []string{"timeoutSeconds: 10"},
		after: " has not started", disturb: hookedShop.loseNode,
		waits:  "pod POD of a hook was deleted, and has not ended yet",
		wants:  "pod POD has not ended within 10s: it runs: table 7 of 9; it was deleted, and is still there after 5s",
		reason: deploymenthook.HookTimedOut,
		pods:   []string{"pre 1 Running"},
	},
}

// allowNoPods gives the namespace a quota without pods.
func (s hookedShop) allowNoPods() {
	s.Helper()
	quotas := connect(s).Client.CoreV1().ResourceQuotas(s.namespace)
	none := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("0")}},
	}
	if _, err := quotas.Create(s.Context(), none, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	sandboxtest.Await(s, test, corev1.SchemeGroupVersion.WithResource("resourcequotas"), s.namespace+"/none",
		func(quota *corev1.ResourceQuota) bool {
			return quota != nil && len(quota.Status.Used) > 0
		})
}

// setStatus sets the status of a pod.
func (s hookedShop) setStatus(pod, status string) {
	s.Helper()
	_, err := connect(s).Client.CoreV1().Pods(s.namespace).Patch(s.Context(), pod, types.MergePatchType,
		[]byte(`{"status": `+status+`}`), metav1.PatchOptions{}, "status")
	if err != nil {
		s.Error(err)
	}
}

// deletePod deletes a pod, as an administrator does.
func (s hookedShop) deletePod(pod string) {
	s.Helper()
	if err := connect(s).Client.CoreV1().Pods(s.namespace).Delete(s.Context(), pod,
		metav1.DeleteOptions{}); err != nil {
		s.Error(err)
	}
}

// forceDeletePod deletes a pod without a grace period, like "kubectl delete pod --force".
func (s hookedShop) forceDeletePod(pod string) {
	s.Helper()
	err := connect(s).Client.CoreV1().Pods(s.namespace).Delete(s.Context(), pod,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if err != nil {
		s.Error(err)
	}
}

// loseNode lets a pod run without a kubelet until the end of the test.
func (s hookedShop) loseNode(pod string) {
	s.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	s.setStatus(pod, `{"phase": "Running", "startTime": "`+now+
		`", "containerStatuses": [{"name": "app", "image": "one", "imageID": "one", "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "`+now+`"}}}]}`)
	s.Cleanup(func() {
		_ = connect(s).Client.CoreV1().Pods(s.namespace).Delete(context.Background(), pod,
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	})
}

// together checks the rows of a table at the same time. They mostly wait, so -parallel does not limit them.
func together[Row any](t *testing.T, rows map[string]Row, check func(hookedShop, Row)) {
	t.Parallel()
	var all errgroup.Group
	for name, row := range rows {
		all.Go(func() error {
			t.Run(name, func(t *testing.T) { check(hookedShop{t, test.Namespace(t)}, row) })
			return nil
		})
	}
	_ = all.Wait() // the subtests have reported their failures
}

// TestFailuresOfHooks checks the message of each trouble while it lasts and in the final error, and that the apply ends
// in time.
func TestFailuresOfHooks(t *testing.T) { together(t, hookTroubles, hookedShop.troubledBy) }

// troubledBy installs a release whose hook is in trouble, and checks the messages about it.
func (s hookedShop) troubledBy(trouble hookTrouble) {
	s.Helper()
	if trouble.prepare != nil {
		trouble.prepare(s)
	}
	var messages []string
	release := hookedRelease{
		image:    "one",
		replicas: "progressDeadlineSeconds: 5",
		hooks:    hookWith("pre", "Abort", trouble.env, trouble.fields...),
	}
	files := strings.Replace(release.files(), "containers:", "terminationGracePeriodSeconds: 1\n      containers:", 1)
	disturb := sync.OnceFunc(func() {
		if trouble.disturb != nil {
			trouble.disturb(s, s.hookPodNames()[0])
		}
	})
	did := run(s.T, s.Context(), load(s.T, s.namespace, s.namespace, files),
		apply.Options{Options: installMode, ReportWaits: quickly, OnEvent: func(event apply.Event) {
			if event.Hook == "pre" && (event.Type == apply.Waiting || event.Type == apply.Retrying) {
				messages = append(messages, s.general(event.Message))
			}
			if event.Hook == "pre" && strings.HasSuffix(event.Message, cmp.Or(trouble.after, " runs")) {
				disturb()
			}
		}})
	if !trouble.isFinal && !slices.ContainsFunc(messages, func(line string) bool {
		return strings.Contains(line, trouble.waits)
	}) {
		s.Errorf("no message has %q:\n%s", trouble.waits, strings.Join(slices.Compact(messages), "\n"))
	}
	if did.Err == nil || !strings.Contains(s.general(did.Err.Error()), trouble.wants) {
		s.Errorf("got error %v, want %s", did.Err, trouble.wants)
	}
	if got := s.hookPods(); !slices.Equal(got, trouble.pods) {
		s.Errorf("got pods of hooks %q", got)
	}
	s.hasEvent(trouble.reason)
	if live := s.deployment(); live.Status.Replicas > 0 || !live.Spec.Paused {
		s.Errorf("the Deployment has %d pods, paused: %t", live.Status.Replicas, live.Spec.Paused)
	}
}

// hookPodName matches the name of a hook's pod.
var hookPodName = regexp.MustCompile(`NS-web-(pre|mid|post)-[0-9a-f]{10}-[0-9]+`)

// general replaces the namespace and the names of hooks' pods in a text.
func (s hookedShop) general(text string) string {
	return hookPodName.ReplaceAllString(strings.ReplaceAll(text, s.namespace, "NS"), "POD")
}

// hasEvent checks that the Deployment has an event with a reason and some words.
func (s hookedShop) hasEvent(reason string, words ...string) {
	s.Helper()
	list, err := connect(s).Client.CoreV1().Events(s.namespace).List(s.Context(),
		metav1.ListOptions{FieldSelector: "involvedObject.kind=Deployment,involvedObject.name=web"})
	if err != nil {
		s.Fatal(err)
	}
	var all []string
	for _, event := range list.Items {
		all = append(all, event.Type+" "+event.Reason+": "+event.Message)
		isLacking := func(word string) bool { return !strings.Contains(event.Message, word) }
		if event.Type == corev1.EventTypeWarning && event.Reason == reason && !slices.ContainsFunc(words, isLacking) {
			return
		}
	}
	s.Errorf("the Deployment has no event %s with %q:\n%s", reason, words, strings.Join(all, "\n"))
}

// connectWithout returns a connection that sends some requests as jane, who has no rights.
func (s hookedShop) connectWithout(isForbidden func(*http.Request) bool) *cluster.Cluster {
	s.Helper()
	return connectThrough(s, func(request *http.Request) error {
		if isForbidden(request) {
			request.Header.Set("Impersonate-User", "jane")
		}
		return nil
	})
}

// TestMissingRightToCreatePodsIsReported at once, with the message of the API server.
func TestMissingRightToCreatePodsIsReported(t *testing.T) {
	s := newHookedShop(t)
	c := s.connectWithout(func(request *http.Request) bool {
		return request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/pods")
	})
	release := hookedRelease{image: "one", hooks: hookWith("pre", "Retry", succeeds, "backoffLimit: 1")}
	did := runOn(t, t.Context(), c, load(t, s.namespace, s.namespace, release.files()),
		apply.Options{Options: installMode})
	want := `its pod can't be created: pods is forbidden: User "jane" cannot create resource "pods" in API group "" in the namespace "NS"; it has failed 2 times, and its backoffLimit is 1`
	if did.Err == nil || !strings.Contains(s.general(did.Err.Error()), want) {
		t.Errorf("got error %v", did.Err)
	}
	s.hasEvent(deploymenthook.HookRefused, "attempt 2", `User "jane" cannot create resource "pods"`)
}

// TestMissingRightToSetTheConditionIsReported: hooks run without this right, and their failures are reported.
func TestMissingRightToSetTheConditionIsReported(t *testing.T) {
	s := newHookedShop(t)
	c := s.connectWithout(func(request *http.Request) bool {
		return strings.HasSuffix(request.URL.Path, "/status") || strings.HasSuffix(request.URL.Path, "/events")
	})
	release := hookedRelease{image: "one", hooks: hookThat("pre", "Abort", runsOn)}
	s.apply(release, s.ending(3)) // the apply keeps the condition
	did := runOn(t, t.Context(), c, load(t, s.namespace, s.namespace, release.files()), s.ending(0))
	if got := linesOfHooks(did); did.Err != nil || !slices.Equal(got, []string{"pre ran"}) {
		t.Errorf("%v: %q", did.Err, got)
	}
	s.warns(did,
		`the condition LifecycleHookFailed can't be set: deployments.apps "web" is forbidden: User "jane" cannot patch resource "deployments/status"`)
	release.image = "two"
	did = runOn(t, t.Context(), c, load(t, s.namespace, s.namespace, release.files()), s.ending(3))
	if did.Err == nil || !strings.Contains(did.Err.Error(), "exit code 3: no such table; its failure policy is Abort") {
		t.Errorf("got error %v", did.Err)
	}
	s.warns(did,
		`an event about a failed hook can't be written: events is forbidden: User "jane" cannot create resource "events"`)
}

// warns checks that an apply has a warning with some words.
func (s hookedShop) warns(did applied, words string) {
	s.Helper()
	isIt := func(warning apply.Warning) bool { return strings.Contains(warning.Text, words) }
	if !slices.ContainsFunc(did.Warnings, isIt) {
		s.Errorf("got warnings %v", did.Warnings)
	}
}

// TestPostHookOfAPausedDeployment: the hook waits until the apply times out, and the error reports that another client
// has paused the Deployment.
func TestPostHookOfAPausedDeployment(t *testing.T) {
	s := newHookedShop(t)
	s.apply(hookedRelease{image: "one"}, apply.Options{Options: installMode})
	patch(t, connect(t).Client.AppsV1().Deployments(s.namespace).Patch, "web", `{"spec": {"paused": true}}`)
	release := hookedRelease{image: "two", hooks: hookThat("post", "Retry", succeeds)}
	did := s.apply(release, apply.Options{Timeout: 2 * time.Second})
	isPaused := func(wait apply.Wait) bool { return wait.For == "it is paused: 0 of 2 replicas are updated" }
	if !errors.Is(did.Err, apply.ErrTimeout) || !slices.ContainsFunc(did.Waits, isPaused) {
		t.Errorf("got error %v, waits %+v; want %v, and a wait for the paused Deployment", did.Err, did.Waits,
			apply.ErrTimeout)
	}
	if pods := s.hookPods(); len(pods) > 0 {
		t.Errorf("got pods of hooks %q", pods)
	}
	patch(t, connect(t).Client.AppsV1().Deployments(s.namespace).Patch, "web", `{"spec": {"paused": false}}`)
	if got := linesOfHooks(s.apply(release, apply.Options{})); !slices.Equal(got, []string{"post ran"}) {
		t.Errorf("after the Deployment is resumed: got %q", got)
	}
}
