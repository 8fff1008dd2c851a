package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A cost is the cost of a run.
type cost struct {
	Seconds   float64 `json:"seconds"`
	ClientCPU float64 `json:"clientCPU"`
	Requests  float64 `json:"requests"`
	PeakMB    float64 `json:"peakMB"`
}

// A runner runs tools against a server, as a user with a home folder of their own.
type runner struct {
	server   *server
	programs map[string]string
	home     string
}

// measure applies the payload of a result with a tool, and adds the cost or the failure of the tool. It fails where the
// benchmark can't continue, which includes a failure of the floor.
func (r runner) measure(ctx context.Context, t tool, measured result) (result, error) {
	p := payload{name: t.name, objects: measured.Objects}
	if measured.Case == smallChange {
		p.revision = 1
	}
	written, err := p.write(filepath.Join(r.home, t.name))
	if err != nil {
		return measured, err
	}
	before, err := r.server.requests(ctx)
	if err != nil {
		return measured, err
	}
	for _, c := range t.commands(written, measured.Case == firstApply) {
		took, err := r.command(ctx, c)
		if err != nil && (ctx.Err() != nil || t.program == "floor") {
			return measured, err
		}
		if err != nil {
			measured.Error = err.Error()
			break
		}
		measured.cost = measured.add(took)
	}
	if err := r.server.settle(ctx); err != nil {
		return measured, err
	}
	after, err := r.server.requests(ctx)
	measured.Requests = after - before
	return measured, err
}

// add returns the cost of two processes, one after the other.
func (c cost) add(other cost) cost {
	return cost{
		Seconds:   c.Seconds + other.Seconds,
		ClientCPU: c.ClientCPU + other.ClientCPU,
		PeakMB:    max(c.PeakMB, other.PeakMB),
	}
}

// command runs a command in a launcher.
func (r runner) command(ctx context.Context, c command) (cost, error) {
	output, err := os.Create(filepath.Join(r.home, "output"))
	if err != nil {
		return cost{}, err
	}
	defer func() { _ = output.Close() }()
	report := filepath.Join(r.home, "cost")
	process := interruptible(ctx, r.programs[launcher],
		append([]string{launcher, report, r.programs[c[0]]}, c[1:]...)...)
	process.Stdout, process.Stderr = output, output
	process.Env = append(os.Environ(), "HOME="+r.home, "KUBECONFIG="+r.server.kubeconfig)
	if err := process.Run(); err != nil {
		return cost{}, fmt.Errorf("%s: %w\n%s", strings.Join(c[:2], " "), err, tail(output.Name()))
	}
	return readCost(report)
}

// interruptible returns a process. When the context ends, the process is interrupted, and killed if it does not exit.
func interruptible(ctx context.Context, program string, arguments ...string) *exec.Cmd {
	process := exec.CommandContext(ctx, program, arguments...)
	process.Cancel = func() error { return process.Process.Signal(os.Interrupt) }
	process.WaitDelay = 15 * time.Second
	return process
}

// tail returns the end of a file.
func tail(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-2000):])
}

// launcher is the first argument of a launcher: this program in a process that does nothing but start a tool. The
// kernel's peak memory of a process includes that of its parent until it executes another program, and a benchmark that
// has generated payloads is larger than the floor.
const launcher = "launch"

// launch runs a command line, and writes its cost into a file, which is the first argument.
func launch(ctx context.Context, arguments []string) error {
	if len(arguments) < 2 {
		return errors.New("launch: a file and a command are missing")
	}
	process := interruptible(ctx, arguments[1], arguments[2:]...)
	process.Stdout, process.Stderr = os.Stdout, os.Stderr
	start := time.Now()
	if err := process.Run(); err != nil {
		return err
	}
	state := process.ProcessState
	took := cost{Seconds: time.Since(start).Seconds(), ClientCPU: (state.UserTime() + state.SystemTime()).Seconds()}
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		took.PeakMB = float64(usage.Maxrss) / 1000 // Linux counts in kB
	}
	content, err := json.Marshal(took)
	if err != nil {
		return err
	}
	return os.WriteFile(arguments[0], content, 0o600)
}

// readCost reads the file of a launcher.
func readCost(file string) (cost, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return cost{}, err
	}
	var took cost
	err = json.Unmarshal(content, &took)
	return took, err
}
