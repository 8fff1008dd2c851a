package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"golang.org/x/tools/txtar"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// system is the namespace of the operator.
const system = "runlevel-system"

// shop is a release with typical objects of users. VERSION is its version.
const shop = `
-- release-manifests/0000_20_shop_00_namespace.yaml --
apiVersion: v1
kind: Namespace
metadata: {name: shop}
-- release-manifests/0000_30_migration_01_job.yaml --
apiVersion: batch/v1
kind: Job
metadata: {name: migrate-VERSION, namespace: shop}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: app, image: registry.example/app:1, command: [/program, exit, "0"]}
-- release-manifests/0000_40_web_01_budget.yaml --
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: shop}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
-- release-manifests/0000_40_web_02_deployment.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {version: VERSION}}
    spec:
      containers:
      - name: app
        image: registry.example/app:1
        command: [/program, serve]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
-- release-manifests/0000_40_agent_01_daemonset.yaml --
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: shop}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}, annotations: {version: VERSION}}
    spec:
      containers:
      - {name: app, image: registry.example/app:1, command: [/program, serve]}
-- release-manifests/0000_50_web_01_old.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: old, namespace: shop}
`

// withTombstone is a release that deletes a ConfigMap of the one before.
func withTombstone(files string) string {
	return strings.Replace(files, "metadata: {name: old, namespace: shop}",
		`metadata: {name: old, namespace: shop, annotations: {release.openshift.io/delete: "true"}}`, 1)
}

// release returns a release that has the operator itself, by docs/install.md.
func (s *stage) release(version, files, operatorImage string) fs.FS {
	s.t.Helper()
	all := txtar.Parse([]byte(strings.ReplaceAll(files, "VERSION", version)))
	manifests, err := filepath.Glob("../0000_00_runlevel_*.yaml")
	s.must(err)
	for _, path := range manifests {
		text, err := os.ReadFile(path)
		s.must(err)
		template := strings.ReplaceAll(string(text), "registry.example/runlevel:placeholder",
			`{{index .Images "runlevel"}}`)
		all.Files = append(all.Files, txtar.File{Name: "manifests/" + filepath.Base(path), Data: []byte(template)})
	}
	references := fmt.Sprintf(`{"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": {"name": %q}, "spec": {"tags": [
  {"name": "runlevel", "from": {"kind": "DockerImage", "name": %q}}]}}`, version, operatorImage)
	all.Files = append(all.Files,
		txtar.File{
			Name: "release-manifests/release-metadata",
			Data: fmt.Appendf(nil, `{"kind": "cincinnati-metadata-v0", "version": %q}`, version),
		},
		txtar.File{Name: "release-manifests/image-references", Data: []byte(references)})
	packed, err := txtar.FS(all)
	s.must(err)
	return packed
}

// TestOperatorUpdatesItself installs the operator by the documented commands, with a release in a registry that needs a
// password and has its own authority. It updates the release, which replaces the operator, and causes failures.
func TestOperatorUpdatesItself(t *testing.T) {
	s := newStage(t)
	releases := s.newRegistry()
	releases.trust()
	images := []string{s.pushRunlevel("1"), s.pushRunlevel("2")}
	first := releases.push("1.0.0", s.release("1.0.0", shop, images[0]))
	second := releases.push("1.1.0", s.release("1.1.0", withTombstone(shop), images[1]))
	missing := regexp.MustCompile(`sha256:.*`).ReplaceAllString(images[0], "sha256:"+strings.Repeat("0", 64))
	third := releases.push("1.1.1", s.release("1.1.1", withTombstone(shop), missing))

	s.configure(releases)
	s.expect("runlevel install", s.run("install", "--release", first, "--image", images[0]),
		"the operator is available")
	s.untilComplete("1.0.0")
	s.expectNoFailedProbe()
	s.expectRestricted()

	s.hold("old")
	s.request(second)
	s.untilComplete("1.1.0")
	s.expectPendingDelete()
	s.letGo("old")

	s.repairs("with everything well")
	s.killOperator()

	s.request(third)
	s.expectOldOperatorAtWork()
	s.registryAway(releases, second)
}

// configure creates the settings of docs/install.md: credentials, and an authority.
func (s *stage) configure(r *privateRegistry) {
	s.t.Helper()
	_, err := s.core.CoreV1().Namespaces().Create(s.t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) { // other tests have their records there
		s.must(err)
	}
	_, err = s.core.CoreV1().Secrets(system).Create(s.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "runlevel-pull-secret"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: r.dockerConfig()},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.core.CoreV1().ConfigMaps(system).Create(s.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "runlevel-trusted-ca"},
		Data:       map[string]string{"releases.crt": string(r.authority)},
	}, metav1.CreateOptions{})
	s.must(err)
}

