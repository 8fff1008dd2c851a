package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A contestant is a tool, and how a user would use it.
type contestant struct {
	name  string
	title string // as the table has it
	most  int    // the most objects it is tried with, because of the time that it takes; 0 is any number
	apply func(p place, name string, first bool) []line
}

// A line is a command line; its first word is a program of the benchmark.
type line []string

// contestants are all, in the table's order. Where they differ in what they do, docs/performance.md
// says so.
func contestants() []contestant {
	return []contestant{
		{name: floor, title: "floor", apply: func(p place, _ string, _ bool) []line {
			return []line{{floor, p.folder}}
		}},
		{name: floor + "-wait", title: "floor --wait", apply: func(p place, _ string, _ bool) []line {
			return []line{{floor, "--wait", p.folder}}
		}},
		{name: ours, title: "Runlevel", apply: applied()},
		{name: ours + "-no-wait", title: "Runlevel --no-wait", apply: applied("--no-wait")},
		// It has to be told what the rest needs, and waits for none of it.
		{name: "kubectl", title: "kubectl", most: 1000, apply: func(p place, _ string, first bool) []line {
			all := line{"kubectl", "apply", "--server-side", "-f", p.folder}
			if !first {
				return []line{all}
			}
			before := line{"kubectl", "apply", "--server-side", "-f", strings.Join(p.before, ",")}
			return []line{before, {"kubectl", "wait", "crd", "--all", "--for=condition=Established"}, all}
		}},
		{name: "helm", title: "helm", apply: func(p place, name string, _ bool) []line {
			return []line{{"helm", "upgrade", "--install", name, p.chart, "--namespace=default", "--wait=false"}}
		}},
		{name: "kapp", title: "kapp", apply: func(p place, name string, _ bool) []line {
			return []line{{"kapp", "deploy", "--yes", "--app", name, "--namespace=default", "--file", p.folder, "--wait=false"}}
		}},
	}
}

// applied is how Runlevel applies.
func applied(flags ...string) func(p place, name string, first bool) []line {
	return func(p place, name string, _ bool) []line {
		return []line{append(line{ours, "apply", p.folder, "--name", name, "--no-progress", "--timeout=5m"}, flags...)}
	}
}

const (
	floor = "floor"
	ours  = "runlevel"
)

// A cost is what a run took.
type cost struct {
	Seconds   float64 `json:"seconds"`
	ClientCPU float64 `json:"clientCPU"`
	ServerCPU float64 `json:"serverCPU"`
	Requests  float64 `json:"requests"`
	PeakMB    float64 `json:"peakMB"`
}

// A stand is where contestants run: a server, and a home of their own, in which they may
// keep what they keep.
type stand struct {
	server   *server
	programs map[string]string // where each is
	home     string
}

// run runs the lines one after the other, and says what they took together. What the
// server takes is counted until its controllers have settled: else those would cost more
// who wait for them.
func (s stand) run(ctx context.Context, lines []line) (cost, error) {
	before, err := s.server.read(ctx)
	if err != nil {
		return cost{}, err
	}
	var c cost
	for _, l := range lines {
		if err := s.runLine(ctx, l, &c); err != nil {
			return c, err
		}
	}
	if err := s.server.settle(ctx); err != nil {
		return c, err
	}
	after, err := s.server.read(ctx)
	c.Requests, c.ServerCPU = after.requests-before.requests, after.cpu-before.cpu
	return c, err
}

func (s stand) runLine(ctx context.Context, l line, c *cost) error {
	output, err := os.Create(filepath.Join(s.home, "output"))
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }()
	took := filepath.Join(s.home, "took")
	command := exec.CommandContext(ctx, s.programs[launched], append([]string{launched, took, s.programs[l[0]]}, l[1:]...)...)
	command.Stdout, command.Stderr = output, output
	command.Env = append(os.Environ(), "HOME="+s.home, "KUBECONFIG="+s.server.kubeconfig)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 15 * time.Second
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(l[:2], " "), err, tail(output.Name()))
	}
	return c.add(took)
}

// tail is what a program said last.
func tail(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-2000):])
}
