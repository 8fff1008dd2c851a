package live

import (
	"fmt"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/pkg/printable"
)

// A progress is how many objects of something are done, applied and waited for, failed.
type progress struct{ done, waits, failed, total int }

func (p progress) add(other progress) progress {
	return progress{p.done + other.done, p.waits + other.waits, p.failed + other.failed, p.total + other.total}
}

// progressOf is how far a node is.
func (m *Model) progressOf(n *node, waiting map[string]int) progress {
	waits := min(waiting[n.name], n.done-n.failed)
	return progress{done: n.done - n.failed - waits, waits: waits, failed: n.failed, total: n.total}
}

// waiting counts the objects that are applied and not ready, by node.
func (m *Model) waiting() map[string]int {
	waiting := map[string]int{}
	for of, w := range m.waits {
		if one := m.items[of]; one != nil && !w.isRetry {
			waiting[one.node.name]++
		}
	}
	return waiting
}

// A levelRow is a level, as far as it is.
type levelRow struct {
	progress
	label   string
	running []string // components
	isBegun bool
}

// isDone says whether nothing is left to do, or to wait for.
func (r levelRow) isDone() bool { return r.done == r.total && len(r.running) == 0 }

// rows are all levels.
func (m *Model) rows() []levelRow {
	waiting := m.waiting()
	var rows []levelRow
	for _, l := range m.levels {
		row := levelRow{label: "level " + printable.Line(l.name)}
		if l.name == "" {
			row.label = "no level"
		}
		for _, n := range l.nodes {
			row.progress = row.add(m.progressOf(n, waiting))
			row.isBegun = row.isBegun || n.done > 0 || !n.began.IsZero()
			if n.isRunning || waiting[n.name] > 0 {
				row.running = append(row.running, printable.Line(n.component))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// levelLines shows the levels in some lines. Where there is no room for all, those that are
// done and those to come are summed up, but for the ones next to what runs.
func (m *Model) levelLines(width, room int) []string {
	rows := m.rows()
	shown := choose(rows, room)
	widest := 0
	for _, i := range shown {
		widest = max(widest, len(rows[i].label))
	}
	barWidth := min(max(width/4, 8), 40)
	counted := len(fmt.Sprint(len(m.plan.Items)))
	line := func(row levelRow) string {
		count := fmt.Sprintf("%*d/%-*d", counted, row.total-row.left(), counted, row.total)
		text := strings.TrimRight(fmt.Sprintf("  %-*s %s %s", widest, row.label, bar(barWidth, row.progress), count), " ")
		if row.failed > 0 {
			text += " " + bad.of(fmt.Sprintf("%d failed", row.failed))
		}
		if len(row.running) > 0 {
			text += " " + faint.of(strings.Join(row.running, ", "))
		}
		return cut(text, width)
	}
	var lines, more []string
	for _, state := range []struct {
		is   func(levelRow) bool
		what string
	}{{levelRow.isDone, "done"}, {func(r levelRow) bool { return r.isBegun && !r.isDone() }, "running"}, {func(r levelRow) bool { return !r.isBegun && !r.isDone() }, "to come"}} {
		count, objects := 0, 0
		for i, row := range rows {
			if state.is(row) && !slices.Contains(shown, i) {
				count++
				objects += row.total
			}
		}
		if count > 0 {
			more = append(more, fmt.Sprintf("%s %s (%s)", printable.Count(count, "level"), state.what, printable.Count(objects, "object")))
		}
	}
	for _, i := range shown {
		lines = append(lines, line(rows[i]))
	}
	if len(more) > 0 && room > len(lines) {
		lines = append(lines, cut(faint.of("  and "+strings.Join(more, ", ")), width))
	}
	return lines
}

// left is how many objects have not had their turn.
func (p progress) left() int { return p.total - p.done - p.waits - p.failed }

// How many levels are shown beside those that run, where there are many.
const (
	fewLevels = 12 // all are shown
	doneShown = 3
	nextShown = 6
)

// choose says which levels to show in some lines, in their order: those that failed and those
// that run first, then some around them. If not all are, a line is left for how many others
// there are.
func choose(rows []levelRow, room int) []int {
	var all, ranked []int
	first := slices.IndexFunc(rows, func(r levelRow) bool { return !r.isDone() })
	if first < 0 {
		first = len(rows)
	}
	rank := func(i int) int {
		switch row := rows[i]; {
		case row.failed > 0:
			return 0
		case !row.isDone() && row.isBegun:
			return 1
		case i < first:
			return 2 * (1 + first - i) // the last that are done are half as near as the next to come
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