func (s *stage) version(ctx context.Context) *configv1.ClusterVersion {
	var v configv1.ClusterVersion
	_ = s.client.Get(ctx, client.ObjectKey{Name: "version"}, &v)
	return &v
}

// untilComplete waits until the status reports a version as completed, and "runlevel status" reports no problem.
func (s *stage) untilComplete(version string) {
	s.t.Helper()
	s.eventually(version+" is complete", func(ctx context.Context) bool {
		history := s.version(ctx).Status.History
		return len(history) > 0 && history[0].Version == version && history[0].State == configv1.CompletedUpdate
	})
	s.untilPrints([]string{"release default " + version, "keeps it in place"}, "status")
}

// request requests a release as "oc adm upgrade" does.
func (s *stage) request(image string) {
	s.t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"desiredUpdate": map[string]any{"image": image}}})
	s.must(err)
	s.must(s.client.Patch(s.t.Context(), s.version(s.t.Context()), client.RawPatch(types.MergePatchType, patch)))
}

// expectNoFailedProbe fails the test if the start of the operator has caused warnings about its pods. The namespace
// also has records of other tests. On a slow machine, a pod may answer for a moment that it is not ready yet.
func (s *stage) expectNoFailedProbe() {
	s.t.Helper()
	events, err := s.core.CoreV1().Events(system).List(s.t.Context(),
		metav1.ListOptions{FieldSelector: "type=Warning,involvedObject.kind=Pod"})
	s.must(err)
	for _, event := range events.Items {
		if strings.HasPrefix(event.Message, "Readiness probe failed: HTTP probe failed with statuscode: 500") {
			continue
		}
		s.t.Errorf("a warning about %s %s: %s: %s", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason,
			event.Message)
	}
}

// operatorProcesses returns the processes of operators in containers of this sandbox, the newest last.
func (s *stage) operatorProcesses() []int {
	s.t.Helper()
	group := "/runlevel" + strings.Split(s.sandbox.Registry, ".")[1] + "/" // prefix of control groups
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	s.must(err)
	var all []int
	for _, file := range files {
		line, err := os.ReadFile(file)
		groups, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		if err == nil && strings.HasPrefix(string(line), "/runlevel-cluster\x00operator\x00") &&
			strings.Contains(string(groups), group) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			s.must(err)
			all = append(all, pid)
		}
	}
	slices.Sort(all)
	return all
}

