package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply"
)

// hookedWeb is a release of one Deployment of an image, with hooks by stage: what their pods do, as the sandbox knows
// it.
func hookedWeb(image string, hooks map[deploymenthook.Stage]string) string {
	annotation := ""
	for _, stage := range deploymenthook.Stages {
		if env := hooks[stage]; env != "" {
			annotation += fmt.Sprintf("      %s:\n        failurePolicy: Abort\n        execNewPod: {containerName: "+
				"web, command: [run], env: [%s]}\n", stage, env)
		}
	}
	if annotation != "" {
		annotation = "\n  annotations:\n    runlevel.dev/lifecycle-hooks: |\n" + strings.TrimSuffix(annotation, "\n")
	}
	return `
-- 0000_10_web_10_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: NS` + annotation + `
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: web, image: ` + image + `}]}
`
}

// The commands of the pods of hooks.
const (
	hookSucceeds = `{name: SANDBOX_EXIT_CODE, value: "0"}`
	hookFails    = `{name: SANDBOX_EXIT_CODE, value: "3"}`
	// The hook runs until it is ended, or deleted.
	hookRunsOn = `{name: SANDBOX_POD, value: run}, {name: SANDBOX_STOP_AFTER, value: 1s}`
)

// allHooks are hooks of all stages that succeed.
var allHooks = map[deploymenthook.Stage]string{
	deploymenthook.Pre:  hookSucceeds,
	deploymenthook.Mid:  hookSucceeds,
	deploymenthook.Post: hookSucceeds,
}

// hooksBut are hooks of all stages of which one does something else.
func hooksBut(stage deploymenthook.Stage, env string) map[deploymenthook.Stage]string {
	hooks := map[deploymenthook.Stage]string{stage: env}
	for _, other := range deploymenthook.Stages {
		if other != stage {
			hooks[other] = hookSucceeds
		}
	}
	return hooks
}

// A hookedRelease is a release whose hooks are watched.
type hookedRelease struct {
	release
	pods *sandboxtest.PodHistory
}

// newHookedRelease returns a release, and watches that its hooks run one after the other.
func newHookedRelease(t *testing.T) hookedRelease {
	t.Parallel()
	r := newRelease(t)
	return hookedRelease{r, sandboxtest.WatchPods(t, r.config, r.namespace, func(now []corev1.Pod) {
		var running []string
		for _, pod := range now {
			if stage := pod.Labels["runlevel.dev/hook"]; stage != "" && pod.Status.Phase != corev1.PodSucceeded &&
				pod.Status.Phase != corev1.PodFailed {
				running = append(running, pod.Name)
			}
		}
		if len(running) > 1 {
			t.Errorf("hooks run at a time: %q", running)
		}
	})}
}

// ran returns the stages of the hooks until now, in their order, and how they ended.
func (r hookedRelease) ran() string {
	r.Helper()
	var all []string
	for _, pod := range r.pods.All() {
		if stage := pod.Labels["runlevel.dev/hook"]; stage != "" {
			all = append(all, stage+" "+pod.Spec.Containers[0].Image+" "+string(pod.Status.Phase))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// deployment waits until the Deployment is as wanted, and rolled out.
func (r hookedRelease) deployment(isWanted func(*appsv1.Deployment) bool) *appsv1.Deployment {
	r.Helper()
	return sandboxtest.Await(r.T, test, appsv1.SchemeGroupVersion.WithResource("deployments"), r.namespace+"/web",
		func(d *appsv1.Deployment) bool {
			return d != nil && isWanted(d) && d.Status.ObservedGeneration == d.Generation &&
				d.Status.UpdatedReplicas == *d.Spec.Replicas && d.Status.AvailableReplicas == *d.Spec.Replicas &&
				!d.Spec.Paused
		})
}

// isOf returns whether a Deployment has an image, and a number of replicas.
func isOf(image string, replicas int32) func(*appsv1.Deployment) bool {
	return func(d *appsv1.Deployment) bool {
		return d.Spec.Template.Spec.Containers[0].Image == image && *d.Spec.Replicas == replicas
	}
}

// awaitHook waits until the hook of a stage runs.
func (r hookedRelease) awaitHook(stage deploymenthook.Stage) {
	r.Helper()
	r.until("the hook runs", func(ctx context.Context) (bool, error) {
		list, err := test.Client(r).CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{
			LabelSelector: "runlevel.dev/hook=" + string(stage),
			FieldSelector: "status.phase=Running",
		})
		return err == nil && len(list.Items) == 1, err
	})
}

// supersede installs a version of image one with three replicas, and begins an update to image two. When the hook of a
// stage runs, another version is applied, and its outcome returned.
func (r hookedRelease) supersede(stage deploymenthook.Stage, next string) *session.Outcome {
	r.Helper()
	s, err := session.Hold(r.Context(), r.connect(), r.name, r.namespace, lock.Options{Duration: time.Minute})
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = s.Release(nil) }()
	options := session.Options{Force: true, Apply: apply.Options{Timeout: patience}}
	if first := s.Apply(r.Context(), r.load("1.0.0", hookedWeb("one", allHooks)), options); first.Err != nil {
		r.Fatal(first.Err)
	}
	r.scale(3)
	ended := make(chan *session.Outcome, 1)
	go func() {
		ended <- s.Apply(r.Context(), r.load("1.0.1", hookedWeb("two", hooksBut(stage, hookRunsOn))), options)
	}()
	r.awaitHook(stage)
	outcome := s.Apply(r.Context(), r.load("1.0.2", next), options)
	if got := <-ended; !errors.Is(got.Err, session.ErrSuperseded) {
		r.Errorf("the second version ended with %v, want %v", got.Err, session.ErrSuperseded)
	}
	return outcome
}

// scale sets the replicas, as an administrator does.
func (r hookedRelease) scale(replicas int32) {
	r.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := test.Client(r).AppsV1().Deployments(r.namespace).Patch(r.Context(), "web", types.MergePatchType, patch,
		metav1.PatchOptions{}, "scale")
	if err != nil {
		r.Fatal(err)
	}
	r.deployment(func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == replicas })
}

