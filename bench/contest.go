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
var cases = []string{"first", "again", "1 % changed"}

// A result is one run of a contestant.
type result struct {
	Payload string `json:"payload"`
	Objects int    `json:"objects"`
	Case    string `json:"case"`
	Of      string `json:"of"`
	Round   int    `json:"round"`
	cost
}

// A contest is the whole benchmark.
type contest struct {
	options  options
	programs map[string]string
	folder   string // for all that is written
	progress io.Writer

	results []result
}

// run goes through all sizes and rounds. What was measured until it ends stays.
func (c *contest) run(ctx context.Context) error {
	for _, size := range c.options.sizes {
		for round := range c.options.roundsOf(size) {
			if err := c.round(ctx, size, round); err != nil {
				return err
			}
		}
	}
	return nil
}

// round measures all contestants in turn, on a server that is new: what others leave
// there costs those that look at everything.
func (c *contest) round(ctx context.Context, size, round int) (err error) {
	below := filepath.Join(c.folder, fmt.Sprintf("%d-%d", size, round))
	if err := os.MkdirAll(below, 0o700); err != nil {
		return err
	}
	s, err := startServer(ctx, c.programs[ours], below)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(ctx), os.RemoveAll(below)) }()
	on := stand{server: s, programs: c.programs, home: below}
	if err := c.warmUp(ctx, on); err != nil {
		return err
	}
	for i, name := range cases {
		for _, who := range turned(c.options.takingPart(size), round+i) {
			if err := c.measure(ctx, on, who, result{Payload: "generated", Objects: size, Case: name, Of: who.name, Round: round}); err != nil {
				return fmt.Errorf("%d objects, %s apply: %w", size, name, err)
			}
		}
	}
	return nil
}

// warmUp lets the server have its first requests before anybody's time is taken.
func (c *contest) warmUp(ctx context.Context, on stand) error {
	p, err := write(twin{name: "warm-up", objects: 100}.documents(), filepath.Join(on.home, "warm-up"))
	if err != nil {
		return err
	}
	if _, err := on.run(ctx, []line{{floor, p.folder}}); err != nil {
		return err
	}
	return on.server.settle(ctx)
}

func (c *contest) measure(ctx context.Context, on stand, who contestant, r result) (err error) {
	t := twin{name: who.name, objects: r.Objects}
	if r.Case == cases[2] {
		t.revision = 1
	}
	p, err := write(t.documents(), filepath.Join(on.home, who.name))
	if err != nil {
		return err
	}
	if r.cost, err = on.run(ctx, who.apply(p, who.name, r.Case == cases[0])); err != nil {
		return err
	}
	c.results = append(c.results, r)
	_, _ = fmt.Fprintf(c.progress, "%5d objects, round %d, %-11s  %-8s %6.2f s, %5.0f requests, %5.2f s of CPU, %5.2f s of the server's, %4.0f MB\n",
		r.Objects, r.Round+1, r.Case, r.Of, r.Seconds, r.Requests, r.ClientCPU, r.ServerCPU, r.PeakMB)
	return on.server.settle(ctx)
}

// turned begins with another one each time.
func turned(all []contestant, by int) []contestant {
	by %= len(all)
	return append(append([]contestant{}, all[by:]...), all[:by]...)
}
