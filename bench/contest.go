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
	Failed string `json:"failed,omitempty"` // how, with what it said last
}

// A contest is the whole benchmark.
type contest struct {
	options  options
	programs map[string]string
	folder   string // for all that is written
	progress io.Writer

	results []result
}

// run goes through all payloads and rounds. What was measured until it ends stays.
func (c *contest) run(ctx context.Context) error {
	for _, size := range c.options.sizes {
		if err := c.rounds(ctx, generated(size)); err != nil {
			return err
		}
	}
	if c.options.corpus == "" {
		return nil
	}
	real, err := readCorpus(c.options.corpus, c.progress)
	if err != nil {
		return err
	}
	if err := real.try(ctx, c.programs, c.folder, c.progress); err != nil {
		return err
	}
	return c.rounds(ctx, real)
}

// rounds measures all who take part in a payload. They share a server if they can.
func (c *contest) rounds(ctx context.Context, of payload) error {
	contestants := c.options.takingPart(of.size())
	for round := range c.options.roundsOf(of) {
		if canShare(of) {
			if err := c.round(ctx, of, contestants, round); err != nil {
				return err
			}
			continue
		}
		for _, who := range turned(contestants, round) {
			if err := c.round(ctx, of, []contestant{who}, round); err != nil {
				return err
			}
		}
	}
	return nil
}

// canShare says whether contestants may have a payload on the same server, one after the other:
// those of real manifests would get in each other's way, and with 5,000 objects of another tool's
// there, and what controllers make of them, the same apply takes half as long again.
func canShare(of payload) bool {
	size, isGenerated := of.(generated)
	return isGenerated && size < 1000
}

// round measures contestants in turn, on a server that is new: what others leave there
// costs those that look at everything.
func (c *contest) round(ctx context.Context, of payload, contestants []contestant, round int) (err error) {
	below := filepath.Join(c.folder, "round")
	if err := os.Mkdir(below, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(below)) }()
	s, err := startServer(ctx, c.programs[ours], below)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	on := stand{server: s, programs: c.programs, home: below}
	if err := warmUp(ctx, on); err != nil {
		return err
	}
	out := map[string]bool{} // who has failed
	for i, name := range cases {
		for _, who := range turned(contestants, round+i) {
			if out[who.name] {
				continue
			}
			r := result{Payload: of.title(), Objects: of.size(), Case: name, Of: who.name, Round: round}
			if err := c.measure(ctx, on, of, who, r); err != nil {
				return err
			}
			out[who.name] = c.results[len(c.results)-1].Failed != ""
		}
	}
	return nil
}

// warmUp lets the server have its first requests before any time is taken.
func warmUp(ctx context.Context, on stand) error {
	p, err := write(generated(100).documents("warm-up", 0), filepath.Join(on.home, "warm-up"))
	if err != nil {
		return err
	}
	_, err = on.run(ctx, []line{{floor, p.folder}})
	return err
}

// measure adds a result. That a tool fails is one, too; not so that the floor does.
func (c *contest) measure(ctx context.Context, on stand, of payload, who contestant, r result) (err error) {
	revision := 0
	if r.Case == cases[2] {
		revision = 1
	}
	p, err := write(of.documents(who.name, revision), filepath.Join(on.home, who.name))
	if err != nil {
		return err
	}
	r.cost, err = on.run(ctx, who.apply(p, who.name, r.Case == cases[0]))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && who.name == floor:
		return err
	case err != nil:
		r.Failed = err.Error()
	}
	c.results = append(c.results, r)
	_, _ = fmt.Fprintln(c.progress, r)
	if r.Failed != "" {
		return on.server.settle(ctx)
	}
	return nil
}

func (r result) String() string {
	which := fmt.Sprintf("%s, %d objects, round %d, %-12s %-9s", r.Payload, r.Objects, r.Round+1, r.Case, r.Of)
	if r.Failed != "" {
		return which + "failed: " + r.Failed
	}
	return which + fmt.Sprintf("%6.2f s, %5.0f requests, %5.2f s of CPU, %5.2f s of the server's, %4.0f MB",
		r.Seconds, r.Requests, r.ClientCPU, r.ServerCPU, r.PeakMB)
}

// turned begins with another one each time.
func turned(all []contestant, by int) []contestant {
	by %= len(all)
	return append(append([]contestant{}, all[by:]...), all[:by]...)
}
