package hostpods_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/runlevel/runlevel/internal/sandbox/hostpods"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// ownerEnv makes the test binary run the pods of that namespace, and print the ID of the first process.
const ownerEnv = "RUNLEVEL_TEST_OWNER"

func runOwner() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	h, err := hostpods.Start(context.Background(), hostpods.Options{
		Config: config, Namespace: os.Getenv(ownerEnv), Selector: "app=web",
		Programs: map[string]string{"web": os.Args[0]}, Folder: os.Getenv("FOLDER"),
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	ready, err := h.AwaitReady(context.Background(), 1)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready", ready[0].PID)
	select {}
}

func TestKilledRunnerLeavesNoProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux signals the death of a parent to its children")
	}
	t.Parallel()
	namespace := cluster.Namespace(t)
	deploy(t, namespace, 1)
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerEnv+"="+namespace, "KUBECONFIG="+cluster.Sandbox(t).Kubeconfig,
		"FOLDER="+t.TempDir())
	owner.Stderr = os.Stderr
	stdout, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	_ = owner.Process.Kill()
	_ = owner.Wait()
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "ready")))
	if err != nil {
		t.Fatalf("the runner prints %q, want a process ID", line)
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			return !alive(pid), nil
		}); err != nil {
		t.Errorf("process %d still runs: %v", pid, err)
	}

	// The next runner takes over the pod.
	after := awaitReady(t, start(t, options(t, namespace)), 1)[0]
	if after.PID == pid {
		t.Errorf("got %+v, want a new process", after)
	}
}

func TestStopRemovesProcessesAndFolders(t *testing.T) {
	t.Parallel()
	namespace, client := cluster.Namespace(t), cluster.Client(t)
	o := options(t, namespace)
	h := start(t, o)
	deploy(t, namespace, 2)
	processes := awaitReady(t, h, 2)
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		if alive(process.PID) {
			t.Errorf("process %d still runs", process.PID)
		}
		sandboxtest.Await(t, cluster, pods, namespace+"/"+process.Pod, func(p *corev1.Pod) bool {
			return p != nil && !isReady(p)
		})
	}
	if folders, err := os.ReadDir(o.Folder + "/pods"); err != nil || len(folders) > 0 {
		t.Errorf("folders with tokens remain: %v, %v", folders, err)
	}
	policies, err := client.AdmissionregistrationV1().MutatingAdmissionPolicies().List(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range policies.Items {
		if strings.Contains(policy.Spec.MatchConditions[0].Expression, namespace) {
			t.Errorf("the admission policy %s remains", policy.Name)
		}
	}
	if err := client.AppsV1().Deployments(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, cluster, pods, namespace+"/"+processes[0].Pod, func(p *corev1.Pod) bool { return p == nil })
}
