// Package e2e tests Runlevel as it is shipped: its image runs in containers of real nodes, is installed by the
// documented commands, and meets conditions that simulated nodes do not have. "make test-node" runs the tests.
package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// patience is the timeout of untilPrints, far longer than any wait takes.
const patience = 5 * time.Minute

// imageVariable names the OCI image layout of Runlevel's programs.
const imageVariable = "RUNLEVEL_TEST_IMAGE"

// programPath is the path of this program in its image, appImage.
const (
	programPath = "/program"
	appImage    = "registry.example/app:1"
)

// shared is the sandbox of all tests.
var shared *sandboxtest.SharedSandbox

func TestMain(m *testing.M) {
	if os.Args[0] == programPath {
		os.Exit(runInContainer(os.Args[1:]))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv(sandboxtest.NodesVariable) == "" {
		return m.Run() // every test is skipped
	}
	folder, err := imageFolder()
	if err != nil {
		fmt.Fprintln(os.Stderr, "make the image of the tests:", err)
		return 1
	}
	defer os.RemoveAll(folder)
	shared = sandboxtest.New(sandbox.Options{RealNodes: 2, Offline: true, Images: []string{folder + "=" + appImage}})
	return shared.Run(m)
}

// imageFolder returns a folder with this program as the only file of an image.
func imageFolder() (string, error) {
	folder, err := os.MkdirTemp("", "runlevel-e2e-")
	if err != nil {
		return "", err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	return folder, os.WriteFile(filepath.Join(folder, filepath.Base(programPath)), self, 0o755)
}

// runInContainer is the main function of this program in a container.
func runInContainer(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println(strings.Join(args, " "))
	switch args[0] {
	case "serve": // wait until the end of the pod
		http.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
		go func() { fmt.Println(http.ListenAndServe(":8080", nil)) }()
		<-ctx.Done()
	case "exit": // exit with a code
		code, _ := strconv.Atoi(args[1])
		return code
	case "eat": // memory, until the container is killed
		for all := [][]byte{}; ctx.Err() == nil; {
			chunk := make([]byte, 1<<20)
			for i := range chunk {
				chunk[i] = 1
			}
			all = append(all, chunk)
		}
	}
	return 0
}

// A stage is the cluster of a test.
type stage struct {
	t       *testing.T
	sandbox *sandbox.Sandbox
	client  client.Client
	core    kubernetes.Interface
	env     []string // environment of commands
}

// newStage returns the stage of a test that runs beside others.
func newStage(t *testing.T) *stage {
	t.Helper()
	sandboxtest.NeedRealNodes(t)
	t.Parallel()
	return newSerialStage(t)
}

// newSerialStage starts the sandbox, if it was not started, or skips the test.
func newSerialStage(t *testing.T) *stage {
	t.Helper()
	sandboxtest.NeedRealNodes(t)
	return newStageOn(t, shared.Sandbox(t))
}

// newStageOn returns the stage of a test with a sandbox.
func newStageOn(t *testing.T, running *sandbox.Sandbox) *stage {
	t.Helper()
	s := &stage{t: t, sandbox: running, core: kubernetes.NewForConfigOrDie(running.Config)}
	s.env = append(os.Environ(), "KUBECONFIG="+s.sandbox.Kubeconfig)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, configv1.Install,
		machinev1beta1.Install} {
		s.must(add(scheme))
	}
	var err error
	s.client, err = client.New(s.sandbox.Config, client.Options{Scheme: scheme})
	s.must(err)
	return s
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// try runs runlevel, and returns its output and exit code.
func (s *stage) try(args ...string) (string, int) {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), sandboxtest.Program(s.t, "runlevel"), args...)
	command.Env = s.env
	out, _ := command.CombinedOutput()
	return string(out), command.ProcessState.ExitCode()
}

// run runs runlevel, which must succeed, and returns its output.
func (s *stage) run(args ...string) string {
	s.t.Helper()
	out, code := s.try(args...)
	if code != 0 {
		s.t.Fatalf("runlevel %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// expect fails the test if a text does not have all the words.
func (s *stage) expect(what, text string, words ...string) {
	s.t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			s.t.Errorf("%s has no %q:\n%s", what, word, text)
		}
	}
}

// untilPrints runs runlevel every second until its output has all the words.
func (s *stage) untilPrints(words []string, args ...string) {
	s.t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(s.t.Context(), time.Second, patience, true,
		func(context.Context) (bool, error) {
			last, _ = s.try(args...)
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(last, word) }), nil
		})
	if err != nil {
		s.t.Fatalf("runlevel %s has not %q: %v\n%s", strings.Join(args, " "), words, err, last)
	}
}

// eventually waits until the cluster has a state.
func (s *stage) eventually(what string, isWanted func(context.Context) bool) time.Duration {
	s.t.Helper()
	began := time.Now()
	sandboxtest.Eventually(s.t, what, isWanted)
	took := time.Since(began).Round(100 * time.Millisecond)
	s.t.Logf("%s: after %s", what, took)
	return took
}
