package deploymenthook_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
)

// aTemplate has fields that a pod of a hook inherits, and fields that it must not inherit.
const aTemplate = `
metadata:
  labels: {app: web}
  annotations: {sidecar.istio.io/inject: "true"}
spec:
  restartPolicy: Always
  serviceAccountName: web
  automountServiceAccountToken: false
  nodeSelector: {disk: fast}
  tolerations: [{key: dedicated, operator: Exists}]
  imagePullSecrets: [{name: registry}]
  securityContext: {runAsUser: 1000}
  hostUsers: false
  priorityClassName: high
  terminationGracePeriodSeconds: 5
  hostname: web
  readinessGates: [{conditionType: ready}]
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
  initContainers: [{name: wait, image: wait}]
  volumes:
  - {name: data, emptyDir: {}}
  - {name: secret, secret: {secretName: web}}
  - {name: unmounted, emptyDir: {}}
  containers:
  - {name: proxy, image: proxy}
  - name: web
    image: web:2
    imagePullPolicy: Always
    workingDir: /srv
    command: [serve]
    args: [--port=80]
    ports: [{containerPort: 80, hostPort: 80}]
    envFrom: [{configMapRef: {name: web}}]
    env: [{name: MODE, value: serve}, {name: HOST, value: db}]
    resources: {limits: {cpu: "1"}, claims: [{name: gpu}]}
    securityContext: {readOnlyRootFilesystem: true}
    volumeMounts: [{name: data, mountPath: /data}, {name: secret, mountPath: /secret}, {name: data, mountPath: /more, subPath: more}]
    livenessProbe: {tcpSocket: {port: 80}}
    readinessProbe: {tcpSocket: {port: 80}}
    startupProbe: {tcpSocket: {port: 80}}
    lifecycle: {preStop: {exec: {command: [stop]}}}
    stdin: true
    tty: true
`

// created returns the pod that a stage creates for a hook.
func created(t *testing.T, stage deploymenthook.Stage, name, hook string) *corev1.Pod {
	t.Helper()
	rollout := deploymenthook.Rollout{Release: "shop", Desired: &appsv1.Deployment{}, Hooks: &deploymenthook.Hooks{}}
	rollout.Desired.Namespace, rollout.Desired.Name = "ns", name
	read := &deploymenthook.Hook{}
	for text, into := range map[string]any{aTemplate: &rollout.Desired.Spec.Template, hook: read} {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	rollout.Hooks.Pre, rollout.Hooks.Post = read, read
	rollout.Template = deploymenthook.HashTemplate(rollout.Desired)
	none := int32(0)
	live := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "deployment"},
		Spec:       appsv1.DeploymentSpec{Replicas: &none},
	}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name + "-1", UID: "set"}}
	seen := deploymenthook.RolloutFacts{
		Now:   time.Unix(0, 0),
		Live:  live,
		State: deploymenthook.State{Rollout: rollout.Template},
	}
	if stage == deploymenthook.Post {
		seen.ReplicaSet = set
	}
	begin := rollout.Next(stage, seen)
	seen.State = *begin.State
	action := rollout.Next(stage, seen)
	if action.Do != deploymenthook.Create {
		t.Fatalf("got action %s: %s", action.Do, action.Message)
	}
	return action.Pod
}

// TestPodOfAHook compares the whole pod: it must not have any other fields.
func TestPodOfAHook(t *testing.T) {
	pod := created(t, deploymenthook.Pre, "web", `
timeoutSeconds: 30
execNewPod:
  containerName: web
  command: [rake, migrate]
  env: [{name: MODE, value: migrate}, {name: STEP, value: "1"}]
  volumes: [data, unknown]
`)
	want := &corev1.Pod{}
	err := yaml.UnmarshalStrict([]byte(`
apiVersion: v1
kind: Pod
metadata:
  namespace: ns
  annotations: {kubectl.kubernetes.io/default-container: web}
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: deployment}]
spec:
  restartPolicy: Never
  activeDeadlineSeconds: 30
  serviceAccountName: web
  automountServiceAccountToken: false
  nodeSelector: {disk: fast}
  tolerations: [{key: dedicated, operator: Exists}]
  imagePullSecrets: [{name: registry}]
  securityContext: {runAsUser: 1000}
  hostUsers: false
  priorityClassName: high
  terminationGracePeriodSeconds: 5
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - name: web
    image: web:2
    imagePullPolicy: Always
    workingDir: /srv
    command: [rake, migrate]
    envFrom: [{configMapRef: {name: web}}]
    env: [{name: HOST, value: db}, {name: MODE, value: migrate}, {name: STEP, value: "1"}]
    resources: {limits: {cpu: "1"}}
    securityContext: {readOnlyRootFilesystem: true}
    volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /more, subPath: more}]
    terminationMessagePolicy: FallbackToLogsOnError
`), want)
	if err != nil {
		t.Fatal(err)
	}
	hash := pod.Labels["runlevel.dev/hook-hash"]
	want.Name = "shop-web-pre-" + hash + "-1"
	want.Labels = map[string]string{
		"runlevel.dev/hook-of":      "web",
		"runlevel.dev/hook":         "pre",
		"runlevel.dev/hook-hash":    hash,
		"runlevel.dev/hook-attempt": "1",
	}
	if diff := cmp.Diff(want, pod); diff != "" || hash == "" {
		t.Errorf("the pod (-want +got):\n%s", diff)
	}
}

