package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// The cases, in the order in which they are run.
const (
	firstApply  = "first"
	secondApply = "again"
	smallChange = "1 % changed"
)

var cases = []string{firstApply, secondApply, smallChange}

// A result is one run of a tool.
type result struct {
	Objects int    `json:"objects"`
	Case    string `json:"case"`
	Tool    string `json:"tool"`
	Round   int    `json:"round"`
	cost
	Error string `json:"error,omitempty"` // message with the end of the tool's output
}

func (r result) String() string {
	run := fmt.Sprintf("%d objects, round %d, %-12s %-16s ", r.Objects, r.Round+1, r.Case, r.Tool)
	if r.Error != "" {
		return run + "failed: " + r.Error
	}
	return run + fmt.Sprintf("%6.2f s, %5.0f requests, %5.2f s of CPU, %4.0f MB", r.Seconds, r.Requests, r.ClientCPU,
		r.PeakMB)
}

// A benchmark runs all sizes and rounds, and collects results.
type benchmark struct {
	options  options
	programs map[string]string // the file of each program
	folder   string            // parent folder of all files
	progress io.Writer

	results []result
}

// run runs all rounds. After a failure, the results so far are kept.
func (b *benchmark) run(ctx context.Context) error {
	for _, size := range b.options.sizes {
		for round := range b.options.roundsOf(size) {
			for _, tools := range groups(rotate(b.options.toolsFor(size), round), size) {
				if err := b.round(ctx, size, round, tools); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// groups returns the tools that share a server. Small payloads share one. Each tool with a large payload has a server
// of its own: with 5,000 objects of another tool, and what controllers add to them, an apply takes 1.5 times as long.
func groups(tools []tool, size int) [][]tool {
	if size < 1000 {
		return [][]tool{tools}
	}
	var single [][]tool
	for _, t := range tools {
		single = append(single, []tool{t})
	}
	return single
}

// rotate returns the tools in an order that depends on a number.
func rotate(tools []tool, by int) []tool {
	by %= len(tools)
	return append(append([]tool{}, tools[by:]...), tools[:by]...)
}

// round measures some tools in turn, on a new server: objects of earlier rounds slow down tools that list the cluster.
func (b *benchmark) round(ctx context.Context, size, number int, tools []tool) (err error) {
	home := filepath.Join(b.folder, "round")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	s, err := startServer(ctx, b.programs["runlevel"], home)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	run := runner{server: s, programs: b.programs, home: home}
	if err := warmUp(ctx, run); err != nil {
		return err
	}
	failed := map[string]bool{}
	for i, name := range cases {
		for _, t := range rotate(tools, i) {
			if failed[t.name] {
				continue
			}
			r, err := run.measure(ctx, t, result{Objects: size, Case: name, Tool: t.name, Round: number})
			if err != nil {
				return err
			}
			failed[t.name] = r.Error != ""
			b.results = append(b.results, r)
			_, _ = fmt.Fprintln(b.progress, r)
		}
	}
	return nil
}

// warmUp sends the server its first requests before anything is measured.
func warmUp(ctx context.Context, run runner) error {
	written, err := payload{name: "warm-up", objects: 100}.write(filepath.Join(run.home, "warm-up"))
	if err != nil {
		return err
	}
	if _, err := run.command(ctx, command{"floor", written.folder}); err != nil {
		return err
	}
	return run.server.settle(ctx)
}
