package apply_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A hookedRelease is a release of one Deployment with hooks, and of an object after it.
type hookedRelease struct {
	image    string
	strategy string // RollingUpdate, if it is empty
	replicas string // 2, if it is empty
	hooks    string // lines of the annotation
	env      string // environment of the app

	isCreateOnly bool // the Deployment with hooks is annotated create-only
}

func (h hookedRelease) files() string {
	if h.strategy == "" {
		h.strategy = "RollingUpdate"
	}
	if h.replicas == "" {
		h.replicas = "replicas: 2"
	}
	annotations := ""
	if h.hooks != "" {
		annotations = "annotations:\n    runlevel.dev/lifecycle-hooks: |\n" +
			strings.ReplaceAll("\n"+strings.TrimSpace(h.hooks), "\n", "\n      ")[1:]
	}
	if h.isCreateOnly {
		annotations += "\n    release.openshift.io/create-only: \"true\""
	}
	return fmt.Sprintf(`
-- 0000_10_shop_10.yaml --
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: NS
  %s
spec:
  %s
  selector: {matchLabels: {app: web}}
  strategy: {type: %s}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: %s
        env: [%s]
-- 0000_10_shop_20.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: after, namespace: NS}}
`, annotations, h.replicas, h.strategy, h.image, h.env)
}

// hookThat returns a hook with the app's image. The environment sets how the sandbox ends its pod.
func hookThat(stage, policy, env string) string {
	return fmt.Sprintf("%s:\n  failurePolicy: %s\n  execNewPod: {containerName: app, command: [run], env: [%s]}\n",
		stage, policy, env)
}

const (
	succeeds = `{name: SANDBOX_EXIT_CODE, value: "0"}`
	fails    = `{name: SANDBOX_EXIT_CODE, value: "3"}, {name: SANDBOX_LOG, value: "no such table"}`
)

// A hookedShop is a release with hooks on the control plane.
type hookedShop struct {
	*testing.T
	namespace string
}

func newHookedShop(t *testing.T) hookedShop {
	t.Parallel()
	return hookedShop{t, test.Namespace(t)}
}

// apply applies a hookedRelease.
func (s hookedShop) apply(release hookedRelease, options apply.Options) applied {
	s.Helper()
	if options.Mode == "" {
		options.Mode = graph.Update
	}
	return run(s.T, s.Context(), load(s.T, s.namespace, s.namespace, release.files()), options)
}

