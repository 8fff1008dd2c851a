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

// A table contains a row for each size and case, and a column for each tool.
type table struct {
	title string
	// cell formats the rounds of a tool. The yardsticks are the floor's: those of its first apply, or of the same case.
	cell         func(rounds, yardsticks []result) string
	againstFirst bool
}

var tables = []table{
	{title: "Time, as a ratio to the floor's first apply", againstFirst: true,
		cell: func(rounds, yardsticks []result) string {
			return ratio(rounds, yardsticks, func(c cost) float64 { return c.Seconds })
		}},
	{title: "Requests", cell: func(rounds, _ []result) string {
		return fmt.Sprintf("%.0f", median(values(rounds, func(c cost) float64 { return c.Requests })))
	}},
	{title: "CPU time of the client, as a ratio to the floor's in the same case",
		cell: func(rounds, yardsticks []result) string {
			return ratio(rounds, yardsticks, func(c cost) float64 { return c.ClientCPU })
		}},
	{title: "Peak memory of the client", cell: func(rounds, _ []result) string {
		return fmt.Sprintf("%.0f MB", median(values(rounds, func(c cost) float64 { return c.PeakMB })))
	}},
}

func values(results []result, field func(cost) float64) []float64 {
	var all []float64
	for _, r := range results {
		all = append(all, field(r.cost))
	}
	return all
}

// ratio formats the median of the rounds' ratios and the median of the seconds. A busy machine slows down both sides of
// a round's ratio.
func ratio(rounds, yardsticks []result, field func(cost) float64) string {
	var all []float64
	for _, r := range rounds {
		for _, yardstick := range yardsticks {
			if yardstick.Round == r.Round && field(yardstick.cost) > 0 {
				all = append(all, field(r.cost)/field(yardstick.cost))
			}
		}
	}
	return fmt.Sprintf("%.2f (%s s)", median(all), figure(median(values(rounds, field))))
}

// figure formats a number with two significant digits, or all digits before the point.
func figure(number float64) string {
	if number >= 10 {
		return fmt.Sprintf("%.0f", number)
	}
	return fmt.Sprintf("%.2g", number)
}

func median(numbers []float64) float64 {
	if len(numbers) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(numbers))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// rows returns the header and the rows.
func (t table) rows(results []result) [][]string {
	header := []string{"objects", "apply"}
	measured := slices.DeleteFunc(tools(), func(tool tool) bool {
		return !slices.ContainsFunc(results, func(r result) bool { return r.Tool == tool.name })
	})
	for _, tool := range measured {
		header = append(header, tool.title)
	}
	all := [][]string{header}
	for _, size := range sizesOf(results) {
		for _, name := range cases {
			row := []string{fmt.Sprint(size), name}
			yardstick := name
			if t.againstFirst {
				yardstick = firstApply
			}
			for _, tool := range measured {
				row = append(row, t.format(filter(results, size, name, tool.name),
					filter(results, size, yardstick, "floor")))
			}
			all = append(all, row)
		}
	}
	return all
}

// format returns a cell, which is empty if the tool was not measured.
func (t table) format(rounds, yardsticks []result) string {
	switch {
	case len(rounds) == 0:
		return ""
	case slices.ContainsFunc(rounds, func(r result) bool { return r.Error != "" }):
		return "failed"
	}
	return t.cell(rounds, yardsticks)
}

func filter(results []result, size int, name, tool string) []result {
	return slices.DeleteFunc(slices.Clone(results), func(r result) bool {
		return r.Objects != size || r.Case != name || r.Tool != tool
	})
}

func sizesOf(results []result) []int {
	var all []int
	for _, r := range results {
		if !slices.Contains(all, r.Objects) {
			all = append(all, r.Objects)
		}
	}
	return all
}

func printText(w io.Writer, results []result) error {
	for _, t := range tables {
		if _, err := fmt.Fprintf(w, "\n%s\n\n", t.title); err != nil {
			return err
		}
		columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
		for _, row := range t.rows(results) {
			_, _ = fmt.Fprintln(columns, "  "+strings.Join(row, "\t"))
		}
		if err := columns.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func printMarkdown(w io.Writer, results []result) error {
	for i, t := range tables {
		if i > 0 {
			_, _ = fmt.Fprintln(w)
		}
		_, _ = fmt.Fprintf(w, "%s:\n\n", t.title)
		for i, row := range t.rows(results) {
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

// printJSON prints each run.
func printJSON(w io.Writer, results []result) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Runs []result `json:"runs"`
	}{results})
}

// The markers around the tables of a document.
const (
	begin = "<!-- bench: written by \"make bench\" -->\n"
	end   = "<!-- bench: end -->\n"
)

// writeInto replaces the text between the markers.
func writeInto(file string, text func(io.Writer) error) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(content), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s has no place for the tables: add the lines %q and %q", file, strings.TrimSpace(begin),
			strings.TrimSpace(end))
	}
	var whole strings.Builder
	whole.WriteString(before + begin + "\n")
	if err := text(&whole); err != nil {
		return err
	}
	whole.WriteString("\n" + end + after)
	return os.WriteFile(file, []byte(whole.String()), 0o644)
}
