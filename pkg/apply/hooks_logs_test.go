package apply_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// TestLogsOfHooksAreFollowed: each line comes once, while the pod runs.
func TestLogsOfHooksAreFollowed(t *testing.T) {
	s := newHookedShop(t)
	pod := ""
	var once sync.Once
	options := apply.Options{Options: installMode, FollowHooks: true, ReportWaits: quickly,
		OnEvent: func(event apply.Event) {
			switch {
			case event.Type == apply.Logged && event.Message == "table 1 of 2":
				test.LogPod(t, s.namespace, pod, "begins\ntable 1 of 2\ntable 2 of 2")
			case event.Type == apply.Logged && event.Message == "table 2 of 2":
				test.EndPod(t, s.namespace, pod, 0)
			case event.Hook == "pre" && strings.HasSuffix(event.Message, " runs"):
				once.Do(func() {
					pod = s.hookPodNames()[0]
					test.LogPod(t, s.namespace, pod, "begins\ntable 1 of 2")
				})
			}
		}}
	env := runsOn + `, {name: SANDBOX_LOG, value: begins}`
	did := s.apply(hookedRelease{image: "one", hooks: hookThat("pre", "Abort", env)}, options)
	want := []string{"pre begins", "pre table 1 of 2", "pre table 2 of 2", "pre ran"}
	if got := linesOfHooks(did); !slices.Equal(got, want) {
		t.Errorf("%v\n%s", did.Err, cmp.Diff(want, got))
	}
}

// TestLogOfAQuickHookIsReported, though its pod is not seen before it has ended.
func TestLogOfAQuickHookIsReported(t *testing.T) {
	s := newHookedShop(t)
	c := connectThrough(s, func(request *http.Request) error {
		if strings.HasSuffix(request.URL.Path, "/pods") && request.Method == http.MethodGet {
			for _, pod := range s.hookPodNames() {
				sandboxtest.Await(s, test, corev1.SchemeGroupVersion.WithResource("pods"), s.namespace+"/"+pod,
					func(pod *corev1.Pod) bool {
						return pod == nil || deploymenthook.HasEnded(pod)
					})
			}
		}
		return nil
	})
	release := hookedRelease{image: "one", hooks: hookThat("pre", "Abort", `{name: SANDBOX_LOG, value: is quick}`)}
	did := runOn(t, t.Context(), c, load(t, s.namespace, s.namespace, release.files()),
		apply.Options{Options: installMode, FollowHooks: true})
	if got := linesOfHooks(did); !slices.Equal(got, []string{"pre is quick", "pre ran"}) {
		t.Errorf("%v: %q", did.Err, got)
	}
}

// TestHookContinuesAfterAnInterruption of the apply, and the next apply waits for its pod.
func TestHookContinuesAfterAnInterruption(t *testing.T) {
	s := newHookedShop(t)
	release := hookedRelease{image: "one", hooks: hookThat("pre", "Abort", runsOn)}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	interrupted := onceRunning(func(string) { interrupt() })
	interrupted.Mode, interrupted.FollowHooks = graph.Install, true
	did := run(t, ctx, load(t, s.namespace, s.namespace, release.files()), interrupted)
	if did.Err == nil {
		t.Error("the interrupted apply has succeeded")
	}
	before := s.pod(s.hookPodNames()[0]).UID
	again := s.apply(release, onceRunning(func(pod string) {
		if s.pod(pod).UID != before {
			t.Error("the hook runs in another pod")
		}
		test.EndPod(t, s.namespace, pod, 0)
	}))
	s.expectEvents(again, "ran pre hook of "+webDeployment, "configured "+webDeployment, "created "+afterIt)
}

// TestScalingRunsNoHook is D4: not by hand, and not by the release.
func TestScalingRunsNoHook(t *testing.T) {
	s := newHookedShop(t)
	release := threeHooks("one")
	s.apply(release, apply.Options{Options: installMode})
	runs := s.watchHooks()
	s.scale(4)
	isLeftAlone := func() {
		t.Helper()
		did := s.apply(release, apply.Options{})
		if got := linesOfHooks(did); did.Err != nil ||
			!slices.Equal(got, []string{"pre not needed", "mid not needed", "post not needed"}) {
			t.Errorf("%v: %q", did.Err, got)
		}
	}
	isLeftAlone()
	release.replicas = "replicas: 3"
	isLeftAlone()
	if ran := runs.ended(); len(ran) > 0 {
		t.Errorf("hooks have run: %q", ran)
	}
}
