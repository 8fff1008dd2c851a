package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// A delay is how long machines stayed after their last hooks were removed.
type delay struct {
	Of      string    `json:"of"`
	Fleet   string    `json:"fleet"`
	When    string    `json:"when"`
	Seconds []float64 `json:"seconds"`
}

// results are what was measured.
type results struct {
	Spans    []span  `json:"spans"`
	Delays   []delay `json:"delays"`
	progress io.Writer
}

func (r *results) add(s span) {
	r.Spans = append(r.Spans, s)
	_, _ = fmt.Fprintf(r.progress, "%s: %s, %s: %.1f s, %d requests\n", s.Of, s.Fleet, s.Phase, s.Seconds, s.total())
}

func (r *results) wait(d delay) { r.Delays = append(r.Delays, d) }

// total is the requests but for those of the Lease.
func (s span) total() int {
	total := 0
	for name, count := range s.Requests {
		if !isLease(name) {
			total += count
		}
	}
	return total
}

// per writes a count for each machine; at rest, in a minute and for all of them.
func (s span) per(count float64) string {
	if strings.HasPrefix(s.Phase, "a") { // at rest, afterwards
		return fmt.Sprintf("%.1f a minute", count/s.Seconds*60)
	}
	return fmt.Sprintf("%.2f", count/float64(s.Machines))
}

// spanRows are the table of what was measured.
func (r *results) spanRows() [][]string {
	all := [][]string{{"machines", "phase", "of", "time", "requests for each", "passes for each", "CPU time", "memory, peak", "memory then"}}
	for _, s := range r.Spans {
		row := []string{s.Fleet, s.Phase, s.Of, fmt.Sprintf("%.1f s", s.Seconds), s.per(float64(s.total())), "", "", "", ""}
		if s.PeakMB > 0 {
			row = append(row[:5], s.per(s.Reconciles), fmt.Sprintf("%.1f s", s.CPU), fmt.Sprintf("%.0f MB", s.PeakMB), fmt.Sprintf("%.0f MB", s.MB))
		}
		all = append(all, row)
	}
	return all
}

// requestRows are the table of which requests those were.
func (r *results) requestRows() [][]string {
	all := [][]string{{"machines", "phase", "of", "requests for each"}}
	for _, s := range r.Spans {
		names := slices.Sorted(maps.Keys(s.Requests))
		slices.SortStableFunc(names, func(a, b string) int { return s.Requests[b] - s.Requests[a] })
		var list []string
		for _, name := range names {
			if count := float64(s.Requests[name]); strings.HasPrefix(s.Phase, "a") || count >= float64(s.Machines)/20 {
				list = append(list, fmt.Sprintf("%s %s", s.per(count), name))
			}
		}
		all = append(all, []string{s.Fleet, s.Phase, s.Of, strings.Join(list, ", ")})
	}
	return all
}

// ratioRows are the table of Runlevel beside others, which did the same to as many. A rollout in place has the one by replacement
// beside it.
func (r *results) ratioRows() [][]string {
	all := [][]string{{"machines", "phase", "of", "beside", "time", "requests", "memory, peak"}}
	for _, peer := range r.Spans {
		for _, ours := range r.Spans {
			isOurs := ours.Of == "Runlevel" || ours.Of == inPlace
			if ours.Of == peer.Of || !isOurs || ours.Fleet != peer.Fleet || ours.Phase != peer.Phase {
				continue
			}
			row := []string{
				peer.Fleet, peer.Phase, ours.Of, peer.Of, ratio(ours.Seconds, peer.Seconds), ratio(float64(ours.total()), float64(peer.total())), "",
			}
			if peer.PeakMB > 0 {
				row[6] = ratio(ours.PeakMB, peer.PeakMB)
			}
			all = append(all, row)
		}
	}
	return all
}

func ratio(a, b float64) string { return fmt.Sprintf("%.2f", a/b) }

// delayRows are the table of delays.
func (r *results) delayRows() [][]string {
	all := [][]string{{"machines", "phase", "of", "hooks", "p50", "p95"}}
	for _, d := range r.Delays {
		all = append(all, []string{
			d.Fleet, d.When, d.Of, fmt.Sprint(len(d.Seconds)), milliseconds(percentile(d.Seconds, 50)), milliseconds(percentile(d.Seconds, 95)),
		})
	}
	return all
}

func milliseconds(seconds float64) string { return fmt.Sprintf("%.0f ms", seconds*1000) }

// percentile returns the smallest value that is no less than so many percent of them.
func percentile(of []float64, percent float64) float64 {
	if len(of) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[max(0, int(math.Ceil(percent/100*float64(len(sorted))))-1)]
}

func (r *results) printText(to io.Writer) error {
	for _, table := range []struct {
		title string
		rows  [][]string
	}{
		{"What the controller takes", r.spanRows()},
		{"Which requests", r.requestRows()},
		{"Runlevel as a ratio to others", r.ratioRows()},
		{"From the removal of the last hook until the machine is gone", r.delayRows()},
	} {
		if _, err := fmt.Fprintf(to, "\n%s\n\n", table.title); err != nil {
			return err
		}
		columns := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
		for _, row := range table.rows {
			_, _ = fmt.Fprintln(columns, "  "+strings.Join(row, "\t"))
		}
		if err := columns.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (r *results) printJSON(to io.Writer) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
