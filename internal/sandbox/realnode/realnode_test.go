package realnode_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

const (
	serveEnv = "RUNLEVEL_TEST_SERVE"  // this program serves in a container
	ownerEnv = "RUNLEVEL_TEST_MORTAL" // this program owns a sandbox with the image of that archive

	imageName = "registry.example/test:1"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(serveEnv) != "":
		serve()
	case os.Getenv(ownerEnv) != "":
		runOwner()
	}
	os.Exit(m.Run())
}

// serve answers requests with the node's name, or with the addresses of the host in the query, and logs one line. If
// the pod has a volume, serve writes a file with the node's name into the volume.
func serve() {
	fmt.Println("serving")
	if _, err := os.Stat("/data"); err == nil {
		if err := os.WriteFile("/data/"+os.Getenv("NODE"), nil, 0o600); err != nil {
			fmt.Println(err)
		}
	}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, os.Getenv("NODE")) })
	http.HandleFunc("/resolve", func(w http.ResponseWriter, r *http.Request) {
		addresses, err := net.DefaultResolver.LookupHost(r.Context(), r.URL.Query().Get("host"))
		if failure := new(net.DNSError); errors.As(err, &failure) && failure.IsNotFound {
			err = errors.New("not found")
		}
		fmt.Fprintf(w, "%v %v", addresses, err)
	})
	fmt.Println(http.ListenAndServe(":8080", nil))
	os.Exit(1)
}

// runOwner runs a process that owns a sandbox until the process is killed.
func runOwner() {
	s, err := sandbox.Start(context.Background(), sandbox.Options{RealNodes: 1, Images: []string{os.Getenv(ownerEnv)}})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.Name)
	fmt.Println(<-s.Died())
	os.Exit(1)
}

// writeImage writes an image of this program as an archive, and returns its file.
func writeImage(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := tarball.WriteToFile(file, name.MustParseReference(imageName), newImage(t)); err != nil {
		t.Fatal(err)
	}
	return file
}

// newImage returns an image of this program.
func newImage(t *testing.T) v1.Image {
	t.Helper()
	layer, err := tarball.LayerFromFile(packSelf(t))
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{"/program"}, Env: []string{serveEnv + "=1"}}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	return image
}

// packSelf writes this program as an archive.
func packSelf(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "layer.tar")
	if out, err := exec.Command("tar", "-C", programFolder(t), "-cf", file, "program").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// programFolder returns a folder with this program.
func programFolder(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Link(self, filepath.Join(folder, "program")); err != nil {
		out, err := exec.Command("cp", self, filepath.Join(folder, "program")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return folder
}

// runOnEachNode runs the image as a DaemonSet behind a Service, with a folder of this machine, and waits until it is
// ready.
func runOnEachNode(t *testing.T, client kubernetes.Interface, folder string) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "web", Image: imageName,
				Env: []corev1.EnvVar{{
					Name:      "NODE",
					ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}},
				}},
				VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: "/host"},
					{Name: "scratch", MountPath: "/scratch"}, {Name: "data", MountPath: "/data"}},
				SecurityContext: &corev1.SecurityContext{RunAsUser: ptr.To[int64](1000)},
			}},
			Volumes: []corev1.Volume{
				{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: folder}}},
				{
					Name: "scratch",
					VolumeSource: corev1.VolumeSource{
						EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory},
					},
				},
				{
					Name: "data",
					VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
					},
				},
			},
		}},
	}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Selector: labels, Ports: []corev1.ServicePort{{Port: 8080}},
	}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		}}
	if _, err := client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), claim,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().DaemonSets("default").Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, "all pods are ready", func(ctx context.Context) bool {
		got, err := client.AppsV1().DaemonSets("default").Get(ctx, "web", metav1.GetOptions{})
		return err == nil && got.Status.DesiredNumberScheduled > 0 &&
			got.Status.NumberReady == got.Status.DesiredNumberScheduled
	})
}

