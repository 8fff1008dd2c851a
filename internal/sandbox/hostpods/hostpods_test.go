package hostpods_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/hostpods"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var cluster = sandboxtest.New(sandbox.Options{})

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(programEnv) != "":
		os.Exit(beProgram())
	case os.Getenv(ownerEnv) != "":
		runOwner() // see stop_test.go
	}
	os.Exit(cluster.Run(m))
}

// patience is the timeout of waits. No wait that succeeds takes as long.
const patience = 5 * time.Minute

var (
	pods        = corev1.SchemeGroupVersion.WithResource("pods")
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
)

// template is the pod template of a Deployment, as a program is shipped.
const template = `
metadata: {labels: {app: web}, annotations: {note: hello}}
spec:
  serviceAccountName: worker
  terminationGracePeriodSeconds: 20
  containers:
  - name: main
    image: example.com/web:1
    command: [/usr/bin/web]
    args: [$(POD_IP):8080]
    env:
    - {name: ` + programEnv + `, value: "1"}
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: SCRATCH, value: /scratch}
    readinessProbe:
      periodSeconds: 1
      failureThreshold: 1
      httpGet: {path: /readyz, port: http}
    ports: [{name: http, containerPort: 8080}]
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  volumes:
  - {name: scratch, emptyDir: {}}
`

// options returns the options for the pods of a namespace.
func options(t testing.TB, namespace string) hostpods.Options {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return hostpods.Options{
		Config: cluster.Sandbox(t).Config, Namespace: namespace, Selector: "app=web",
		Programs: map[string]string{"web": program}, Folder: t.TempDir(),
	}
}

// start runs the pods of a namespace until the test ends.
func start(t testing.TB, o hostpods.Options) *hostpods.HostPods {
	t.Helper()
	h, err := hostpods.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Stop(); err != nil {
			t.Error("stop:", err)
		}
	})
	return h
}