// TestPodOfPost is owned by the new ReplicaSet, which is not its controller: it would give it up.
func TestPodOfPost(t *testing.T) {
	pod := created(t, deploymenthook.Post, "web",
		"serviceAccountName: caller\nresources: {limits: {cpu: 100m}}\nexecNewPod: {containerName: proxy, command: "+
			"[call]}\n")
	want := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: "set"}}
	if diff := cmp.Diff(want, pod.OwnerReferences); diff != "" {
		t.Error(diff)
	}
	container := pod.Spec.Containers[0]
	if pod.Spec.ServiceAccountName != "caller" || container.Resources.Limits.Cpu().String() != "100m" ||
		container.Image != "proxy" || *pod.Spec.ActiveDeadlineSeconds != 600 {
		t.Errorf("pod spec does not have the settings of the hook: %v", pod.Spec)
	}
	if pod.Spec.Volumes != nil || container.VolumeMounts != nil {
		t.Errorf("pod has volumes that the hook does not list: %v", pod.Spec.Volumes)
	}
}

// TestPodNames are names of hosts, and labels that the API server takes, whatever a Deployment is called. Two
// Deployments with one beginning have pods of their own.
func TestPodNames(t *testing.T) {
	long := strings.Repeat("a.b-", 50) + "c"
	names := map[string]string{}
	for _, name := range []string{"web", "web.v1", strings.Repeat("w", 63), strings.Repeat("w", 64), long, long + "d",
		strings.Repeat("a.", 30) + "z"} {
		pod := created(t, deploymenthook.Pre, name, "execNewPod: {containerName: web, command: [run]}")
		if wrong := validation.IsDNS1123Label(pod.Name); len(wrong) > 0 {
			t.Errorf("%s: %s: %q", name, pod.Name, wrong)
		}
		for key, value := range pod.Labels {
			if wrong := slices.Concat(validation.IsQualifiedName(key),
				validation.IsValidLabelValue(value)); len(wrong) > 0 {
				t.Errorf("%s: label %s=%s: %q", name, key, value, wrong)
			}
		}
		for _, current := range []string{pod.Name, pod.Labels[deploymenthook.DeploymentLabel]} {
			if other := names[current]; other != "" {
				t.Errorf("%s and %s share %s", name, other, current)
			}
			names[current] = name
		}
		if got := pod.Labels[deploymenthook.DeploymentLabel]; got != deploymenthook.LabelOf(name) {
			t.Errorf("%s: its pods are looked for by %s, and have %s", name, deploymenthook.LabelOf(name), got)
		}
	}
}

// TestHashOfTemplate is the same for the same template, read from a manifest or from the cluster.
func TestHashOfTemplate(t *testing.T) {
	deployment, other := &appsv1.Deployment{}, &appsv1.Deployment{}
	for _, into := range []*appsv1.Deployment{deployment, other} {
		if err := yaml.Unmarshal([]byte(aTemplate), &into.Spec.Template); err != nil {
			t.Fatal(err)
		}
	}
	replicas := int32(5)
	other.Spec.Replicas, other.Labels = &replicas, map[string]string{"a": "b"}
	if deploymenthook.HashTemplate(deployment) != deploymenthook.HashTemplate(other) {
		t.Error("replicas and labels of the Deployment count")
	}
	other.Spec.Template.Spec.Containers[1].Env[0].Value = "other"
	if deploymenthook.HashTemplate(deployment) == deploymenthook.HashTemplate(other) {
		t.Error("another variable does not count")
	}
}

// TestAHookEndsWithItsContainer: a container that a webhook has put beside it may run for ever.
func TestAHookEndsWithItsContainer(t *testing.T) {
	hook := &deploymenthook.Hook{
		FailurePolicy: deploymenthook.Abort,
		ExecNewPod:    &deploymenthook.ExecNewPod{ContainerName: "web", Command: []string{"check"}},
	}
	desired := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	desired.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "web"}}
	rollout := deploymenthook.Rollout{
		Release:  "shop",
		Hooks:    &deploymenthook.Hooks{Pre: hook},
		Desired:  desired,
		Template: deploymenthook.HashTemplate(desired),
	}
	isChanged := true
	facts := deploymenthook.RolloutFacts{Now: time.Now(), Live: desired, IsChanged: &isChanged}
	action := rollout.Next(deploymenthook.Pre, facts)
	for ; action.Do == deploymenthook.Save; action = rollout.Next(deploymenthook.Pre, facts) {
		facts.State = *action.State
	}
	pod := action.Pod
	pod.CreationTimestamp = metav1.NewTime(facts.Now)
	pod.Status.Phase = corev1.PodRunning
	for code, want := range map[int32]deploymenthook.ActionType{0: deploymenthook.Save, 1: deploymenthook.Report} {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			{Name: "web", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}},
		}
		facts.Pods = []*corev1.Pod{pod}
		if got := rollout.Next(deploymenthook.Pre, facts); got.Do != want {
			t.Errorf("with exit code %d: %s %s, want %s", code, got.Do, got.Message, want)
		}
	}
}
