package apply_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
)

// A hookHistory has all former and present pods of hooks.
type hookHistory struct {
	*sandboxtest.PodHistory
}

// watchHooks watches the pods of hooks. It fails the test if two pods of hooks of one Deployment run at the same time,
// or mid runs together with a pod of the Deployment.
func (s hookedShop) watchHooks() hookHistory {
	s.Helper()
	return hookHistory{sandboxtest.WatchPods(s, test.Sandbox(s).Config, s.namespace, func(now []corev1.Pod) {
		running, pods := map[string][]string{}, 0
		for _, pod := range now {
			name := pod.Labels[deploymenthook.DeploymentLabel]
			switch {
			case name == "":
				pods++
			case pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed:
				running[name] = append(running[name], pod.Labels["runlevel.dev/hook"])
			}
		}
		for name, stages := range running {
			if len(stages) > 1 || stages[0] == "mid" && pods > 0 {
				s.Errorf("hooks of %s run at the same time: %q, together with %d pods", name, stages, pods)
			}
		}
	})}
}

// ended returns the stages of all pods until now, with the phases that they ended in.
func (h hookHistory) ended() []string {
	var all []string
	for _, pod := range h.All() {
		if stage := pod.Labels["runlevel.dev/hook"]; stage != "" {
			all = append(all, stage+" "+string(pod.Status.Phase))
		}
	}
	slices.Sort(all)
	return all
}

// errKilled is the error of a connection whose applier was killed.
var errKilled = errors.New("killed")

// killedAfter applies a release, and is killed after some writes, or never if writes is 0. It returns the number of
// writes.
func (s hookedShop) killedAfter(writes int, release hookedRelease, options apply.Options) int {
	s.Helper()
	ctx, kill := context.WithCancel(s.Context())
	defer kill()
	var count atomic.Int64
	c := connectThrough(s, func(request *http.Request) error {
		if writes > 0 && count.Load() >= int64(writes) {
			kill()
			return errKilled
		}
		if request.Method != http.MethodGet {
			count.Add(1)
		}
		return nil
	})
	did := runOn(s.T, ctx, c, load(s.T, s.namespace, s.namespace, release.files()), options)
	if writes == 0 && did.Err != nil {
		s.Fatal(did.Err)
	}
	return int(count.Load())
}

// isRolledOut checks that the rollout is complete, and which pods of hooks still exist.
func (s hookedShop) isRolledOut(image string, left ...string) {
	s.Helper()
	live := s.deployment()
	if got := live.Spec.Template.Spec.Containers[0].Image; got != image || *live.Spec.Replicas != 2 ||
		live.Spec.Paused {
		s.Errorf("the Deployment has %d replicas of %s, paused: %t", *live.Spec.Replicas, got, live.Spec.Paused)
	}
	if status := live.Status; status.ObservedGeneration != live.Generation || status.UpdatedReplicas != 2 ||
		status.AvailableReplicas != 2 {
		s.Errorf("got status %+v, want 2 updated and available replicas of generation %d", status, live.Generation)
	}
	if state, _ := deploymenthook.ReadState(live); state.Rollout != "" || state.Template == "" ||
		state.Replicas != nil {
		s.Errorf("got state %s", state.Text())
	}
	if pods := s.hookPods(); !slices.Equal(pods, left) {
		s.Errorf("got pods of hooks %q", pods)
	}
	if _, err := connect(s).Client.CoreV1().ConfigMaps(s.namespace).Get(s.Context(), "after",
		metav1.GetOptions{}); err != nil {
		s.Error("the next object of the release does not exist:", err)
	}
}

// threeHooks returns a release with all hooks.
func threeHooks(image string) hookedRelease {
	return hookedRelease{
		image:    image,
		strategy: "Recreate",
		hooks: hookThat("pre", "Abort", succeeds) + hookThat("mid", "Abort", succeeds) +
			hookThat("post", "Abort", succeeds),
	}
}

// rollOutKilled installs a release with three hooks, and updates it. Both are killed after some writes, and run again.
// The pre hook fails, and its failure is ignored: the report of the failure causes further writes.
func (s hookedShop) rollOutKilled(writes int) (install, update int) {
	s.Helper()
	release := func(image string) hookedRelease {
		release := threeHooks(image)
		release.hooks = hookThat("pre", "Ignore", fails) + hookThat("mid", "Abort", succeeds) +
			hookThat("post", "Abort", succeeds)
		return release
	}
	runs := s.watchHooks()
	install = s.killedAfter(writes, release("one"), apply.Options{Options: installMode})
	if did := s.apply(release("one"), apply.Options{Options: installMode}); did.Err != nil {
		s.Fatalf("the install that continues: %v", did.Err)
	}
	s.isRolledOut("one", "pre 1 Failed")
	s.haveRun(runs, "post Succeeded", "pre Failed")
	update = s.killedAfter(writes, release("two"), apply.Options{Options: updateMode})
	if did := s.apply(release("two"), apply.Options{}); did.Err != nil {
		s.Fatalf("the update that continues: %v", did.Err)
	}
	s.isRolledOut("two", "pre 1 Failed")
	s.haveRun(runs, "mid Succeeded", "post Succeeded", "post Succeeded", "pre Failed", "pre Failed")
	return install, update
}

// isRolledOutWith checks that the rollout is complete, and which hooks have run until now.
func (s hookedShop) isRolledOutWith(image string, runs hookHistory, want ...string) {
	s.Helper()
	s.isRolledOut(image)
	s.haveRun(runs, want...)
}

// haveRun compares the hooks that have run until now.
func (s hookedShop) haveRun(runs hookHistory, want ...string) {
	s.Helper()
	if diff := cmp.Diff(want, runs.ended()); diff != "" {
		s.Errorf("hooks that have run (-want +got):\n%s", diff)
	}
}

// TestKilledAfterAnyWriteOfAHook kills an install and an update with three hooks after their writes. The apply that
// continues runs no hook again.
func TestKilledAfterAnyWriteOfAHook(t *testing.T) {
	all := 0
	t.Run("never", func(t *testing.T) {
		install, update := hookedShop{t, test.Namespace(t)}.rollOutKilled(0)
		all = max(install, update)
		t.Logf("the install has %d writes, and the update %d", install, update)
	})
	var several errgroup.Group // not limited by -parallel: the subtests mostly wait
	several.SetLimit(16)
	every := 6
	if sandboxtest.IsThorough() {
		every = 1
	}
	for writes := 1 + rand.IntN(every); writes <= all; writes += every {
		several.Go(func() error {
			t.Run(fmt.Sprintf("after %d", writes), func(t *testing.T) {
				hookedShop{t, test.Namespace(t)}.rollOutKilled(writes)
			})
			return nil
		})
	}
	_ = several.Wait() // the subtests have reported their failures
}
