package live

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// Levels renders the progress of the apply and of each level, in at most height lines of at most width columns.
func Levels(shown progress.Progress, width, height int) []string {
	p := page{shown}
	if width < 1 || height < 1 {
		return nil
	}
	return append(cutLine(p.sum(width), width), p.levelLines(width, height-1)...)
}

// StripStyles returns a rendered line without its colours.
func StripStyles(line string) string { return ansi.Strip(line) }

// label returns the name of a level.
func label(l progress.Level) string {
	if l.Name == "" {
		return "no level"
	}
	return "level " + printable.Line(l.Name)
}

// levelLines renders the levels in at most room lines. If there is no room for all levels, it sums up completed
// and future levels, except those next to running ones.
func (p page) levelLines(width, room int) []string {
	rows := p.Levels
	shown := chooseLevels(rows, room)
	widest := 0
	for _, i := range shown {
		widest = max(widest, len(label(rows[i])))
	}
	barWidth := min(max(width/4, 8), 40)
	digits := len(fmt.Sprint(p.Total))
	line := func(row progress.Level) string {
		count := fmt.Sprintf("%*d/%-*d", digits, row.Done, digits, row.Total)
		text := strings.TrimRight(
			fmt.Sprintf("  %-*s %s %s", widest, label(row), bar(barWidth, row.StateCounts), count), " ",
		)
		if row.Failed > 0 {
			text += " " + bad.of(fmt.Sprintf("%d failed", row.Failed))
		}
		if running := row.Running(); len(running) > 0 {
			text += " " + faint.of(printable.Line(strings.Join(running, ", ")))
		}
		return cut(text, width)
	}
	var lines []string
	for _, i := range shown {
		lines = append(lines, line(rows[i]))
	}
	if more := summarizeOmitted(rows, shown); len(more) > 0 && room > len(lines) {
		lines = append(lines, cut(faint.of("  and "+strings.Join(more, ", ")), width))
	}
	return lines
}

// summarizeOmitted sums up the levels that are not shown, by their states.
func summarizeOmitted(rows []progress.Level, shown []int) (texts []string) {
	const states = 3
	names := [states]string{"done", "running", "to come"}
	var counts, objects [states]int
	for i, row := range rows {
		if slices.Contains(shown, i) {
			continue
		}
		state := 2
		switch {
		case row.IsDone():
			state = 0
		case row.IsBegun():
			state = 1
		}
		counts[state]++
		objects[state] += row.Total
	}
	for state, count := range counts {
		if count > 0 {
			texts = append(texts, fmt.Sprintf("%s %s (%s)", printable.Count(count, "level"), names[state],
				printable.Count(objects[state], "object")))
		}
	}
	return texts
}

// The number of levels to show besides the running ones, if there are many.
const (
	fewLevels = 12 // up to this number, all levels are shown
	doneShown = 3
	nextShown = 6
)

// chooseLevels returns the levels to show in at most room lines, in their order. It prefers failed and running levels,
// then the levels next to those. If it omits levels, it reserves a line for their number.
func chooseLevels(rows []progress.Level, room int) []int {
	var all, ranked []int
	first := slices.IndexFunc(rows, func(r progress.Level) bool { return !r.IsDone() })
	if first < 0 {
		first = len(rows)
	}
	rank := func(i int) int {
		switch row := rows[i]; {
		case row.Failed > 0:
			return 0
		case !row.IsDone() && row.IsBegun():
			return 1
		case i < first:
			return 2 * (1 + first - i) // the distance of a finished level is twice that of a future level
		default:
			return 2 + i - first
		}
	}
	for i := range rows {
		all = append(all, i)
		if rank(i) < 2 || first-i <= doneShown && i-first <= nextShown {
			ranked = append(ranked, i)
		}
	}
	if len(rows) <= min(room, fewLevels) {
		return all
	}
	slices.SortStableFunc(ranked, func(a, b int) int { return rank(a) - rank(b) })
	shown := ranked[:min(max(room-1, 0), len(ranked))]
	slices.Sort(shown)
	return shown
}
