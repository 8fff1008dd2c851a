package apply_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
)

// onceRunning returns options that call a function with each pod of a hook, when the pod runs.
func onceRunning(did func(pod string)) apply.Options {
	seen := map[string]bool{}
	return apply.Options{ReportWaits: quickly, OnEvent: func(event apply.Event) {
		words := strings.Fields(event.Message)
		if event.Type == apply.Waiting && event.Hook != "" && len(words) == 3 && words[2] == "runs" && !seen[words[1]] {
			seen[words[1]] = true
			did(words[1])
		}
	}}
}

// ending returns options that end the pods of hooks with exit codes, one after the other.
func (s hookedShop) ending(codes ...int) apply.Options {
	return onceRunning(func(pod string) {
		if len(codes) == 0 {
			s.Errorf("pod %s should not run", pod)
			return
		}
		test.LogPod(s, s.namespace, pod, strings.Repeat(strings.Repeat(".", 1000)+"\n", 30)+"step one\nno such table")
		test.EndPod(s, s.namespace, pod, codes[0])
		codes = codes[1:]
	})
}

// linesOfHooks returns the log lines of hooks, and the ends of their steps.
func linesOfHooks(did applied) []string {
	var lines []string
	for _, event := range did.events {
		switch {
		case event.Hook == "":
		case event.Type == apply.Logged:
			lines = append(lines, event.Hook+" "+event.Message)
		case event.Type == apply.Applied:
			lines = append(lines, event.Hook+" "+string(event.Action))
		}
	}
	return lines
}

// TestRetriedHookSucceeds: a hook that fails once is retried. The test also checks which pods are kept.
func TestRetriedHookSucceeds(t *testing.T) {
	kept := map[string][]string{
		"keep: Never":  nil,
		"keep: Failed": {"post 1 Failed"},
		"keep: Always": {"post 1 Failed", "post 2 Succeeded"},
	}
	rows := map[string]string{}
	for keep := range kept {
		rows[keep] = keep
	}
	together(t, rows, func(s hookedShop, keep string) {
		did := s.apply(hookedRelease{image: "one", hooks: hookWith("post", "Retry", runsOn, keep)}, s.ending(3, 0))
		s.expectEvents(did, "created "+webDeployment, "retrying post hook of "+webDeployment,
			"ran post hook of "+webDeployment, "created "+afterIt)
		if got := s.hookPods(); !slices.Equal(got, kept[keep]) {
			s.Errorf("got pods of hooks %q", got)
		}
		s.hasEvent(deploymenthook.HookFailed, "the post hook, attempt 1: pod "+s.namespace,
			"exit code 3: no such table", "step one\nno such table")
		s.hasCondition(s.deployment(), corev1.ConditionFalse, "")
	})
}

// A retryEnd is a limit that ends the attempts of a hook.
type retryEnd struct{ field, spec, wants, pods string }

// TestRetriesOfAHookEnd at the limit of the hook, or at the deadline of the Deployment.
func TestRetriesOfAHookEnd(t *testing.T) {
	together(t, map[string]retryEnd{
		"backoffLimit": {"backoffLimit: 1", "replicas: 2",
			"exit code 3: no such table; it has failed 2 times, and its backoffLimit is 1",
			"pre 1 Failed, pre 2 Failed"},
		"progressDeadlineSeconds": {"timeoutSeconds: 9", "progressDeadlineSeconds: 1",
			"exit code 3: no such table; it has failed once, and the progress deadline of 1s is over", "pre 1 Failed"},
	}, func(s hookedShop, row retryEnd) {
		did := s.apply(hookedRelease{
			image:    "one",
			replicas: row.spec,
			hooks:    hookWith("pre", "Retry", fails, row.field),
		}, apply.Options{})
		if did.Err == nil || !strings.Contains(did.Err.Error(), row.wants) {
			s.Errorf("got error %v", did.Err)
		}
		if got := strings.Join(s.hookPods(), ", "); got != row.pods {
			s.Errorf("got pods of hooks %q", got)
		}
		s.hasEvent(deploymenthook.HookFailed, "exit code 3", "no such table")
		s.hasCondition(s.deployment(), corev1.ConditionTrue, "exit code 3: no such table")
	})
}

