package operator_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/hostpods"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// status returns the output of "runlevel status", and whether the release is complete without problems.
func (s *stage) status() (text string, isDone bool) {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), sandboxtest.Program(s.t, "runlevel"), "status")
	command.Env = append(os.Environ(), "KUBECONFIG="+s.sandbox.Kubeconfig)
	out, err := command.CombinedOutput()
	return string(out), err == nil
}

// system is the namespace of the operator.
const system = "runlevel-system"

// deploy installs the operator as it is shipped, for a release, and runs its pods as processes. They have the rights of
// their service account, and no others.
func (s *stage) deploy(image string, change ...func(*appsv1.Deployment)) *hostpods.HostPods {
	s.t.Helper()
	s.applyAll(s.withRelease(install.Objects(), image, change...))
	return s.runPods(map[string]string{"runlevel-cluster": sandboxtest.Program(s.t, "runlevel-cluster")})
}

// applyAll applies objects as kubectl does.
func (s *stage) applyAll(objects []*unstructured.Unstructured) {
	s.t.Helper()
	for _, object := range objects {
		err := wait.PollUntilContextTimeout(s.t.Context(), 50*time.Millisecond, patience, true,
			func(ctx context.Context) (bool, error) {
				return s.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()),
					client.FieldOwner("kubectl"), client.ForceOwnership) == nil, nil
			})
		s.must(err)
	}
}

// runPods runs the pods of the operator as processes of programs, which have the name of the container's command.
func (s *stage) runPods(programs map[string]string) *hostpods.HostPods {
	s.t.Helper()
	pods, err := hostpods.Start(s.t.Context(), hostpods.Options{
		Config: s.sandbox.Config, Namespace: system, Selector: "app.kubernetes.io/name=runlevel-operator",
		Programs: programs, Folder: s.t.TempDir(),
	})
	s.must(err)
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.tail(pods)
		}
		_ = pods.Stop()
	})
	return pods
}

// tail logs the end of the operator's log.
func (s *stage) tail(pods *hostpods.HostPods) {
	for _, hostProcess := range pods.Processes() {
		text, _ := os.ReadFile(hostProcess.Log)
		lines := strings.Split(string(text), "\n")
		s.t.Logf("%s, %d restarts, waiting: %s\n%s", hostProcess.Pod, hostProcess.Restarts, hostProcess.Waiting,
			strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
}

// withRelease returns the manifests of the operator, for a release.
func (s *stage) withRelease(objects []*unstructured.Unstructured, image string,
	change ...func(*appsv1.Deployment)) []*unstructured.Unstructured {
	s.t.Helper()
	var all []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			all = append(all, object)
			continue
		}
		var deployment appsv1.Deployment
		text, err := yaml.Marshal(object.Object)
		s.must(err)
		s.must(yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "{{.ReleaseImage}}", image)), &deployment))
		container := &deployment.Spec.Template.Spec.Containers[0]
		container.Args = append(container.Args, "--insecure-registry", "--lock-duration=10s")
		for _, fn := range change {
			fn(&deployment)
		}
		text, err = yaml.Marshal(deployment)
		s.must(err)
		changed := &unstructured.Unstructured{}
		s.must(yaml.Unmarshal(text, &changed.Object))
		unstructured.RemoveNestedField(changed.Object, "metadata", "creationTimestamp")
		unstructured.RemoveNestedField(changed.Object, "spec", "template", "metadata", "creationTimestamp")
		delete(changed.Object, "status")
		all = append(all, changed)
	}
	return all
}

// leader waits until a replica that others does not list holds the lock, and returns its pod.
func (s *stage) leader(others ...string) string {
	s.t.Helper()
	var pod string
	err := wait.PollUntilContextTimeout(s.t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			var lease coordinationv1.Lease
			err := s.client.Get(ctx, client.ObjectKey{Namespace: system, Name: "runlevel-release-default"}, &lease)
			if err != nil || lease.Spec.HolderIdentity == nil {
				return false, nil
			}
			pod = *lease.Spec.HolderIdentity
			return pod != "" && !slices.ContainsFunc(others, func(other string) bool {
				return strings.Contains(pod, other)
			}), nil
		})
	if err != nil {
		s.t.Fatalf("no leader but %v", others)
	}
	return pod
}