// deploy creates the Deployment web, and its service account.
func deploy(t testing.TB, namespace string, replicas int32, changes ...func(*corev1.PodSpec)) {
	t.Helper()
	_, err := cluster.Client(t).CoreV1().ServiceAccounts(namespace).Get(t.Context(), "worker", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		cluster.Account(t, namespace, "worker",
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}})
	} else if err != nil {
		t.Fatal(err)
	}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}}
	if err := yaml.UnmarshalStrict([]byte(template), &web.Spec.Template); err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(&web.Spec.Template.Spec)
	}
	if _, err := cluster.Client(t).AppsV1().Deployments(namespace).Create(t.Context(), web,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// patch changes the Deployment web.
func patch(t testing.TB, namespace, change string) {
	t.Helper()
	_, err := cluster.Client(t).AppsV1().Deployments(namespace).Patch(t.Context(), "web", types.StrategicMergePatchType,
		[]byte(change), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// add returns a change of a pod that adds settings to its first container, and volumes.
func add(t testing.TB, text string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		var more struct {
			Args    []string
			Env     []corev1.EnvVar
			EnvFrom []corev1.EnvFromSource
			Mounts  []corev1.VolumeMount
			Volumes []corev1.Volume
		}
		if err := yaml.UnmarshalStrict([]byte(text), &more); err != nil {
			t.Fatal(err)
		}
		main := &spec.Containers[0]
		main.Args, main.Env = append(main.Args, more.Args...), append(main.Env, more.Env...)
		main.EnvFrom, main.VolumeMounts = more.EnvFrom, append(main.VolumeMounts, more.Mounts...)
		spec.Volumes = append(spec.Volumes, more.Volumes...)
	}
}

// awaitReady waits for processes that are ready.
func awaitReady(t testing.TB, h *hostpods.HostPods, count int) []hostpods.HostProcess {
	t.Helper()
	return await(t, h, func(ctx context.Context) ([]hostpods.HostProcess, error) { return h.AwaitReady(ctx, count) })
}

// awaitProcesses waits until isWanted returns true for the processes.
func awaitProcesses(t testing.TB, h *hostpods.HostPods,
	wanted func([]hostpods.HostProcess) bool) []hostpods.HostProcess {
	t.Helper()
	return await(t, h, func(ctx context.Context) ([]hostpods.HostProcess, error) { return h.Await(ctx, wanted) })
}

func await(t testing.TB, h *hostpods.HostPods,
	wait func(context.Context) ([]hostpods.HostProcess, error)) []hostpods.HostProcess {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	processes, err := wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return processes
}

// get sends a request to a process, and returns the answer.
func get(t testing.TB, p hostpods.HostProcess, path string) []byte {
	t.Helper()
	response, err := http.Get("http://" + p.Address + ":8080" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func selfOf(t testing.TB, p hostpods.HostProcess) selfReport {
	t.Helper()
	var s selfReport
	if err := json.Unmarshal(get(t, p, "/self"), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func readFile(t testing.TB, p hostpods.HostProcess, path string) string {
	t.Helper()
	return string(get(t, p, "/file?path="+url.QueryEscape(path)))
}

func reason(err error) metav1.StatusReason { return apierrors.ReasonForError(err) }

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func isAvailable(replicas int32) func(*appsv1.Deployment) bool {
	return func(d *appsv1.Deployment) bool {
		return d != nil && d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == replicas &&
			d.Status.Replicas == replicas && d.Status.AvailableReplicas == replicas
	}
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestProcessHasTheSettingsOfItsPod(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	createData(t, namespace)
	h := start(t, options(t, namespace))
	deploy(t, namespace, 1, add(t, `
args: [--config=/etc/web/deep/colour.txt, /etc/web, /etc/website, $(GREETING) $$(GREETING) $(NOBODY)]
env:
- {name: GREETING, value: "hello $(NAMESPACE)"}
- {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
- {name: KEYS, value: /etc/web/keys}
envFrom: [{prefix: ALL_, configMapRef: {name: settings}}]
mounts:
- {name: settings, mountPath: /etc/web}
- {name: keys, mountPath: /etc/web/keys}
- {name: mixed, mountPath: /mixed}
- {name: scratch, mountPath: /tmp}
volumes:
- {name: settings, configMap: {name: settings, items: [{key: colour, path: deep/colour.txt}]}}
- {name: keys, secret: {secretName: keys}}
- name: mixed
  projected:
    sources:
    - serviceAccountToken: {audience: elsewhere, path: token}
    - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
`))
	process := awaitReady(t, h, 1)[0]
	s := selfOf(t, process)
	volumes := strings.TrimSuffix(s.Env["SCRATCH"], "/scratch")
	want := []string{
		"web", process.Address + ":8080", "--config=" + volumes + "/settings/deep/colour.txt", volumes + "/settings",
		"/etc/website",
		"hello " + namespace + " $(GREETING) $(NOBODY)",
	}
	if diff := cmp.Diff(want, s.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	wantEnv := map[string]string{
		programEnv: "1", "POD_IP": process.Address, "NAMESPACE": namespace, "SCRATCH": volumes + "/scratch",
		"GREETING": "hello " + namespace, "NODE": "node-0", "POD": process.Pod,
		"ACCOUNT": "worker", "KEYS": volumes + "/keys", "ALL_colour": "red",
		"HOME": s.Folder, "TMPDIR": volumes + "/scratch", "KUBECONFIG": s.Folder + "/kubeconfig",
	}
	if diff := cmp.Diff(wantEnv, s.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{"/settings/deep/colour.txt": "red", "/keys/password": "secret",
		"/mixed/namespace": namespace} {
		if got := readFile(t, process, volumes+path); !strings.HasPrefix(got, want) {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
	if token := readFile(t, process, volumes+"/mixed/token"); strings.Count(token, ".") != 2 {
		t.Errorf("the token for audience elsewhere is %q, want a JWT", token)
	}
}

// createData creates the ConfigMap settings and the Secret keys.
func createData(t testing.TB, namespace string) {
	t.Helper()
	core := cluster.Client(t).CoreV1()
	settings := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"},
		Data:       map[string]string{"colour": "red"},
	}
	if _, err := core.ConfigMaps(namespace).Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	keys := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "keys"},
		StringData: map[string]string{"password": "secret"},
	}
	if _, err := core.Secrets(namespace).Create(t.Context(), keys, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestProcessHasTheRightsOfItsServiceAccount(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	h := start(t, options(t, namespace))
	deploy(t, namespace, 1)
	process := awaitReady(t, h, 1)[0]
	var s selfReport
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			s = selfOf(t, process)
			return s.Rights["list configmaps"] == "", nil // the API server applies RBAC after a moment
		})
	if err != nil {
		t.Errorf("the process may not list ConfigMaps: %+v", s)
	}
	if s.User != "system:serviceaccount:"+namespace+":worker" || !slices.Equal(s.Pod, []string{process.Pod}) {
		t.Errorf("the user is %s with a token of pod %s, want worker and %s", s.User, s.Pod, process.Pod)
	}
	if s.Rights["list secrets"] != string(metav1.StatusReasonForbidden) {
		t.Errorf("listing Secrets ended with %q, want Forbidden", s.Rights["list secrets"])
	}
}

func TestProcessWithoutServiceAccountToken(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	h := start(t, options(t, namespace))
	deploy(t, namespace, 1, func(spec *corev1.PodSpec) { spec.AutomountServiceAccountToken = new(bool) })
	s := selfOf(t, awaitReady(t, h, 1)[0])
	if path, ok := s.Env["KUBECONFIG"]; ok {
		t.Errorf("got the kubeconfig %s, want none", path)
	}
}

func TestPodIsReadyIfItsProcessIs(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	h := start(t, options(t, namespace))
	deploy(t, namespace, 1)
	process := awaitReady(t, h, 1)[0]
	sandboxtest.Await(t, cluster, deployments, namespace+"/web", isAvailable(1))

	flag := selfOf(t, process).Env["SCRATCH"] + "/unready"
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, cluster, deployments, namespace+"/web", isAvailableOf(0))
	pod := sandboxtest.Await(t, cluster, pods, namespace+"/"+process.Pod, func(p *corev1.Pod) bool {
		return p != nil && !isReady(p)
	})
	if pod.Status.Phase != corev1.PodRunning || pod.Status.ContainerStatuses[0].Ready ||
		pod.Status.ContainerStatuses[0].State.Running == nil {
		t.Errorf("got pod status %+v, want a running and unready container", pod.Status)
	}
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, cluster, deployments, namespace+"/web", isAvailable(1))
}

func isAvailableOf(count int32) func(*appsv1.Deployment) bool {
	return func(d *appsv1.Deployment) bool { return d != nil && d.Status.AvailableReplicas == count }
}

// TestPodIsNeverReadyBeforeItsProcess watches a pod whose process does not start, from its creation on.
func TestPodIsNeverReadyBeforeItsProcess(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	h := start(t, options(t, namespace))
	deploy(t, namespace, 1, add(t, `
mounts: [{name: settings, mountPath: /etc/web}]
volumes: [{name: settings, configMap: {name: settings}}]`))
	var name string
	awaitProcesses(t, h, func(all []hostpods.HostProcess) bool {
		if len(all) == 1 {
			name = all[0].Pod
		}
		return len(all) == 1 && strings.Contains(all[0].Waiting, `configmaps "settings" not found`)
	})
	sandboxtest.Await(t, cluster, pods, namespace+"/"+name, func(p *corev1.Pod) bool {
		if p != nil && isReady(p) {
			t.Error("the pod is ready before its process runs")
		}
		return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			strings.Contains(p.Status.ContainerStatuses[0].State.Waiting.Message, "settings")
	})
	createData(t, namespace)
	process := awaitReady(t, h, 1)[0]
	file := filepath.Join(filepath.Dir(selfOf(t, process).Env["SCRATCH"]), "settings", "colour")
	if _, err := cluster.Client(t).CoreV1().ConfigMaps(namespace).Patch(t.Context(), "settings", types.MergePatchType,
		[]byte(`{"data": {"colour": "blue"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			return readFile(t, process, file) == "blue", nil
		}); err != nil {
		t.Errorf("the process does not read the change of the ConfigMap: %v", err)
	}
}

func TestProcessesAreReplacedWithTheTemplate(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	h := start(t, options(t, namespace))
	deploy(t, namespace, 1)
	before := awaitReady(t, h, 1)[0]

	patch(t, namespace,
		`{"spec": {"template": {"spec": {"containers": [
			{"name": "main", "env": [{"name": "VERSION", "value": "2"}]}
		]}}}}`)
	sandboxtest.Await(t, cluster, deployments, namespace+"/web", isAvailable(1))
	after := awaitReady(t, h, 1)[0]
	if after.Pod == before.Pod || selfOf(t, after).Env["VERSION"] != "2" {
		t.Errorf("got %+v after %+v, want a new pod with VERSION=2", after, before)
	}
	awaitProcesses(t, h, func(all []hostpods.HostProcess) bool { return len(all) == 1 })
	if alive(before.PID) {
		t.Errorf("process %d still runs after its pod was removed", before.PID)
	}
	log, err := os.ReadFile(before.Log)
	if err != nil || !strings.Contains(string(log), "asked to end\ngood bye\n") {
		t.Errorf("the log of the first process is %q, %v; want its end", log, err)
	}
}

func TestReplicasListenOnTheSamePort(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	h := start(t, options(t, namespace))
	deploy(t, namespace, 1)
	awaitReady(t, h, 1)
	patch(t, namespace, `{"spec": {"replicas": 2}}`)
	both := awaitReady(t, h, 2)
	if both[0].Address == both[1].Address && runtime.GOOS == "linux" {
		t.Errorf("both have the address %s", both[0].Address)
	}
	for _, process := range both {
		if s := selfOf(t, process); s.Env["POD_IP"] != process.Address || process.Restarts > 0 {
			t.Errorf("%+v has POD_IP %s, want its address", process, s.Env["POD_IP"])
		}
	}
	patch(t, namespace, `{"spec": {"replicas": 0}}`)
	awaitProcesses(t, h, func(all []hostpods.HostProcess) bool { return len(all) == 0 })
	for _, process := range both {
		if alive(process.PID) {
			t.Errorf("process %d still runs", process.PID)
		}
	}
}

// TestAPIServerReachesTheProcess connects to the pod and to a Service, as for webhooks.
func TestAPIServerReachesTheProcess(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	h := start(t, options(t, namespace))
	deploy(t, namespace, 1)
	process := awaitReady(t, h, 1)[0]
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"},
		Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
	}}
	if _, err := cluster.Client(t).CoreV1().Services(namespace).Create(t.Context(), service,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]rest.ResponseWrapper{
		"pod":     cluster.Client(t).CoreV1().Pods(namespace).ProxyGet("http", process.Pod, "8080", "/self", nil),
		"Service": cluster.Client(t).CoreV1().Services(namespace).ProxyGet("http", "web", "80", "/self", nil),
	} {
		var answer []byte
		var refusal error
		err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true,
			func(ctx context.Context) (bool, error) {
				answer, refusal = ask.DoRaw(ctx)
				return refusal == nil, nil // the pod's status and the endpoints are updated after a moment
			})
		if err != nil || !strings.Contains(string(answer), process.Address+":8080") {
			t.Errorf("%s: %s, %v", name, answer, refusal)
		}
	}
}

func TestKilledProcessIsRestarted(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	h := start(t, options(t, namespace))
	deploy(t, namespace, 1)
	for killed := 1; killed <= 2; killed++ {
		process := awaitReady(t, h, 1)[0]
		if err := syscall.Kill(process.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitProcesses(t, h, func(all []hostpods.HostProcess) bool {
			return len(all) == 1 && all[0].Restarts == killed && all[0].Pod == process.Pod && all[0].PID != process.PID
		})
		sandboxtest.Await(t, cluster, pods, namespace+"/"+process.Pod, func(p *corev1.Pod) bool {
			status := p.Status.ContainerStatuses[0]
			return status.RestartCount == int32(killed) && isReady(p) &&
				status.LastTerminationState.Terminated != nil &&
				status.LastTerminationState.Terminated.ExitCode == 128+int32(syscall.SIGKILL)
		})
	}
}

func TestReasonOfAFailedStart(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	h := start(t, options(t, namespace))
	deploy(t, namespace, 1, func(spec *corev1.PodSpec) { spec.Containers[0].Command = []string{"/usr/bin/mail"} })
	process := awaitProcesses(t, h, func(all []hostpods.HostProcess) bool {
		return len(all) == 1 && strings.Contains(all[0].Waiting, `may not run the program "mail"`)
	})[0]
	sandboxtest.Await(t, cluster, pods, namespace+"/"+process.Pod, func(p *corev1.Pod) bool {
		return p != nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Reason == "CreateContainerConfigError"
	})
}

// TestPodExistsUntilItsProcessHasExited deletes a pod whose process needs time to exit: its token is valid as long as
// the pod exists.
func TestPodExistsUntilItsProcessHasExited(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	h := start(t, options(t, namespace))
	deploy(t, namespace, 1, add(t, "env: [{name: LINGER, value: 2s}]"))
	process := awaitReady(t, h, 1)[0]
	patch(t, namespace, `{"spec": {"replicas": 0}}`)
	sandboxtest.Await(t, cluster, pods, namespace+"/"+process.Pod, func(p *corev1.Pod) bool {
		if p == nil && alive(process.PID) {
			t.Error("the pod was removed before its process exited")
		}
		return p == nil
	})
	if log, _ := os.ReadFile(process.Log); !strings.HasSuffix(string(log), "good bye\n") {
		t.Errorf("the process was killed before it exited: %q", log)
	}
}

func TestProcessOfAForciblyDeletedPodHasItsGracePeriod(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	h := start(t, options(t, namespace))
	deploy(t, namespace, 1, add(t, "env: [{name: LINGER, value: 1s}]"))
	process := awaitReady(t, h, 1)[0]
	if err := cluster.Client(t).CoreV1().Pods(namespace).Delete(t.Context(), process.Pod,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	awaitProcesses(t, h, func(all []hostpods.HostProcess) bool {
		return !slices.ContainsFunc(all, func(p hostpods.HostProcess) bool { return p.Pod == process.Pod })
	})
	if log, _ := os.ReadFile(process.Log); !strings.HasSuffix(string(log), "good bye\n") {
		t.Errorf("the process was killed before it exited: %q", log)
	}
}

func TestProcessIsKilledAfterItsGracePeriod(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	h := start(t, options(t, namespace))
	second := int64(1)
	deploy(t, namespace, 1, func(spec *corev1.PodSpec) { spec.TerminationGracePeriodSeconds = &second })
	process := awaitReady(t, h, 1)[0]
	if err := syscall.Kill(process.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, cluster, pods, namespace+"/"+process.Pod, func(p *corev1.Pod) bool {
		return p != nil && !isReady(p)
	})
	stopped := time.Now()
	patch(t, namespace, `{"spec": {"replicas": 0}}`)
	awaitProcesses(t, h, func(all []hostpods.HostProcess) bool { return len(all) == 0 })
	if took := time.Since(stopped); took < time.Second || alive(process.PID) {
		t.Errorf("the pod was removed after %s, want at least 1s; its process runs: %t", took, alive(process.PID))
	}
}

func TestSimulatedPodsStaySimulated(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	h := start(t, options(t, namespace))
	for _, meta := range []metav1.ObjectMeta{
		{GenerateName: "other-", Namespace: namespace, Labels: map[string]string{"app": "other"}},
		{
			GenerateName: "annotated-",
			Namespace:    namespace,
			Labels:       map[string]string{"app": "web"},
			Annotations:  map[string]string{"sandbox.runlevel.dev/pod": "run"},
		},
		{GenerateName: "elsewhere-", Namespace: metav1.NamespaceDefault, Labels: map[string]string{"app": "web"}},
	} {
		pod := &corev1.Pod{
			ObjectMeta: meta,
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/web:1"}}},
		}
		created, err := cluster.Client(t).CoreV1().Pods(meta.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sandboxtest.Await(t, cluster, pods, meta.Namespace+"/"+created.Name, func(p *corev1.Pod) bool {
			return p != nil && isReady(p)
		})
	}
	if all := h.Processes(); len(all) > 0 {
		t.Errorf("got processes %+v, want none", all)
	}
}
