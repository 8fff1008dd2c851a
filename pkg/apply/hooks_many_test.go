package apply_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/pkg/apply"
)

// runsOn lets the pod of a hook run until a test ends it.
const runsOn = `{name: SANDBOX_POD, value: run}`

// manyHooked returns a release of Deployments with pre and post hooks, all in one level. Their pre hooks run until a
// test ends them.
func manyHooked(count int) string {
	var files strings.Builder
	for i := range count {
		name := hookedRelease{
			image:    "one",
			replicas: "replicas: 1",
			hooks:    hookThat("pre", "Abort", runsOn) + hookThat("post", "Ignore", succeeds),
		}.files()
		name, _, _ = strings.Cut(name, "-- 0000_10_shop_20")
		name = strings.ReplaceAll(name, "0000_10_shop_10", fmt.Sprintf("0000_10_shop%d_10", i))
		name = strings.ReplaceAll(name, "name: web", fmt.Sprintf("name: web-%d", i))
		files.WriteString(strings.ReplaceAll(name, "app: web", fmt.Sprintf("app: web-%d", i)))
	}
	return files.String()
}

// TestFiftyHooksRunAtTheSameTime: the hooks of a level hold no worker while they run, and each hook runs once.
func TestFiftyHooksRunAtTheSameTime(t *testing.T) {
	const count, workers = 50, 4
	s := newHookedShop(t)
	runs := s.watchHooks()
	var ended sync.WaitGroup
	s.whenRunning(count, func(pods []corev1.Pod) {
		ended.Go(func() {
			for _, pod := range pods {
				test.EndPod(t, pod.Namespace, pod.Name, 0)
			}
		})
	})
	began := time.Now()
	did := run(t, t.Context(), load(t, s.namespace, s.namespace, manyHooked(count)),
		apply.Options{Options: installMode, Workers: workers})
	ended.Wait()
	if did.Err != nil {
		t.Fatal(did.Err)
	}
	t.Logf("%d Deployments with two hooks each, applied by %d workers, took %s", count, workers,
		time.Since(began).Round(time.Millisecond))
	found := map[string]int{}
	for _, name := range runs.ended() {
		found[name]++
	}
	if found["pre Succeeded"] != count || found["post Succeeded"] != count || len(found) != 2 {
		t.Errorf("got pods of hooks %v", found)
	}
}

// whenRunning calls a function once, when a number of pods of hooks run at the same time.
func (s hookedShop) whenRunning(count int, do func([]corev1.Pod)) {
	s.Helper()
	var once sync.Once
	s.Cleanup(s.watchPods(func(pods []corev1.Pod) {
		var running []corev1.Pod
		for _, pod := range pods {
			if pod.Labels["runlevel.dev/hook"] != "" && pod.Status.Phase == corev1.PodRunning {
				running = append(running, pod)
			}
		}
		if len(running) >= count {
			once.Do(func() { do(running) })
		}
	}))
}