// many is a release of ConfigMaps in some levels.
func many(count int) string {
	var text strings.Builder
	text.WriteString(shop)
	for i := range count {
		fmt.Fprintf(&text, "-- 0000_%d_part-%d_10_map.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: "+
			"map-%d, namespace: shop}, data: {version: VERSION}}\n", 30+i%5, i, i)
	}
	return text.String()
}

// at returns the number of ConfigMaps of a release of many that have a version.
func (s *stage) at(version string) int {
	s.t.Helper()
	var maps corev1.ConfigMapList
	s.must(s.client.List(s.t.Context(), &maps, client.InNamespace("shop")))
	found := 0
	for _, configMap := range maps.Items {
		if strings.HasPrefix(configMap.Name, "map-") && configMap.Data["version"] == version {
			found++
		}
	}
	return found
}

// untilAt waits until some ConfigMaps have a version.
func (s *stage) untilAt(version string, count int) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(s.t.Context(), 5*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			return s.at(version) >= count, nil
		})
	if err != nil {
		s.t.Fatalf("%s\n%d ConfigMaps are of %s, want %d", s.text(), s.at(version), version, count)
	}
}

// TestTheOperatorAsItIsShipped installs, updates and repairs with the Deployment, the arguments and the rights of
// install/. Its process is killed at three moments of the update.
func TestTheOperatorAsItIsShipped(t *testing.T) {
	t.Parallel()
	const parts = 60
	s := newStage(t)
	signer := s.newSigner()
	first, second := s.push("1.0.0", many(parts)+signer.policy()), signer.sign(s.push("1.0.1", many(parts)+till))
	pods := s.deploy(first)
	s.until("installed", isAt("1.0.0"))
	s.update(second) // the update waits at its end
	for _, written := range []int{1, parts / 3, parts} {
		s.untilAt("1.0.1", written)
		running, err := pods.AwaitReady(t.Context(), 1)
		s.must(err)
		s.must(syscall.Kill(running[0].PID, syscall.SIGKILL))
	}
	s.await("the status names the object that the operator waits for", func() bool {
		text, isDone := s.status()
		return !isDone && strings.Contains(text, "1.0.1") && strings.Contains(text, "ClusterOperator till")
	})
	s.report("till", "1.0.1")
	if done := s.until("updated", isAt("1.0.1")); !done.Status.History[0].Verified {
		t.Errorf("the update was not verified:\n%s", s.text())
	}
	if text, isDone := s.status(); !isDone || !strings.Contains(text, "1.0.1") {
		t.Errorf("status of the complete release:\n%s", text)
	}
	s.untilAt("1.0.1", parts)
	s.must(s.client.Delete(t.Context(), s.settings()))
	s.untilSettings("1.0.1")
	s.updateItself(newGraphServer(t), "1.0.0", first, "1.0.1", second, "1.0.2", s.push("1.0.2", many(parts)+till))
	s.checkMetrics(pods)
	s.checkRights()
}

// ownManifests returns the manifests of the operator as files of a release, which applies them at level 15.
func (s *stage) ownManifests(objects []*unstructured.Unstructured, change ...func(*appsv1.Deployment)) string {
	s.t.Helper()
	var files strings.Builder
	for i, object := range s.withRelease(objects, "{{.ReleaseImage}}", change...) {
		text, err := yaml.Marshal(object.Object)
		s.must(err)
		fmt.Fprintf(&files, "-- manifests/0000_15_runlevel_%02d.yaml --\n%s", i, text)
	}
	return files.String()
}

// TestAnUpdateReplacesTheOperator: the release has the operator's own manifests. The new process continues the update
// of the old one.
func TestAnUpdateReplacesTheOperator(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	release := func(version string) string {
		name := func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = map[string]string{"example.com/version": version}
		}
		return s.push(version, shop+s.ownManifests(install.Objects(), name))
	}
	first, second := release("1.0.0"), release("1.0.1")
	pods := s.deploy(first)
	s.until("installed", isAt("1.0.0"))
	before := s.leader()
	s.update(second)
	s.until("updated", isAt("1.0.1"))
	after := s.leader(before)
	if _, err := pods.AwaitReady(t.Context(), 1); err != nil {
		t.Error("the new operator:", err)
	}
	s.untilSettings("1.0.1")
	var deployment appsv1.Deployment
	s.must(s.client.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "runlevel-operator"}, &deployment))
	if got := deployment.Spec.Template.Annotations["example.com/version"]; got != "1.0.1" || before == after {
		t.Errorf("the operator is of %s, and its lock is held by %s", got, after)
	}
}