// hasRun compares the hooks that have run with those that should have.
func (r hookedRelease) hasRun(want ...string) {
	r.Helper()
	if diff := cmp.Diff(strings.Join(want, "\n"), r.ran()); diff != "" {
		r.Errorf("hooks that have run (-want +got):\n%s", diff)
	}
	list, err := test.Client(r).CoreV1().Pods(r.namespace).List(r.Context(),
		metav1.ListOptions{LabelSelector: "runlevel.dev/hook", FieldSelector: "status.phase!=Failed"})
	if err != nil || len(list.Items) > 0 {
		r.Errorf("%d pods of hooks are left, %v", len(list.Items), err)
	}
}

// TestANewTemplateEndsTheHookThatRuns checks that the hooks of the new template run after the old hook has ended.
func TestANewTemplateEndsTheHookThatRuns(t *testing.T) {
	for stage, ofTwo := range map[deploymenthook.Stage][]string{
		deploymenthook.Pre:  {"pre two Running"},
		deploymenthook.Mid:  {"mid two Running", "pre two Succeeded"},
		deploymenthook.Post: {"mid two Succeeded", "post two Running", "pre two Succeeded"},
	} {
		t.Run(string(stage), func(t *testing.T) {
			r := newHookedRelease(t)
			if outcome := r.supersede(stage, hookedWeb("three", allHooks)); outcome.Err != nil {
				t.Fatal(outcome.Err)
			}
			r.deployment(isOf("three", 3))
			want := append(ofTwo, "post one Succeeded", "pre one Succeeded", "mid three Succeeded",
				"post three Succeeded", "pre three Succeeded")
			slices.Sort(want)
			r.hasRun(want...)
		})
	}
}

// TestGoingBackRunsNoHook goes back to the template that the Deployment still has.
func TestGoingBackRunsNoHook(t *testing.T) {
	for _, stage := range []deploymenthook.Stage{deploymenthook.Pre, deploymenthook.Mid} {
		t.Run(string(stage), func(t *testing.T) {
			r := newHookedRelease(t)
			if outcome := r.supersede(stage, hookedWeb("one", allHooks)); outcome.Err != nil {
				t.Fatal(outcome.Err)
			}
			r.deployment(isOf("one", 3))
			want := []string{string(stage) + " two Running", "post one Succeeded", "pre one Succeeded"}
			if stage == deploymenthook.Mid {
				want = append(want, "pre two Succeeded")
			}
			slices.Sort(want)
			r.hasRun(want...)
		})
	}
}

// TestAReleaseWithoutHooksEndsTheHookThatRuns checks that no objects and state of hooks remain.
func TestAReleaseWithoutHooksEndsTheHookThatRuns(t *testing.T) {
	for _, stage := range []deploymenthook.Stage{deploymenthook.Pre, deploymenthook.Mid} {
		t.Run(string(stage), func(t *testing.T) {
			r := newHookedRelease(t)
			if outcome := r.supersede(stage, hookedWeb("three", nil)); outcome.Err != nil {
				t.Fatal(outcome.Err)
			}
			live := r.deployment(isOf("three", 3))
			if state, exists := live.Annotations[deploymenthook.StateAnnotation]; exists {
				t.Errorf("the state of the hook still exists: %s", state)
			}
			want := []string{string(stage) + " two Running", "post one Succeeded", "pre one Succeeded"}
			if stage == deploymenthook.Mid {
				want = append(want, "pre two Succeeded")
			}
			slices.Sort(want)
			r.hasRun(want...)
		})
	}
}

// TestAnAbortAfterAMidHookThatWasSuperseded checks that an abort scales the Deployment up again, although the aborted
// update has not scaled it to 0 itself.
func TestAnAbortAfterAMidHookThatWasSuperseded(t *testing.T) {
	r := newHookedRelease(t)
	if outcome := r.supersede(deploymenthook.Mid,
		hookedWeb("three", hooksBut(deploymenthook.Pre, hookFails))); outcome.Err == nil {
		t.Error("no update was aborted")
	}
	r.deployment(isOf("one", 3))
	r.hasRun("mid two Running", "post one Succeeded", "pre one Succeeded", "pre three Failed", "pre two Succeeded")
}

// until waits until isSo returns true.
func (r hookedRelease) until(what string, isSo func(context.Context) (bool, error)) {
	r.Helper()
	if err := wait.PollUntilContextTimeout(r.Context(), 20*time.Millisecond, patience, true, isSo); err != nil {
		r.Fatalf("never: %s: %v", what, err)
	}
}
