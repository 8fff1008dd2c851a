package hostpods

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

// A HostProcess is what runs, or is to run, for a container.
type HostProcess struct {
	Pod, Container string
	// PID is 0 while there is no process: before it starts, and in the pause after it has ended.
	PID      int
	Restarts int
	// Ready is the result of the readiness probe; without a probe, whether there is a process.
	Ready bool
	// Ending reports that the pod is deleted, or the runner stopped.
	Ending bool
	// Address is what the process knows as its pod's.
	Address string
	// Log is the file of what all processes of the container have printed.
	Log string
	// Waiting has why there is no process, if that is known.
	Waiting string
}

// Processes returns the processes of all pods, those included that are ending, by pod and container.
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
		Ending: c.pod.ctx.Err() != nil, Address: c.pod.address.listen(), Log: c.log,
	}
	if waiting := c.status().State.Waiting; waiting != nil {
		process.Waiting = waiting.Reason + ": " + waiting.Message
	}
	return process
}

// Await waits until the processes are as wanted, and returns them.
func (h *HostPods) Await(ctx context.Context, wanted func([]HostProcess) bool) ([]HostProcess, error) {
	for {
		h.mu.Lock()
		processes, changed := h.processes(), h.changed
		h.mu.Unlock()
		if wanted(processes) {
			return processes, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return processes, fmt.Errorf("await processes of pods in namespace %s: %w\n%s",
				h.options.Namespace, context.Cause(ctx), describe(processes))
		}
	}
}

// AwaitReady waits until that many processes are ready, and there are no others but those that are ending. It returns
// those that are ready.
func (h *HostPods) AwaitReady(ctx context.Context, count int) ([]HostProcess, error) {
	processes, err := h.Await(ctx, func(all []HostProcess) bool {
		staying := staying(all)
		return len(staying) == count && !slices.ContainsFunc(staying, func(p HostProcess) bool { return !p.Ready })
	})
	return staying(processes), err
}

// staying returns the processes that are not ending.
func staying(all []HostProcess) []HostProcess {
	return slices.DeleteFunc(slices.Clone(all), func(p HostProcess) bool { return p.Ending })
}

// describe returns for people what processes there are, and what they printed last.
func describe(processes []HostProcess) string {
	if len(processes) == 0 {
		return "there are none"
	}
	var text strings.Builder
	for _, p := range processes {
		fmt.Fprintf(&text, "pod %s, container %s: process %d, %d restarts, ready: %t, ending: %t %s\n%s",
			p.Pod, p.Container, p.PID, p.Restarts, p.Ready, p.Ending, p.Waiting, lastLines(p.Log))
	}
	return text.String()
}

// lastLines returns the end of a log, which may not be there.
func lastLines(log string) string {
	const most = 10
	content, _ := os.ReadFile(log)
	lines := slices.Collect(strings.Lines(string(content)))
	return strings.Join(lines[max(0, len(lines)-most):], "")
}