// TestAnotherReplicaTakesOver kills the leader of two, and puts the next one to sleep for longer than its lock lasts.
func TestAnotherReplicaTakesOver(t *testing.T) {
	t.Parallel()
	const parts = 40
	s := newStage(t)
	pods := s.deploy(s.push("1.0.0", many(parts)), func(d *appsv1.Deployment) { *d.Spec.Replicas = 2 })
	s.until("installed", isAt("1.0.0"))
	both, err := pods.AwaitReady(t.Context(), 2)
	s.must(err)
	first := s.leader()
	process := func(holder string) hostpods.HostProcess {
		for _, hostProcess := range pods.Processes() {
			if strings.Contains(holder, hostProcess.Pod) {
				return hostProcess
			}
		}
		t.Fatalf("no process of %s in %v", holder, both)
		return hostpods.HostProcess{}
	}
	s.must(syscall.Kill(process(first).PID, syscall.SIGKILL))
	second := s.leader(first)
	s.update(s.push("1.0.1", many(parts)))
	s.until("updated by the second", isAt("1.0.1"))

	asleep := process(second)
	s.must(syscall.Kill(asleep.PID, syscall.SIGSTOP))
	s.leader(second)
	s.update(s.push("1.0.2", many(parts)))
	s.until("updated by the third", isAt("1.0.2"))
	s.must(syscall.Kill(asleep.PID, syscall.SIGCONT))
	_, err = pods.Await(t.Context(), func(all []hostpods.HostProcess) bool {
		return slices.ContainsFunc(all, func(p hostpods.HostProcess) bool {
			return p.Pod == asleep.Pod && p.Restarts > asleep.Restarts && p.Ready
		})
	})
	s.must(err)
	s.until("it stays", isAt("1.0.2"))
	s.untilAt("1.0.2", parts)
}

// TestTheAPIServerIsAwayDuringAnUpdate for longer than the lock lasts.
func TestTheAPIServerIsAwayDuringAnUpdate(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	const parts = 40
	s := newStage(t)
	pods := s.deploy(s.push("1.0.0", many(parts)))
	s.until("installed", isAt("1.0.0"))
	s.update(s.push("1.0.1", many(parts)))
	s.until("the update is begun", func(v *configv1.ClusterVersion) bool { return v.Status.Desired.Version == "1.0.1" })
	s.must(s.sandbox.Kill(sandbox.APIServer))
	timer := time.NewTimer(12 * time.Second) // longer than the lock lasts
	<-timer.C
	s.must(s.sandbox.Resume(t.Context(), sandbox.APIServer))
	s.until("updated", isAt("1.0.1"))
	s.untilAt("1.0.1", parts)
	if _, err := pods.AwaitReady(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

// TestStatusOfAStoppedOperator scales the operator to 0, and starts it again.
func TestStatusOfAStoppedOperator(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.deploy(s.push("1.0.0", shop))
	s.until("installed", isAt("1.0.0"))
	scale := func(replicas string) {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "runlevel-operator"}}
		s.must(s.client.Patch(t.Context(), deployment,
			client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":`+replicas+`}}`))))
	}
	scale("0")
	s.await("the status reports that the operator does not run", func() bool {
		text, isDone := s.status()
		return !isDone && strings.Contains(text, "release default 1.0.0: complete, and not kept in place\n") &&
			strings.Contains(text, "the operator, Deployment runlevel-system/runlevel-operator, is scaled to 0 "+
				"replicas: kubectl -n runlevel-system scale deployment/runlevel-operator --replicas=1\n")
	})
	scale("1")
	s.await("the status reports that the operator runs", func() bool {
		text, isDone := s.status()
		return isDone && strings.Contains(text, "(watching) keeps it in place\n")
	})
}
