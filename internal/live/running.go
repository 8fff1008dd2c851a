package live

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/pkg/printable"
)

// A job is a node that runs, or has something that is waited for.
type job struct {
	node  *node // nil for what is in no node
	waits []*wait
}

// jobs are those of now: first what is waited for, the longest first.
func (m *Model) jobs() []job {
	byNode := map[string]*job{}
	for name, n := range m.nodes {
		if n.isRunning {
			byNode[name] = &job{node: n}
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(m.waits), m.inOrder) {
		w := m.waits[of]
		name := w.Node
		if one := m.items[of]; one != nil {
			name = one.node.name
		}
		if byNode[name] == nil {
			byNode[name] = &job{node: m.nodes[name]}
		}
		byNode[name].waits = append(byNode[name].waits, w)
	}
	return slices.SortedFunc(func(yield func(job) bool) {
		for _, one := range byNode {
			if !yield(*one) {
				return
			}
		}
	}, func(a, b job) int {
		return cmp.Or(a.since().Compare(b.since()), cmp.Compare(a.name(), b.name()))
	})
}

// inOrder compares waits: the longest first.
func (m *Model) inOrder(a, b key) int {
	return cmp.Or(m.waits[a].Since.Compare(*m.waits[b].Since), cmp.Compare(a.id.String(), b.id.String()))
}

// since is when a job began to wait. One that waits for nothing comes after those that do.
func (j job) since() time.Time {
	if len(j.waits) > 0 {
		return *j.waits[0].Since
	}
	const late = 100 * 365 * 24 * time.Hour
	return j.node.began.Add(late)
}

func (j job) name() string {
	if j.node == nil || j.node.name == "" {
		return "files without a level"
	}
	return printable.Line(j.node.name)
}

// title says what runs, since when, and how long it took the last time.
func (m *Model) title(j job) string {
	text := strong.of(j.name())
	if j.node == nil || j.node.began.IsZero() {
		return text
	}
	if j.node.isRunning {
		text += " " + clock(m.now.Sub(j.node.began))
		if took := m.plan.Nodes[j.node.name]; took > 0 {
			text += faint.of(", " + clock(took) + " the last time")
		}
	}
	return text
}

// aim is an object, and what is the matter with it.
func aim(w *wait) string { return w.Object.String() + ": " + printable.Line(w.Message) }

// A detail is how much is said of the jobs.
type detail struct {
	waits, why int // of each job, and of each wait
	whole      int // how many of the oldest waits have their lines wrapped instead of cut
}

const all = 1 << 20

// details are tried from the most to the least.
var details = []detail{{all, 8, all}, {all, 3, all}, {all, 1, all}, {all, 1, 1}, {8, 1, 1}, {8, 0, 1}, {3, 0, 1}, {1, 0, 1}, oldestOnly}

// oldestOnly leaves a line for each job, and the cause of the oldest wait.
var oldestOnly = detail{0, 0, 1}

// runningLines shows what runs in some lines, with as much of it as there is room for.
func (m *Model) runningLines(width, room int) []string {
	jobs := m.jobs()
	if len(jobs) == 0 {
		return nil
	}
	for _, d := range details {
		var lines []string
		for i := 0; i < len(jobs) && len(lines) <= room; i++ {
			lines = append(lines, m.jobLines(jobs[i], d, width)...)
			d.whole = max(0, d.whole-max(1, len(jobs[i].waits)))
		}
		if len(lines) <= room {
			return lines
		}
	}
	return m.crowdedLines(jobs, width, room)
}

// crowdedLines shows more jobs than there are lines: a line for each, but for the oldest wait,
// which has up to two thirds of them.
func (m *Model) crowdedLines(jobs []job, width, room int) []string {
	const fewest = 3 // the job, its wait, and some of the cause
	lines := []string{cut(m.shortly(jobs[0]), width)}
	if most := room * 2 / 3; most >= fewest {
		lines = m.jobLines(jobs[0], oldestOnly, width)
		if len(lines) > most {
			lines = append(lines[:most-1], cut(lines[most-1], width-1)+"…")
		}
	}
	for i, one := range jobs[1:] {
		if len(lines) == room-1 && i < len(jobs)-2 {
			return append(lines, cut("  "+faint.of(fmt.Sprintf("and %d more", len(jobs)-1-i)), width))
		}
		if len(lines) == room {
			break
		}
		lines = append(lines, m.jobLines(one, detail{}, width)...)
	}
	return lines
}

// jobLines are those of one job. With no room for its waits, the oldest is in the same line.
func (m *Model) jobLines(one job, d detail, width int) []string {
	if d.whole > 0 {
		d.waits = max(d.waits, 1)
	}
	switch {
	case len(one.waits) == 0:
		return []string{cut("  "+m.title(one), width)}
	case d.waits == 0:
		return []string{cut(m.shortly(one), width)}
	}
	lines := []string{cut("  "+m.title(one), width)}
	for i, w := range one.waits {
		if i == d.waits {
			return append(lines, cut(faint.of(fmt.Sprintf("    and %d more", len(one.waits)-i)), width))
		}
		lines = append(lines, m.waitLines(w, detail{why: d.why, whole: d.whole - i}, width)...)
	}
	return lines
}

// waitLines say what is waited for, since when, and why. The cause of one that is shown as a whole
// is not left out.
func (m *Model) waitLines(w *wait, d detail, width int) []string {
	fit, why := cutLine, d.why
	if d.whole > 0 {
		const leastWhy = 3
		fit, why = wrap, max(d.why, leastWhy)
	}
	mark := "waiting"
	if w.isRetry {
		mark = "retrying"
	}
	mark += " for " + clock(m.now.Sub(*w.Since))
	lines := fit("    "+mark+": "+aim(w), width)
	lines[0] = strings.Replace(lines[0], mark, slow.of(mark), 1)
	for _, text := range w.Why[:min(why, len(w.Why))] {
		for _, line := range fit("      "+printable.Line(strings.TrimRight(text, " \n")), width) {
			lines = append(lines, faint.of(line))
		}
	}
	return lines
}

// shortly is a job in one line, with what it waits for the longest.
func (m *Model) shortly(one job) string {
	name := strong.of(strings.TrimPrefix(one.name(), "level "))
	if more := len(one.waits) - 1; more > 0 {
		name += fmt.Sprintf(" (+%d)", more)
	}
	if one.waits[0].isRetry {
		name += " retrying"
	}
	return "  " + slow.of(fmt.Sprintf("%-6s", clock(m.now.Sub(*one.waits[0].Since)))) + " " + name + ": " + aim(one.waits[0])
}