// expectNothingLeft fails the test if files, links or processes of a sandbox's nodes remain on this machine.
func expectNothingLeft(t *testing.T, number, folder string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), folder) {
		t.Errorf("mounts remain:\n%s", mounts)
	}
	for _, pattern := range []string{
		folder, "/run/netns/runlevel" + number + "-*", "/sys/class/net/runlevel" + number,
		"/sys/class/net/rl" + number + "-*",
		"/sys/fs/cgroup/runlevel" + number, "/sys/fs/cgroup/*/runlevel" + number,
	} {
		if remaining, err := filepath.Glob(pattern); err != nil || len(remaining) > 0 {
			t.Errorf("%s: got %v, %v; want no file", pattern, remaining, err)
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range processes {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), folder) {
			t.Errorf("a process still runs: %q", line)
		}
	}
}

// folderOf returns the folder of a sandbox, and the number of its nodes.
func folderOf(t *testing.T, logs string) (folder, number string) {
	t.Helper()
	folder = filepath.Dir(logs)
	text, err := os.ReadFile(filepath.Join(folder, "nodes", "number"))
	if err != nil {
		t.Fatal(err)
	}
	return folder, string(text)
}

func clientOf(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(config)
}

// TestPodsOnTwoNodes runs containers, whose Service answers from both nodes, and whose logs are read through the API
// server.
func TestPodsOnTwoNodes(t *testing.T) {
	sandboxtest.NeedRealNodes(t)
	s, err := sandbox.Start(t.Context(),
		sandbox.Options{RealNodes: 2, Images: []string{writeImage(t), programFolder(t) + "=registry.example/folder:1"}})
	if err != nil {
		t.Fatal(err)
	}
	folder, number := folderOf(t, s.Logs)
	client := kubernetes.NewForConfigOrDie(s.Config)
	runOnEachNode(t, client, t.TempDir())
	answers := map[string]bool{}
	sandboxtest.Eventually(t, "the Service answers from both nodes", func(ctx context.Context) bool {
		answer, err := client.CoreV1().RESTClient().Get().AbsPath(
			"/api/v1/namespaces/default/services/web:8080/proxy/",
		).DoRaw(ctx)
		if err == nil {
			answers[string(answer)] = true
		}
		return answers["node-0"] && answers["node-1"]
	})
	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if log, err := client.CoreV1().Pods("default").GetLogs(pod.Name,
			&corev1.PodLogOptions{}).DoRaw(t.Context()); err != nil || string(log) != "serving\n" {
			t.Errorf("the log of %s: %q, %v", pod.Name, log, err)
		}
	}
	expectVolume(t, client)
	expectNames(t, client)
	expectPulls(t, s, client)
	if err := s.Stop(); err != nil {
		t.Error("stop:", err)
	}
	expectNothingLeft(t, number, folder)
}

// expectVolume finds the files of the pods of both nodes in the volume of their claim.
func expectVolume(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	volumes, err := client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(volumes.Items) != 1 {
		t.Fatalf("got %v, %v; want one volume", volumes, err)
	}
	for _, node := range []string{"node-0", "node-1"} {
		if _, err := os.Stat(filepath.Join(volumes.Items[0].Spec.HostPath.Path, node)); err != nil {
			t.Error("the file of a pod in the volume:", err)
		}
	}
}

// expectNames resolves names in a pod.
func expectNames(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	service, err := client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"web":                              "[" + service.Spec.ClusterIP + "] <nil>",
		"web.default":                      "[" + service.Spec.ClusterIP + "] <nil>",
		"kubernetes.default.svc":           "[10.96.0.1] <nil>",
		"web.other.svc.cluster.local":      "[] not found",
		"registry.example":                 "[] not found",
		"web.default.svc.cluster.example.": "[] not found",
	} {
		answer, err := client.CoreV1().RESTClient().Get().AbsPath(
			"/api/v1/namespaces/default/services/web:8080/proxy/resolve",
		).Param("host", host).DoRaw(t.Context())
		if err != nil || string(answer) != want {
			t.Errorf("a pod resolves %s as %s, %v; want %s", host, answer, err, want)
		}
	}
}

