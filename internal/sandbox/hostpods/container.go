package hostpods

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/probe"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"

	"github.com/runlevel/runlevel/internal/sandbox/childprocess"
)

const (
	// The pause before a restart doubles from firstPause to longestPause.
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)

// The reasons of waiting containers, as a kubelet reports them.
const (
	reasonCreating  = "ContainerCreating"
	reasonConfig    = "CreateContainerConfigError"
	reasonCrashLoop = "CrashLoopBackOff"
)

// A container is a container of a pod and, while it runs, its process.
type container struct {
	pod         *hostPod
	spec        corev1.Container
	folder, log string

	// Guarded by HostPods.mu.
	pid      int // 0 while no process runs
	starts   int
	isReady  bool
	state    corev1.ContainerState
	previous corev1.ContainerState // state of the last process that exited
}

// keepRunning runs the container's process, and restarts it when it exits, until the pod's processes must end.
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

// run runs one process until it exits. It returns an error if the process could not be started.
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
	// The kernel regards the thread as the parent, and kills the process when the thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := command.Start(); err != nil {
		return err
	}
	c.setRunning(command.Process.Pid)
	probeCtx, stopProbing := context.WithCancel(c.pod.reportCtx)
	go c.probe(probeCtx)
	exited := make(chan struct{})
	go c.terminate(ctx, command.Process, exited)
	_ = command.Wait() // ProcessState has the result
	close(exited)
	stopProbing()
	c.setExited(command.ProcessState)
	return nil
}

// terminate ends a process when ctx ends: with SIGTERM, and after the pod's grace period with SIGKILL.
func (c *container) terminate(ctx context.Context, process *os.Process, exited <-chan struct{}) {
	select {
	case <-exited:
		return
	case <-ctx.Done():
	}
	c.pod.host.mu.Lock()
	grace := time.NewTimer(c.pod.grace)
	c.pod.host.mu.Unlock()
	defer grace.Stop()
	_ = process.Signal(syscall.SIGTERM) // fails if the process has just exited
	select {
	case <-exited:
	case <-grace.C:
		_ = process.Kill()
	}
}

// command returns the command of the next process.
func (c *container) command(ctx context.Context) (*exec.Cmd, error) {
	if err := os.MkdirAll(c.folder, 0o700); err != nil {
		return nil, err
	}
	environment, err := c.environment(ctx)
	if err != nil {
		return nil, err
	}
	words := slices.Concat(c.spec.Command, c.spec.Args)
	name := c.spec.Name
	if len(c.spec.Command) > 0 {
		name = filepath.Base(c.spec.Command[0])
		words = words[1:]
	}
	program, ok := c.pod.host.options.Programs[name]
	if !ok {
		return nil, fmt.Errorf("pods may not run the program %q: it is not in Options.Programs", name)
	}
	for i, word := range words {
		words[i] = c.rewrite(expand(word, environment))
	}
	command := exec.Command(program, words...)
	command.Args[0] = name
	command.Dir = c.folder
	command.Env = environment.list()
	command.SysProcAttr = childprocess.ChildAttributes()
	return command, nil
}

func (c *container) setRunning(pid int) {
	c.pod.host.update(func() {
		c.pid = pid
		c.starts++
		c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now()}}
	})
}

func (c *container) setExited(state *os.ProcessState) {
	c.pod.host.update(func() {
		c.pid = 0
		c.isReady = false
		terminated := &corev1.ContainerStateTerminated{
			StartedAt: c.state.Running.StartedAt, FinishedAt: now(), Reason: "Completed",
			ExitCode: int32(state.ExitCode()), ContainerID: containerID(c),
		}
		if terminated.ExitCode != 0 {
			terminated.Reason = "Error"
			terminated.Message = state.String()
		}
		if terminated.ExitCode < 0 { // a signal ended the process
			terminated.ExitCode = 128
			if status, ok := state.Sys().(syscall.WaitStatus); ok {
				terminated.ExitCode += int32(status.Signal())
			}
		}
		c.state = corev1.ContainerState{Terminated: terminated}
		c.previous = c.state
	})
}

// setWaiting records the reason why no process runs: an error, or the exit of the last process.
func (c *container) setWaiting(err error, wait time.Duration) {
	waiting := &corev1.ContainerStateWaiting{
		Reason: reasonCrashLoop, Message: fmt.Sprintf("back-off %s restarting failed container", wait),
	}
	if err != nil {
		waiting.Reason, waiting.Message = reasonConfig, err.Error()
	}
	c.pod.host.update(func() { c.state = corev1.ContainerState{Waiting: waiting} })
}

// restarts returns the number of restarts.
func (c *container) restarts() int { return max(0, c.starts-1) }

func containerID(c *container) string {
	return fmt.Sprintf("host://%s_%s_%d", c.pod.first.UID, c.spec.Name, c.starts)
}

// now returns the time with the precision of the API.
func now() metav1.Time { return metav1.Now().Rfc3339Copy() }

// startPeriod is the interval of probes until a process is ready for the first time. initialDelaySeconds is ignored,
// since a delay would make tests wait.
const startPeriod = 100 * time.Millisecond

// probe updates the readiness of the container's process until ctx ends. A process without a probe by httpGet is always
// ready.
func (c *container) probe(ctx context.Context) {
	settings := c.spec.ReadinessProbe
	if settings == nil || settings.HTTPGet == nil {
		c.setReady(ctx, true)
		return
	}
	thresholds := map[bool]int32{true: settings.SuccessThreshold, false: settings.FailureThreshold}
	interval := startPeriod
	var isReady, last bool
	var inARow int32
	for {
		succeeded := c.probeOnce(settings)
		if succeeded != last {
			inARow = 0
		}
		last = succeeded
		if inARow++; succeeded != isReady && inARow >= thresholds[succeeded] {
			isReady = succeeded
			interval = time.Duration(settings.PeriodSeconds) * time.Second
			c.setReady(ctx, isReady)
		}
		if !pause(ctx, interval) {
			return
		}
	}
}

// probeOnce sends one request, as a kubelet does.
func (c *container) probeOnce(settings *corev1.Probe) bool {
	request, err := httpprobe.NewRequestForHTTPGetAction(settings.HTTPGet, &c.spec, c.pod.address.listenIP(), "probe")
	if err != nil {
		return false
	}
	result, _, err := httpprobe.New(false).Probe(request, time.Duration(settings.TimeoutSeconds)*time.Second)
	return err == nil && result != probe.Failure
}

// setReady records the readiness of the process, unless the process has exited.
func (c *container) setReady(ctx context.Context, isReady bool) {
	c.pod.host.update(func() {
		if ctx.Err() == nil {
			c.isReady = isReady
		}
	})
}