// TestAbortInMidRestoresTheDeployment, and the next apply begins with that hook.
func TestAbortInMidRestoresTheDeployment(t *testing.T) {
	s := newHookedShop(t)
	release := hookedRelease{image: "one", strategy: "Recreate"}
	s.apply(release, apply.Options{Options: installMode})
	s.scale(3)
	release.image, release.hooks = "two", hookThat("pre", "Abort", runsOn)+hookThat("mid", "Abort", runsOn)
	did := s.apply(release, s.ending(0, 3))
	s.expectEvents(did, "ran pre hook of "+webDeployment, "failed mid hook of "+webDeployment)
	back := sandboxtest.Await(t, test, appsv1.SchemeGroupVersion.WithResource("deployments"), s.namespace+"/web",
		func(live *appsv1.Deployment) bool {
			return live.Status.AvailableReplicas == 3 && live.Status.ObservedGeneration == live.Generation
		})
	if image := back.Spec.Template.Spec.Containers[0].Image; image != "one" || back.Spec.Paused {
		t.Errorf("the Deployment runs %s, paused: %t", image, back.Spec.Paused)
	}
	s.hasEvent(deploymenthook.HookFailed, "the mid hook, attempt 1", "exit code 3", "step one\nno such table")
	s.hasCondition(back, corev1.ConditionTrue, "exit code 3: no such table") // the scaling keeps the condition

	s.expectEvents(s.apply(release, s.ending(0)), "not needed pre hook of "+webDeployment,
		"ran mid hook of "+webDeployment,
		"configured "+webDeployment, "unchanged "+afterIt)
	if got := s.hookPods(); !slices.Equal(got, []string{"mid 1 Failed"}) {
		t.Errorf("got pods of hooks %q", got)
	}
	s.hasCondition(s.deployment(), corev1.ConditionFalse, "")
}

// TestUsersOverruleHooks: a user skips a hook that fails, and reruns another one.
func TestUsersOverruleHooks(t *testing.T) {
	s := newHookedShop(t)
	id := kinds.ID{Group: "apps", Kind: "Deployment", Namespace: s.namespace, Name: "web"}
	overruled := func(options apply.Options, override deploymenthook.Override) apply.Options {
		override.By = "jane"
		options.Hooks = map[kinds.ID]deploymenthook.Override{id: override}
		return options
	}
	checkResult := func(did applied, stage deploymenthook.Stage, result deploymenthook.HookResult) {
		t.Helper()
		state, _ := did.record.FindHooks(id)
		if got := state.Hooks[stage]; got.By != "jane" || got.Result != result {
			t.Errorf("got recorded hook %+v, want result %s by jane", got, result)
		}
	}
	checkLines := func(did applied, want ...string) {
		t.Helper()
		if got := linesOfHooks(did); did.Err != nil || !slices.Equal(got, want) {
			t.Errorf("got error %v, lines %q, want %q", did.Err, got, want)
		}
	}
	release := hookedRelease{image: "one", hooks: hookThat("pre", "Abort", runsOn) + hookThat("post", "Retry", runsOn)}
	s.apply(release, s.ending(3))
	did := s.apply(release, overruled(s.ending(0),
		deploymenthook.Override{Skip: []deploymenthook.Stage{deploymenthook.Pre}}))
	checkLines(did, "pre not needed", "post ran")
	checkResult(did, deploymenthook.Pre, deploymenthook.Skipped)

	did = s.apply(release, overruled(s.ending(0),
		deploymenthook.Override{Rerun: []deploymenthook.Stage{deploymenthook.Post}}))
	checkLines(did, "pre not needed", "post ran")
	checkResult(did, deploymenthook.Post, deploymenthook.Succeeded)

	checkLines(s.apply(release, s.ending()), "pre not needed", "post not needed")
}

// TestTheConditionStays while the deployment controller writes its own conditions.
func TestTheConditionStays(t *testing.T) {
	s := newHookedShop(t)
	s.apply(hookedRelease{image: "one", replicas: "minReadySeconds: 0", hooks: hookThat("post", "Ignore", fails)},
		apply.Options{})
	before := s.deployment()
	s.scale(4)
	live := sandboxtest.Await(t, test, appsv1.SchemeGroupVersion.WithResource("deployments"), s.namespace+"/web",
		func(live *appsv1.Deployment) bool {
			return live.Status.AvailableReplicas == 4
		})
	if diff := cmp.Diff(before.Status.Replicas, live.Status.Replicas); diff == "" {
		t.Error("the controller has written nothing")
	}
	s.hasCondition(live, corev1.ConditionTrue, "exit code 3: no such table")
	s.hasEvent(deploymenthook.HookFailed, "exit code 3", "no such table")
}
