package hostpods

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/sandbox/component"
)

const (
	// A process that has ended is started again after a pause that grows.
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)

// What containers wait for, in the words of a kubelet.
const (
	reasonCreating  = "ContainerCreating"
	reasonConfig    = "CreateContainerConfigError"
	reasonCrashLoop = "CrashLoopBackOff"
)

// A container is one of a pod, and its process while there is one.
type container struct {
	pod         *hostPod
	spec        corev1.Container
	folder, log string

	// Guarded by HostPods.mu.
	pid      int // 0 while there is no process
	starts   int
	isReady  bool
	state    corev1.ContainerState
	previous corev1.ContainerState // how it ended last
}

// keepRunning runs the container's process, again and again, until the pod is to end.
func (c *container) keepRunning() {
	ctx := c.pod.ctx
	for wait := firstPause; ctx.Err() == nil; wait = min(2*wait, longestPause) {
		started := time.Now()
		err := c.run(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > longestPause {
			wait = firstPause
		}
		c.setWaiting(err, wait)
		pause(ctx, wait)
	}
}

// run runs one process to its end. It returns an error if the process could not be started.
func (c *container) run(ctx context.Context) error {
	command, err := c.command(ctx)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	// The kernel takes the thread for the parent, and kills the process when that ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := command.Start(); err != nil {
		return err
	}
	c.setRunning(command.Process.Pid)
	probing, stopProbing := context.WithCancel(c.pod.lasting)
	go c.probe(probing)
	ended := make(chan struct{})
	go c.terminate(ctx, command.Process, ended)
	_ = command.Wait() // how it ended is in its state
	close(ended)
	stopProbing()
	c.setEnded(command.ProcessState)
	return nil
}

// terminate ends a process when ctx ends: with a signal, and after the pod's grace period without one.
func (c *container) terminate(ctx context.Context, process *os.Process, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	c.pod.host.mu.Lock()
	grace := time.NewTimer(c.pod.grace)
	c.pod.host.mu.Unlock()
	defer grace.Stop()
	_ = process.Signal(syscall.SIGTERM) // it may just have ended, here and below
	select {
	case <-ended:
	case <-grace.C:
		_ = process.Kill()
	}
}

// command returns what is to be started.
func (c *container) command(ctx context.Context) (*exec.Cmd, error) {
	if err := os.MkdirAll(c.folder, 0o700); err != nil {
		return nil, err
	}
	environment, err := c.environment(ctx)
	if err != nil {
		return nil, err
	}
	words := append(append([]string{}, c.spec.Command...), c.spec.Args...)
	name := c.spec.Name
	if len(c.spec.Command) > 0 {
		name, words = filepath.Base(c.spec.Command[0]), words[1:]
	}
	program, ok := c.pod.host.options.Programs[name]
	if !ok {
		return nil, fmt.Errorf("there is no program %q among those that pods may run", name)
	}
	for i, word := range words {
		words[i] = c.rewrite(expand(word, environment))
	}
	command := exec.Command(program, words...)
	command.Args[0] = name
	command.Dir = c.folder
	command.Env = environment.list()
	command.SysProcAttr = component.ChildAttributes()
	return command, nil
}

func (c *container) setRunning(pid int) {
	c.pod.host.update(func() {
		c.pid = pid
		c.starts++
		c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now()}}
	})
}

func (c *container) setEnded(state *os.ProcessState) {
	c.pod.host.update(func() {
		c.pid, c.isReady = 0, false
		ended := &corev1.ContainerStateTerminated{
			StartedAt: c.state.Running.StartedAt, FinishedAt: now(), Reason: "Completed",
			ExitCode: int32(state.ExitCode()), ContainerID: containerID(c),
		}
		if ended.ExitCode != 0 {
			ended.Reason, ended.Message = "Error", state.String()
		}
		if ended.ExitCode < 0 { // by a signal
			ended.ExitCode = 128
			if status, ok := state.Sys().(syscall.WaitStatus); ok {
				ended.ExitCode += int32(status.Signal())
			}
		}
		c.state = corev1.ContainerState{Terminated: ended}
		c.previous = c.state
	})
}

// setWaiting records why there is no process now: because of an error, or since the last one has just ended.
func (c *container) setWaiting(err error, wait time.Duration) {
	waiting := &corev1.ContainerStateWaiting{
		Reason: reasonCrashLoop, Message: fmt.Sprintf("back-off %s restarting failed container", wait),
	}
	if err != nil {
		waiting.Reason, waiting.Message = reasonConfig, err.Error()
	}
	c.pod.host.update(func() { c.state = corev1.ContainerState{Waiting: waiting} })
}

// restarts is how often the process was started again.
func (c *container) restarts() int { return max(0, c.starts-1) }

func containerID(c *container) string {
	return fmt.Sprintf("host://%s_%s_%d", c.pod.first.UID, c.spec.Name, c.starts)
}

// now is as precise as the API.
func now() metav1.Time { return metav1.Now().Rfc3339Copy() }