// expectPulls pulls an image from the registry of the sandbox, and runs the image of a folder.
func expectPulls(t *testing.T, s *sandbox.Sandbox, client kubernetes.Interface) {
	t.Helper()
	pulled, err := name.NewTag(s.Registry+"/tools/web:2", name.Insecure)
	if err == nil {
		err = remote.Write(pulled, newImage(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	for podName, container := range map[string]corev1.Container{
		"pulled": {Image: pulled.String(), ImagePullPolicy: corev1.PullAlways},
		"folder": {
			Image:   "registry.example/folder:1",
			Command: []string{"/program"},
			Env:     []corev1.EnvVar{{Name: serveEnv, Value: "1"}},
		},
	} {
		container.Name = "web"
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: podName},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{container}},
		}
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		sandboxtest.Eventually(t, "pod "+podName+" runs", func(ctx context.Context) bool {
			got, err := client.CoreV1().Pods("default").Get(ctx, podName, metav1.GetOptions{})
			return err == nil && got.Status.Phase == corev1.PodRunning
		})
	}
	expectRefusedPull(t, client)
}

// expectRefusedPull makes a container runtime request an image from a link-local address, through the proxy and with
// its credentials.
func expectRefusedPull(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "refused"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "web", Image: "169.254.169.254:80/tools/web:2"}},
		},
	}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	message := ""
	sandboxtest.Eventually(t, "the pull is refused", func(ctx context.Context) bool {
		got, err := client.CoreV1().Pods("default").Get(ctx, "refused", metav1.GetOptions{})
		if err != nil || len(got.Status.ContainerStatuses) == 0 ||
			got.Status.ContainerStatuses[0].State.Waiting == nil {
			return false
		}
		message = got.Status.ContainerStatuses[0].State.Waiting.Message
		return message != ""
	})
	if !strings.Contains(message, "registries on the loopback or at link-local addresses are refused") {
		t.Errorf("the message of a pull from a link-local address is %q, want a refusal", message)
	}
}

// TestNodesOfAKilledOwnerAreRemoved kills the owner of nodes whose pods run: the next command that lists sandboxes
// removes the nodes, but not the folders of this machine that the pods have mounted.
func TestNodesOfAKilledOwnerAreRemoved(t *testing.T) {
	sandboxtest.NeedRealNodes(t)
	precious := t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerEnv+"="+writeImage(t))
	stdout, err := owner.StdoutPipe()
	if err == nil {
		err = owner.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	state, err := sandbox.Find(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the owner prints %q: %v", line, err)
	}
	folder, number := folderOf(t, state.Logs)
	runOnEachNode(t, clientOf(t, state.Kubeconfig), precious)
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	if _, err := sandbox.List(); err != nil {
		t.Fatal(err)
	}
	expectNothingLeft(t, number, folder)
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Error("the file of a mounted folder:", err)
	}
}

// TestFullInotifyTable runs containerd in a user namespace without inotify instances: the error is containerd's own,
// and names the limit to raise. The kubelet, which could only report that it finds no service, is not started.
func TestFullInotifyTable(t *testing.T) {
	sandboxtest.NeedRealNodes(t)
	containerd, err := exec.LookPath("containerd")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	script := `#!/bin/sh
exec unshare --user --map-root-user \
	sh -c 'echo 0 >/proc/sys/user/max_inotify_instances && exec "$0" "$@"' ` + containerd + ` "$@"
`
	if err := os.WriteFile(filepath.Join(folder, "containerd"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	s, err := sandbox.Start(t.Context(), sandbox.Options{RealNodes: 1})
	if err == nil {
		_ = s.Stop()
		t.Fatal("Start succeeded")
	}
	for _, want := range []string{
		`start the container runtime of node-0: the CRI service is not loaded: raise the limit of inotify instances, ` +
			`as in "sysctl fs.inotify.max_user_instances=1024"; the error of containerd-0`,
		"failed to create fsnotify watcher: too many open files",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant: %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "kubelet") {
		t.Errorf("the error mentions the kubelet: %v", err)
	}
}