// expectRestricted fails the test if the kernel gives the operator more privileges than its manifest.
func (s *stage) expectRestricted() {
	s.t.Helper()
	processes := s.operatorProcesses()
	if len(processes) == 0 {
		s.t.Fatal("no operator runs")
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", processes[0]))
	s.must(err)
	fields := map[string]string{}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.Join(strings.Fields(value), " ")
	}
	for field, want := range map[string]string{
		"Uid": "65532 65532 65532 65532", "CapEff": "0000000000000000", "CapBnd": "0000000000000000", "NoNewPrivs": "1",
		"Seccomp": "2",
	} {
		if fields[field] != want {
			s.t.Errorf("the operator has %s %s, want %s", field, fields[field], want)
		}
	}
	if limit := s.logMemory("the operator", processes[0]); limit != 512 {
		s.t.Errorf("the operator may have %d MiB of memory, want 512", limit)
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", processes[0]))
	s.must(err)
	root := regexp.MustCompile(`(?m)^\S+ / \S+ (\S+)`).FindStringSubmatch(string(mounts))
	if root == nil || !strings.HasPrefix(root[1], "ro") {
		s.t.Errorf("the root of the operator is not read-only: %s", root)
	}
}

// hold adds a finalizer to a ConfigMap of the shop, so that its delete does not finish.
func (s *stage) hold(name string) {
	s.t.Helper()
	s.finalize(name, `["example.com/hold"]`)
}

// letGo removes the finalizer of a ConfigMap, and waits until its delete blocks no update.
func (s *stage) letGo(name string) {
	s.t.Helper()
	s.finalize(name, `null`)
	s.eventually("the delete is done", func(ctx context.Context) bool {
		_, err := s.core.CoreV1().ConfigMaps("shop").Get(ctx, name, metav1.GetOptions{})
		upgradeable := condition(s.version(ctx), configv1.OperatorUpgradeable)
		return apierrors.IsNotFound(err) && (upgradeable == nil || upgradeable.Status != configv1.ConditionFalse)
	})
}

func (s *stage) finalize(name, finalizers string) {
	s.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata": {"finalizers": %s}}`, finalizers)
	_, err := s.core.CoreV1().ConfigMaps("shop").Patch(s.t.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	s.must(err)
}

func condition(v *configv1.ClusterVersion,
	kind configv1.ClusterStatusConditionType) *configv1.ClusterOperatorStatusCondition {
	for i := range v.Status.Conditions {
		if v.Status.Conditions[i].Type == kind {
			return &v.Status.Conditions[i]
		}
	}
	return nil
}

// expectPendingDelete waits until the held delete refuses a minor update.
func (s *stage) expectPendingDelete() {
	s.t.Helper()
	s.eventually("a pending delete refuses minor updates", func(ctx context.Context) bool {
		upgradeable := condition(s.version(ctx), configv1.OperatorUpgradeable)
		return upgradeable != nil && upgradeable.Status == configv1.ConditionFalse &&
			strings.Contains(upgradeable.Message, `"shop/old"`)
	})
}

// repairs changes an object of the release, and waits until it is repaired.
func (s *stage) repairs(when string) time.Duration {
	s.t.Helper()
	deployments := s.core.AppsV1().Deployments("shop")
	_, err := deployments.Patch(s.t.Context(), "web", types.MergePatchType,
		[]byte(
			`{"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "registry.example/other:1"}]}}}}`,
		), metav1.PatchOptions{})
	s.must(err)
	return s.eventually("repaired "+when, func(ctx context.Context) bool {
		found, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		return err == nil && found.Spec.Template.Spec.Containers[0].Image == appImage
	})
}

// lease returns the lock of the release.
func (s *stage) lease() *coordinationv1.Lease {
	s.t.Helper()
	found, err := s.core.CoordinationV1().Leases(system).Get(s.t.Context(), "runlevel-release-default",
		metav1.GetOptions{})
	s.must(err)
	return found
}

// killOperator kills the process of the operator. The container restarts, and takes over the lock of the killed process
// long before the lock expires.
func (s *stage) killOperator() {
	s.t.Helper()
	var processes []int
	s.eventually("the operator before has ended", func(context.Context) bool {
		processes = s.operatorProcesses()
		return len(processes) == 1
	})
	s.repairs("by the only operator")
	before := s.lease()
	s.must(syscall.Kill(processes[0], syscall.SIGKILL))
	s.repairs("after kill -9 of the operator")
	after := s.lease()
	if *after.Spec.LeaseTransitions != *before.Spec.LeaseTransitions+1 {
		s.t.Errorf("the lock went from term %d to %d, want the next one", *before.Spec.LeaseTransitions,
			*after.Spec.LeaseTransitions)
	}
	last := before.Spec.RenewTime.Time
	age := after.Spec.AcquireTime.Sub(last)
	if age >= time.Duration(*before.Spec.LeaseDurationSeconds)*time.Second {
		s.t.Errorf("lock was acquired %s after its last renewal, after it had expired", age)
	}
}

// expectOldOperatorAtWork waits until the new operator can't be pulled, and expects the old one to work.
func (s *stage) expectOldOperatorAtWork() {
	s.t.Helper()
	s.untilPrints([]string{"can't pull image", strings.Repeat("0", 64)}, "why", "deployment/runlevel-operator", "-n",
		system)
}

// registryAway deletes the pods of the operator while the registry is away: the new one reads the files of the release
// from their copy on the cluster. Without the copy, the operator has no release, and must not report that it keeps the
// release in place.
func (s *stage) registryAway(r *privateRegistry, back string) {
	s.t.Helper()
	s.request(back)
	s.eventually("the release with the right operator is accepted", func(ctx context.Context) bool {
		history := s.version(ctx).Status.History
		return history[0].Image == back && history[0].State == configv1.CompletedUpdate
	})
	s.untilDeployed()
	r.close()
	s.must(s.client.DeleteAllOf(s.t.Context(), &corev1.Pod{}, client.InNamespace(system)))
	s.repairs("while the registry is away")
	s.untilPrints([]string{"keeps it in place"}, "status") // it has waited for its own Deployment, too
	s.must(s.client.DeleteAllOf(s.t.Context(), &corev1.Secret{}, client.InNamespace(system),
		client.HasLabels{"runlevel.dev/files"}))
	s.must(s.client.DeleteAllOf(s.t.Context(), &corev1.Pod{}, client.InNamespace(system)))
	s.untilPrints([]string{"is not kept in place", "can't read it", "nothing answers at "}, "status")
	r.open()
	s.repairs("once the registry is back")
}

// untilDeployed waits until the Deployment of the operator is rolled out.
func (s *stage) untilDeployed() {
	s.t.Helper()
	s.eventually("the operator is rolled out", func(ctx context.Context) bool {
		var d appsv1.Deployment
		err := s.client.Get(ctx, client.ObjectKey{Namespace: system, Name: "runlevel-operator"}, &d)
		return err == nil && d.Status.ObservedGeneration == d.Generation && d.Status.Replicas == 1 &&
			d.Status.UpdatedReplicas == 1 && d.Status.AvailableReplicas == 1
	})
}
