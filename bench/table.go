package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// A view is one table: what it says of a tool in a case.
type view struct {
	title string
	cell  func(rounds, yardsticks []result) string
	// The yardstick is the floor in the same round: its first apply, or its own of the case.
	againstFirst bool
}

// views are the tables.
var views = []view{
	{title: "Time, as a ratio to the floor's first apply", againstFirst: true, cell: func(rounds, yardsticks []result) string {
		return ratio(rounds, yardsticks, seconds)
	}},
	{title: "Requests", cell: func(rounds, _ []result) string {
		return fmt.Sprintf("%.0f", median(values(rounds, func(c cost) float64 { return c.Requests })))
	}},
	{title: "CPU time of the client, as a ratio to the floor's in the same case", cell: func(rounds, yardsticks []result) string {
		return ratio(rounds, yardsticks, clientCPU)
	}},
	{title: "CPU time of the API server until its controllers have settled, as a ratio to the floor's in the same case", cell: func(rounds, yardsticks []result) string {
		return ratio(rounds, yardsticks, serverCPU)
	}},
	{title: "Peak memory of the client", cell: func(rounds, _ []result) string {
		return fmt.Sprintf("%.0f MB", median(values(rounds, func(c cost) float64 { return c.PeakMB })))
	}},
}

func seconds(c cost) float64   { return c.Seconds }
func clientCPU(c cost) float64 { return c.ClientCPU }
func serverCPU(c cost) float64 { return c.ServerCPU }

func values(of []result, what func(cost) float64) []float64 {
	var all []float64
	for _, r := range of {
		all = append(all, what(r.cost))
	}
	return all
}

// ratio is the median of the rounds' ratios, since what slows down a round slows down
// both, and the median of the seconds.
func ratio(of, to []result, what func(cost) float64) string {
	var all []float64
	for _, r := range of {
		for _, yardstick := range to {
			if yardstick.Round == r.Round && what(yardstick.cost) > 0 {
				all = append(all, what(r.cost)/what(yardstick.cost))
			}
		}
	}
	return fmt.Sprintf("%.2f (%s s)", median(all), figure(median(values(of, what))))
}

// figure writes a number with two digits that matter, or all before the point.
func figure(number float64) string {
	if number >= 10 {
		return fmt.Sprintf("%.0f", number)
	}
	return fmt.Sprintf("%.2g", number)
}

func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// rows fills a view: a header, and a row for each payload and case.
func (v view) rows(results []result) [][]string {
	header := []string{"objects", "apply"}
	var taking []contestant
	for _, who := range contestants() {
		if slices.ContainsFunc(results, func(r result) bool { return r.Of == who.name }) {
			taking = append(taking, who)
			header = append(header, who.title)
		}
	}
	all := [][]string{header}
	for _, p := range payloadsOf(results) {
		for _, name := range cases {
			row := []string{p.label(), name}
			yardstick := name
			if v.againstFirst {
				yardstick = cases[0]
			}
			for _, who := range taking {
				row = append(row, v.fill(only(results, p, name, who.name), only(results, p, yardstick, floor)))
			}
			all = append(all, row)
		}
	}
	return all
}

// fill writes one cell. Where nothing was tried there is nothing.
func (v view) fill(rounds, yardsticks []result) string {
	switch {
	case len(rounds) == 0:
		return ""
	case slices.ContainsFunc(rounds, func(r result) bool { return r.Failed != "" }):
		return "failed"
	}
	return v.cell(rounds, yardsticks)
}

// A measured is a payload that was.
type measured struct {
	payload string
	objects int
}

func (m measured) label() string {
	if m.payload == generated(m.objects).title() {
		return fmt.Sprint(m.objects)
	}
	return fmt.Sprintf("%d of %s", m.objects, m.payload)
}

func only(results []result, of measured, name, who string) []result {
	return slices.DeleteFunc(slices.Clone(results), func(r result) bool {
		return r.Payload != of.payload || r.Objects != of.objects || r.Case != name || r.Of != who
	})
}

func payloadsOf(results []result) []measured {
	var all []measured
	for _, r := range results {
		if m := (measured{r.Payload, r.Objects}); !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}

func printText(w io.Writer, results []result) error {
	for _, v := range views {
		if _, err := fmt.Fprintf(w, "\n%s\n\n", v.title); err != nil {
			return err
		}
		columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
		for _, row := range v.rows(results) {
			_, _ = fmt.Fprintln(columns, "  "+strings.Join(row, "\t"))
		}
		if err := columns.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func printMarkdown(w io.Writer, results []result) error {
	for i, v := range views {
		if i > 0 {
			_, _ = fmt.Fprintln(w)
		}
		_, _ = fmt.Fprintf(w, "%s:\n\n", v.title)
		for i, row := range v.rows(results) {
			if _, err := fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | ")); err != nil {
				return err
			}
			if i == 0 {
				_, _ = fmt.Fprintln(w, strings.Repeat("|---", len(row))+"|")
			}
		}
	}
	return nil
}

// printJSON prints each run as it was.
func printJSON(w io.Writer, results []result) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Runs []result `json:"runs"`
	}{results})
}

// The markers between which a document has the tables.
const (
	begin = "<!-- bench: written by \"make bench\" -->\n"
	end   = "<!-- bench: end -->\n"
)

// writeInto replaces what is between the markers.
func writeInto(file string, text func(io.Writer) error) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(content), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s: there is no place for the tables: put %q and %q where they are to be", file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	var whole strings.Builder
	whole.WriteString(before + begin + "\n")
	if err := text(&whole); err != nil {
		return err
	}
	whole.WriteString("\n" + end + after)
	return os.WriteFile(file, []byte(whole.String()), 0o644)
}