// deployment reads the Deployment.
func (s hookedShop) deployment() *appsv1.Deployment {
	s.Helper()
	live, err := connect(s).Client.AppsV1().Deployments(s.namespace).Get(s.Context(), "web", metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return live
}

// hookPods returns the stage, attempt and phase of the existing pods of hooks.
func (s hookedShop) hookPods() []string {
	s.Helper()
	return s.eachHookPod(func(pod corev1.Pod) string {
		return pod.Labels["runlevel.dev/hook"] + " " + pod.Labels["runlevel.dev/hook-attempt"] + " " +
			string(pod.Status.Phase)
	})
}

// hookPodNames returns the names of the pods of hooks.
func (s hookedShop) hookPodNames() []string {
	s.Helper()
	return s.eachHookPod(func(pod corev1.Pod) string { return pod.Name })
}

func (s hookedShop) eachHookPod(text func(corev1.Pod) string) []string {
	s.Helper()
	list, err := connect(s).Client.CoreV1().Pods(s.namespace).List(s.Context(),
		metav1.ListOptions{LabelSelector: deploymenthook.DeploymentLabel})
	if err != nil {
		s.Fatal(err)
	}
	var found []string
	for _, pod := range list.Items {
		found = append(found, text(pod))
	}
	slices.Sort(found)
	return found
}

// expectEvents compares the events of objects and hooks, without waits.
func (s hookedShop) expectEvents(did applied, want ...string) {
	s.Helper()
	var got []string
	for _, line := range did.tale() {
		if !strings.HasPrefix(line, "waiting") && !strings.HasPrefix(line, "ready") {
			got = append(got, strings.ReplaceAll(line, s.namespace, "NS"))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("%v\n%s", did.Err, diff)
	}
}

const (
	webDeployment = "Deployment NS/web"
	afterIt       = "ConfigMap NS/after"
)

// TestHooksOfAnInstallAndAnUpdate is D1 and D2 without failures: an install runs pre and post, an update runs all
// three, and no apply runs them again.
func TestHooksOfAnInstallAndAnUpdate(t *testing.T) {
	s := newHookedShop(t)
	release := hookedRelease{
		image:    "one",
		strategy: "Recreate",
		hooks: hookThat("pre", "Abort", succeeds) + hookThat("mid", "Abort", succeeds) +
			hookThat("post", "Abort", succeeds),
	}
	first := s.apply(release, apply.Options{Options: installMode})
	s.expectEvents(first, "ran pre hook of "+webDeployment, "not needed mid hook of "+webDeployment,
		"created "+webDeployment,
		"ran post hook of "+webDeployment, "created "+afterIt)

	again := s.apply(release, apply.Options{})
	s.expectEvents(again, "not needed pre hook of "+webDeployment, "not needed mid hook of "+webDeployment,
		"unchanged "+webDeployment, "not needed post hook of "+webDeployment, "unchanged "+afterIt)

	release.image = "two"
	update := s.apply(release, apply.Options{})
	s.expectEvents(update, "ran pre hook of "+webDeployment, "ran mid hook of "+webDeployment,
		"configured "+webDeployment,
		"ran post hook of "+webDeployment, "unchanged "+afterIt)
	if live := s.deployment(); *live.Spec.Replicas != 2 || live.Spec.Template.Spec.Containers[0].Image != "two" ||
		live.Spec.Paused {
		t.Errorf("the Deployment has %d replicas of %s", *live.Spec.Replicas,
			live.Spec.Template.Spec.Containers[0].Image)
	}
	if pods := s.hookPods(); len(pods) > 0 {
		t.Errorf("got pods of hooks %q", pods)
	}
}

// TestAbortStopsTheRollout is D1: if a pre hook aborts, the Deployment stays unchanged, and reports the cause.
func TestAbortStopsTheRollout(t *testing.T) {
	s := newHookedShop(t)
	s.apply(hookedRelease{image: "one", hooks: hookThat("pre", "Abort", succeeds)}, apply.Options{Options: installMode})
	did := s.apply(hookedRelease{image: "two", hooks: hookThat("pre", "Abort", fails)}, apply.Options{})
	if did.Err == nil || !strings.Contains(did.Err.Error(), "exit code 3: no such table; its failure policy is Abort") {
		t.Errorf("got error %v", did.Err)
	}
	s.expectEvents(did, "failed pre hook of "+webDeployment)
	live := s.deployment()
	if image := live.Spec.Template.Spec.Containers[0].Image; image != "one" {
		t.Errorf("the rollout of %s has begun", image)
	}
	s.hasCondition(live, corev1.ConditionTrue, "no such table")
	if pods := s.hookPods(); !slices.Equal(pods, []string{"pre 1 Failed"}) {
		t.Errorf("got pods of hooks %q", pods)
	}

	fixed := s.apply(hookedRelease{image: "two", hooks: hookThat("pre", "Abort", succeeds)}, apply.Options{})
	s.expectEvents(fixed, "ran pre hook of "+webDeployment, "configured "+webDeployment, "unchanged "+afterIt)
	s.hasCondition(s.deployment(), corev1.ConditionFalse, "")
}

// hasCondition checks the condition that reports whether a hook has failed.
func (s hookedShop) hasCondition(live *appsv1.Deployment, status corev1.ConditionStatus, words string) {
	s.Helper()
	for _, condition := range live.Status.Conditions {
		if condition.Type == "LifecycleHookFailed" {
			if condition.Status != status || !strings.Contains(condition.Message, words) {
				s.Errorf("got condition %s: %s", condition.Status, condition.Message)
			}
			return
		}
	}
	s.Error("the Deployment has no condition for failed hooks")
}

// TestIgnoredFailureIsReported is D1: the rollout continues, and the failure is reported.
func TestIgnoredFailureIsReported(t *testing.T) {
	s := newHookedShop(t)
	did := s.apply(hookedRelease{image: "one", hooks: hookThat("post", "Ignore", fails)}, apply.Options{})
	s.expectEvents(did, "created "+webDeployment, "retrying post hook of "+webDeployment,
		"ignored post hook of "+webDeployment, "created "+afterIt)
	s.hasCondition(s.deployment(), corev1.ConditionTrue, "no such table")
}

// TestPostAwaitsTheRollout, also if the apply waits for nothing else.
func TestPostAwaitsTheRollout(t *testing.T) {
	for name, options := range map[string]apply.Options{
		"no wait":             {NoWait: true},
		"upstream's standard": {Options: object.Options{Standard: ready.Upstream}},
		"upstream's install": {
			Options: object.Options{Mode: graph.Install, Standard: ready.Upstream},
			NoWait:  true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHookedShop(t)
			stop := s.watchPods(func(pods []corev1.Pod) {
				var notReady int
				isPost := false
				for _, pod := range pods {
					isPost = isPost || pod.Labels["runlevel.dev/hook"] == "post"
					if pod.Labels["app"] == "web" && pod.Status.Phase == corev1.PodPending {
						notReady++
					}
				}
				if isPost && notReady > 0 {
					t.Errorf("the hook runs before the rollout is complete: %d pods have not started", notReady)
				}
			})
			did := s.apply(hookedRelease{
				image: "one",
				hooks: hookThat("post", "Retry", succeeds),
				env:   `{name: SANDBOX_START_AFTER, value: 1.5s}`,
			}, options)
			stop()
			s.expectEvents(did, "created "+webDeployment, "ran post hook of "+webDeployment, "created "+afterIt)
		})
	}
}

// TestMidRunsWithoutPods is D2: mid runs after the old pods have ended, and the replicas are restored after it.
func TestMidRunsWithoutPods(t *testing.T) {
	s := newHookedShop(t)
	// The field replaces replicas, which are then not fields of the release.
	release := hookedRelease{image: "one", strategy: "Recreate", replicas: "minReadySeconds: 0"}
	s.apply(release, apply.Options{Options: installMode})
	s.scale(3)
	release.image, release.hooks = "two", hookThat("mid", "Abort", succeeds)
	stop := s.watchPods(func(pods []corev1.Pod) {
		isHook := func(pod corev1.Pod) bool { return pod.Labels["runlevel.dev/hook"] != "" }
		if hook := slices.IndexFunc(pods, isHook); hook >= 0 && pods[hook].Status.Phase != corev1.PodSucceeded &&
			len(pods) > 1 {
			t.Errorf("got %d pods of the Deployment while the hook runs", len(pods)-1)
		}
	})
	did := s.apply(release, apply.Options{})
	stop()
	s.expectEvents(did, "ran mid hook of "+webDeployment, "configured "+webDeployment, "unchanged "+afterIt)
	if live := s.deployment(); *live.Spec.Replicas != 3 {
		t.Errorf("got %d replicas", *live.Spec.Replicas)
	}
}

// scale sets the replicas of the Deployment, as an administrator does.
func (s hookedShop) scale(replicas int32) {
	s.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := connect(s).Client.AppsV1().Deployments(s.namespace).Patch(s.Context(), "web", types.MergePatchType, patch,
		metav1.PatchOptions{}, "scale")
	if err != nil {
		s.Fatal(err)
	}
}

// watchPods calls a function with all pods of the namespace after each change of a pod, until the returned function is
// called.
func (s hookedShop) watchPods(look func([]corev1.Pod)) (stop func()) {
	s.Helper()
	pods := connect(s).Client.CoreV1().Pods(s.namespace)
	there, err := pods.List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	changes, err := pods.Watch(s.Context(), metav1.ListOptions{ResourceVersion: there.ResourceVersion})
	if err != nil {
		s.Fatal(err)
	}
	known, done := map[string]corev1.Pod{}, make(chan struct{})
	for _, pod := range there.Items {
		known[pod.Name] = pod
	}
	go func() {
		defer close(done)
		for event := range changes.ResultChan() {
			pod, isPod := event.Object.(*corev1.Pod)
			if !isPod {
				continue
			}
			known[pod.Name] = *pod
			if event.Type == watch.Deleted {
				delete(known, pod.Name)
			}
			look(slices.Collect(maps.Values(known)))
		}
	}()
	return func() {
		changes.Stop()
		<-done
	}
}

// TestPreviewOfHooks: a dry run reports which hooks would run, and whether the cluster accepts their pods. It runs no
// hook.
func TestPreviewOfHooks(t *testing.T) {
	s := newHookedShop(t)
	release := hookedRelease{
		image:    "one",
		strategy: "Recreate",
		hooks:    hookThat("pre", "Abort", succeeds) + hookThat("mid", "Abort", succeeds),
	}
	s.apply(release, apply.Options{Options: installMode})
	preview := func(want ...string) {
		t.Helper()
		report := s.preview(release)
		var got []string
		for _, change := range report.Changes {
			if change.Hook != "" {
				got = append(got, change.Hook+" "+string(change.Action))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("got preview %q, want %q: %v", got, want, report.Err)
		}
	}
	preview("pre not needed", "mid not needed")
	release.image = "two"
	preview("pre ran", "mid ran")
	if pods := s.hookPods(); len(pods) > 0 || s.deployment().Spec.Template.Spec.Containers[0].Image != "one" {
		t.Errorf("a preview has created pods: %q", pods)
	}
}

// preview previews a release.
func (s hookedShop) preview(release hookedRelease) *apply.Report {
	s.Helper()
	c := connect(s)
	store := record.NewStore(c.Client, "default", s.namespace)
	known, _, err := store.Load(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	before, err := inventory.Take(s.Context(), c, nil, nil)
	if err != nil {
		s.Fatal(err)
	}
	options := apply.Options{
		Options: object.Options{Release: s.namespace, Mode: graph.Update, Journal: object.NewJournal(store, known)},
	}
	return apply.Preview(s.Context(), c, load(s.T, s.namespace, s.namespace, release.files()), before, options)
}

// TestRolloutOfARemovedDeploymentEnds: the apply deletes the pod of its hook, and restores its replicas.
func TestRolloutOfARemovedDeploymentEnds(t *testing.T) {
	s := newHookedShop(t)
	release := hookedRelease{image: "one", strategy: "Recreate"}
	s.apply(release, apply.Options{Options: installMode})
	release.image, release.hooks = "two", hookThat("mid", "Abort", `{name: SANDBOX_POD, value: run}`)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	run(t, ctx, load(t, s.namespace, s.namespace, release.files()),
		apply.Options{Options: updateMode, ReportWaits: quickly, OnEvent: func(event apply.Event) {
			if event.Hook == "mid" && strings.HasSuffix(event.Message, " runs") {
				interrupt()
			}
		}})
	if pods := s.hookPods(); !slices.Equal(pods, []string{"mid 1 Running"}) {
		t.Fatalf("got pods of hooks %q", pods)
	}
	names := s.hookPodNames()
	_, rest, _ := strings.Cut(release.files(), "-- 0000_10_shop_20.yaml --\n")
	did := run(t, t.Context(), load(t, s.namespace, s.namespace, "-- 0000_10_shop_20.yaml --\n"+rest),
		apply.Options{Options: updateMode})
	s.expectEvents(did, "unchanged "+afterIt)
	for _, name := range names {
		sandboxtest.Await(t, test, corev1.SchemeGroupVersion.WithResource("pods"), s.namespace+"/"+name,
			func(pod *corev1.Pod) bool {
				return pod == nil
			})
	}
	if live := s.deployment(); *live.Spec.Replicas != 2 || live.Annotations[deploymenthook.StateAnnotation] != "" {
		t.Errorf("got %d replicas, state %s", *live.Spec.Replicas,
			live.Annotations[deploymenthook.StateAnnotation])
	}
}

// TestRolloutStoppedByAHookIsLeftAlone by a client that applies a release repeatedly, until the hook is fixed.
func TestRolloutStoppedByAHookIsLeftAlone(t *testing.T) {
	s := newHookedShop(t)
	release := hookedRelease{image: "one", hooks: hookThat("pre", "Abort", fails)}
	s.apply(release, apply.Options{PauseHooks: time.Hour})
	left := s.apply(release, apply.Options{PauseHooks: time.Hour})
	if left.Err == nil || !strings.Contains(left.Err.Error(),
		"no such table; its failure policy is Abort; it begins again after ") {
		t.Errorf("got error %v", left.Err)
	}
	s.apply(release, apply.Options{})
	if pods := s.hookPods(); !slices.Equal(pods, []string{"pre 1 Failed", "pre 2 Failed"}) {
		t.Errorf("got pods of hooks %q", pods)
	}
	release.hooks = hookThat("pre", "Abort", succeeds)
	fixed := s.apply(release, apply.Options{PauseHooks: time.Hour})
	s.expectEvents(fixed, "ran pre hook of "+webDeployment, "configured "+webDeployment, "created "+afterIt)
}

// TestNoHookOfARefusedDeploymentRuns: if the API server refuses the Deployment, the Deployment fails and not the hook,
// since to skip the hook would not help.
func TestNoHookOfARefusedDeploymentRuns(t *testing.T) {
	for mode, exists := range map[graph.Mode]bool{graph.Install: false, graph.Update: true} {
		t.Run(string(mode), func(t *testing.T) {
			s := newHookedShop(t)
			release := hookedRelease{image: "one", strategy: "Recreate"}
			if exists {
				s.apply(release, apply.Options{Options: installMode})
			}
			release.hooks = hookThat("pre", "Abort", succeeds) + hookThat("mid", "Abort", succeeds)
			release.image, release.replicas = "two", "replicas: 2\n  minReadySeconds: -1"
			did := s.apply(release, apply.Options{Options: inMode(mode)})
			s.expectEvents(did, "failed "+webDeployment)
			if did.Err == nil || !strings.HasPrefix(did.Err.Error(), "Deployment ") ||
				!strings.Contains(did.Err.Error(), "spec.minReadySeconds") {
				t.Errorf("got error %v", did.Err)
			}
			if exists && *s.deployment().Spec.Replicas != 2 {
				t.Errorf("got %d replicas", *s.deployment().Spec.Replicas)
			}
			if _, step, _ := apply.StateOf(did.Left).Find(did.Changes[0].ID); step.Phase != apply.HasFailed ||
				step.Hook != "" {
				t.Errorf("the record has %s, %s", step.Name(), step.Phase)
			}
			if first := did.Changes[0]; first.Hook != "pre" || first.Action != object.NotDone ||
				first.Message != "the Deployment is refused" {
				t.Errorf("got action %s of the hook: %s", first.Action, first.Message)
			}
			preview := s.preview(release)
			if preview.Err == nil || strings.Contains(preview.Err.Error(), "hook") ||
				!strings.Contains(preview.Err.Error(), "spec.minReadySeconds") {
				t.Errorf("got error %v of the preview", preview.Err)
			}
		})
	}
}
