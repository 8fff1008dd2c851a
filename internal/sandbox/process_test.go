package sandbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// ownerEnv makes the test binary start a sandbox of that name, print a line when it is ready, and wait for its end.
const ownerEnv = "RUNLEVEL_TEST_MORTAL"

func runOwner() {
	s, err := sandbox.Start(context.Background(), sandbox.Options{Name: os.Getenv(ownerEnv), Nodes: sandbox.NoNodes})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready", s.Name)
	<-s.Died()
	os.Exit(1)
}

// ownName returns a name that no other run of the tests has.
func ownName(name string) string { return fmt.Sprintf("%s-%d", name, os.Getpid()) }

// startOwner starts another process, which owns a sandbox.
func startOwner(t *testing.T, name string) (*exec.Cmd, sandbox.Status) {
	t.Helper()
	sandboxtest.NeedControlPlane(t)
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerEnv+"="+name)
	owner.Stderr = os.Stderr
	stdout, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = owner.Process.Kill()
		_ = owner.Wait()
	})
	if line, _ := bufio.NewReader(stdout).ReadString('\n'); !strings.HasPrefix(line, "ready") {
		t.Fatalf("the other process prints %q, want ready", line)
	}
	state, err := sandbox.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return owner, state
}

func TestKilledOwnerLeavesNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux signals the death of a parent to its children; see docs/sandbox.md")
	}
	owner, state := startOwner(t, ownName("mortal"))
	if len(state.Components) != 3 {
		t.Fatalf("got components %+v, want three", state.Components)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	for _, component := range state.Components {
		if err := awaitExit(t.Context(), component.PID); err != nil {
			t.Errorf("process %d of %s still runs: %v", component.PID, component.Name, err)
		}
	}
	if _, err := sandbox.Find(state.Name); !errors.Is(err, sandbox.ErrNotRunning) {
		t.Errorf("finding its sandbox: %v, want ErrNotRunning", err)
	}
	if _, err := os.Stat(state.Logs); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder still exists: %v", err)
	}
}

func TestDownStopsASandboxOfAnotherProcess(t *testing.T) {
	_, state := startOwner(t, ownName("distant"))
	if _, err := sandbox.Start(t.Context(), sandbox.Options{Name: state.Name}); !errors.Is(err, sandbox.ErrRunning) {
		t.Errorf("a second sandbox of the same name: %v, want %v", err, sandbox.ErrRunning)
	}
	if err := sandbox.Down(t.Context(), state.Name); err != nil {
		t.Fatal(err)
	}
	for _, component := range state.Components {
		if err := awaitExit(t.Context(), component.PID); err != nil {
			t.Errorf("process %d of %s still runs: %v", component.PID, component.Name, err)
		}
	}
	if _, err := os.Stat(state.Logs); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder still exists: %v", err)
	}
	if err := sandbox.Down(t.Context(), state.Name); !errors.Is(err, sandbox.ErrNotRunning) {
		t.Errorf("second Stop: got error %v, want %v", err, sandbox.ErrNotRunning)
	}
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// awaitExit waits until a process exits. The process need not be a child of this one.
func awaitExit(ctx context.Context, pid int) error {
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 5*time.Minute, true,
		func(context.Context) (bool, error) {
			return !alive(pid), nil
		})
}

func killProcess(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
