package operator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/sandbox/hostpods"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/text/embedded"
)

// unchanged is a workload that no update changes.
const unchanged = `
-- 0000_20_shop_20_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example/web:1}]}
`

// An upgrade is a stage where two versions of Runlevel take turns.
type upgrade struct {
	*stage
	older, newer string // the command lines
	pods         *hostpods.HostPods
	objects      map[string][]*unstructured.Unstructured // the operator's manifests, by the program of their Deployment
	workload     string                                  // the state of web when it was installed
}

func newUpgrade(t *testing.T) *upgrade {
	t.Helper()
	folder := sandboxtest.Older(t)
	u := &upgrade{
		stage: newStage(t), older: filepath.Join(folder, "runlevel"), newer: sandboxtest.Program(t, "runlevel"),
		objects: map[string][]*unstructured.Unstructured{
			"/older": embedded.Objects(os.DirFS(filepath.Join(folder, "install")), "0000_*.yaml"),
			"/newer": install.Objects(),
		},
	}
	u.pods = u.runPods(map[string]string{
		"older": filepath.Join(folder, "runlevel-cluster"),
		"newer": sandboxtest.Program(t, "runlevel-cluster"),
	})
	return u
}

// runs changes a Deployment so that it runs a program.
func runs(program string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Command[0] = program }
}

// pushWith pushes a release that has the operator of a program.
func (u *upgrade) pushWith(version, program, files string) string {
	u.t.Helper()
	return u.push(version, shop+old+unchanged+files+u.ownManifests(u.objects[program], runs(program)))
}

// install installs an operator by hand.
func (u *upgrade) install(program, image string) {
	u.t.Helper()
	u.applyAll(u.withRelease(u.objects[program], image, runs(program)))
}

// check waits until a program keeps a version in place, and then compares what users of both versions see.
func (u *upgrade) check(program, version string, history ...string) {
	u.t.Helper()
	u.until("at "+version, isAt(version))
	u.until("all is well", has("Failing", configv1.ConditionFalse, ""))
	u.awaitLeader(program)
	u.checkHistories(strings.Join(history, " "))
	other := filepath.Join(u.t.TempDir(), "release")
	u.must(os.CopyFS(other, u.release("1.0.9", shop)))
	holder := u.leader()
	for _, line := range []string{u.older, u.newer} {
		u.await(line+" status shows that "+version+" is kept in place", func() bool {
			out, code := u.runProgram(u.t, line, "status")
			return code == 0 && strings.Contains(out, version)
		})
		if out, code := u.runProgram(u.t, line, "apply", other, "--yes"); code != 1 || !strings.Contains(out, holder) {
			u.t.Errorf("%s apply ends with %d, and the lock is held by %s:\n%s", line, code, holder, out)
		}
		out, code := u.runProgram(u.t, line, "history", "default")
		if code != 0 || strings.Count(out, "update")+strings.Count(out, "install") != len(history) {
			u.t.Errorf("%s history ends with %d, want %s:\n%s", line, code, history, out)
		}
	}
	ofOlder, _ := u.runProgram(u.t, u.older, "get", "manifests", "default")
	ofNewer, code := u.runProgram(u.t, u.newer, "get", "manifests", "default")
	if ofOlder != ofNewer || code != 0 || !strings.Contains(ofNewer, "version: "+version) {
		u.t.Errorf("the files of %s are\n%s\nby the older program, and by the newer one\n%s", version, ofOlder, ofNewer)
	}
	if now := u.stateOfWeb(); now != u.workload && u.workload != "" {
		u.t.Errorf("the workload was restarted or replaced: %s, and before %s", now, u.workload)
	}
	u.must(u.client.Get(u.t.Context(), client.ObjectKey{Namespace: "shop", Name: "prices"}, &corev1.ConfigMap{}))
	u.must(u.editSettings("by-hand"))
	u.untilSettings(version)
}

// awaitLeader waits until the lock is held by a process of a program, and all other processes have ended.
func (u *upgrade) awaitLeader(program string) {
	u.t.Helper()
	u.await(program+" holds the lock", func() bool {
		var pods corev1.PodList
		u.must(u.client.List(u.t.Context(), &pods, client.InNamespace(system)))
		return len(pods.Items) == 1 && pods.Items[0].Spec.Containers[0].Command[0] == program &&
			strings.Contains(u.leader(), pods.Items[0].Name)
	})
}

// stateOfWeb returns what a restart, or another object of the same name, would change.
func (u *upgrade) stateOfWeb() string {
	u.t.Helper()
	var deployment appsv1.Deployment
	u.must(u.client.Get(u.t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &deployment))
	var pods corev1.PodList
	u.must(u.client.List(u.t.Context(), &pods, client.InNamespace("shop")))
	var names []string
	for _, pod := range pods.Items {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return fmt.Sprint(deployment.UID, deployment.Generation, names)
}

// TestRunlevelIsUpgradedAndDowngraded goes forth and back between an earlier commit and the present one: by releases
// that have the operator's own manifests, and by hand in the middle of an update.
func TestRunlevelIsUpgradedAndDowngraded(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	u := newUpgrade(t)
	first := u.pushWith("1.0.0", "/older", "")
	u.install("/older", first)
	u.check("/older", "1.0.0", "1.0.0=Completed")
	u.workload = u.stateOfWeb()

	u.update(u.pushWith("1.0.1", "/newer", ""))
	u.check("/newer", "1.0.1", "1.0.1=Completed", "1.0.0=Completed")
	u.update(first)
	u.check("/older", "1.0.0", "1.0.0=Completed", "1.0.1=Completed", "1.0.0=Completed")

	second := u.pushWith("1.0.2", "/newer", till)
	u.update(second)
	u.awaitLeader("/newer")
	newer := u.leader()
	u.await("another process has the lock, which applies the newer Deployment again", func() bool {
		u.install("/older", second) // once more, if the newer operator has undone it
		return u.leader() != newer
	})
	u.await("the older operator has continued the update", func() bool {
		return u.version().Status.Desired.Version == "1.0.2"
	})
	u.report("till", "1.0.2")
	u.check("/newer", "1.0.2", "1.0.2=Completed", "1.0.0=Completed", "1.0.1=Completed", "1.0.0=Completed")
}
