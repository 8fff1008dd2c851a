package hostpods

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

// A HostProcess is the state of a container's process, which need not run.
type HostProcess struct {
	Pod, Container string
	// PID is 0 while the process does not run: before its start, and in the pause before a restart.
	PID      int
	Restarts int
	// Ready is the result of the readiness probe. Without a probe, a running process is ready.
	Ready bool
	// Ending reports that the pod is deleted, or the runner stopped.
	Ending bool
	// Address is the pod's address for the process: status.podIP in a variable.
	Address string
	// Log is the file with the output of all processes of the container.
	Log string
	// Waiting has the reason why the process does not run, if the reason is known.
	Waiting string
}

// Processes returns the processes of all pods, including those that are ending, sorted by pod and container.
func (h *HostPods) Processes() []HostProcess {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.processes()
}

func (h *HostPods) processes() []HostProcess {
	var all []HostProcess
	for _, pod := range h.pods {
		for _, c := range pod.containers {
			all = append(all, c.process())
		}
	}
	slices.SortFunc(all, func(a, b HostProcess) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container))
	})
	return all
}

func (c *container) process() HostProcess {
	process := HostProcess{
		Pod: c.pod.first.Name, Container: c.spec.Name, PID: c.pid, Restarts: c.restarts(), Ready: c.isReady,
		Ending: c.pod.ctx.Err() != nil, Address: c.pod.address.listenIP(), Log: c.log,
	}
	if waiting := c.status().State.Waiting; waiting != nil {
		process.Waiting = waiting.Reason + ": " + waiting.Message
	}
	return process
}

// Await waits until isWanted returns true for the processes, and returns them.
func (h *HostPods) Await(ctx context.Context, isWanted func([]HostProcess) bool) ([]HostProcess, error) {
	for {
		h.mu.Lock()
		processes, changed := h.processes(), h.changed
		h.mu.Unlock()
		if isWanted(processes) {
			return processes, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return processes, fmt.Errorf("wait for processes of pods in namespace %s: %w\n%s",
				h.options.Namespace, context.Cause(ctx), describe(processes))
		}
	}
}

// AwaitReady waits until count processes are ready, and all others are ending. It returns the ready processes.
func (h *HostPods) AwaitReady(ctx context.Context, count int) ([]HostProcess, error) {
	processes, err := h.Await(ctx, func(all []HostProcess) bool {
		remaining := withoutEnding(all)
		return len(remaining) == count && !slices.ContainsFunc(remaining, func(p HostProcess) bool { return !p.Ready })
	})
	return withoutEnding(processes), err
}

// withoutEnding returns the processes that are not ending.
func withoutEnding(all []HostProcess) []HostProcess {
	return slices.DeleteFunc(slices.Clone(all), func(p HostProcess) bool { return p.Ending })
}

// describe returns a text for people about the processes, with the end of their logs.
func describe(processes []HostProcess) string {
	if len(processes) == 0 {
		return "no processes"
	}
	var text strings.Builder
	for _, p := range processes {
		fmt.Fprintf(&text, "pod %s, container %s: process %d, %d restarts, ready: %t, ending: %t %s\n%s",
			p.Pod, p.Container, p.PID, p.Restarts, p.Ready, p.Ending, p.Waiting, lastLines(p.Log))
	}
	return text.String()
}

// lastLines returns the end of a log, or "" if the log does not exist.
func lastLines(log string) string {
	const most = 10
	content, _ := os.ReadFile(log)
	lines := slices.Collect(strings.Lines(string(content)))
	return strings.Join(lines[max(0, len(lines)-most):], "")
}
