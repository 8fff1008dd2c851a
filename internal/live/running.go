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

// about says what is waited for, and since when.
func (m *Model) about(w *wait) string {
	mark := "waiting"
	if w.isRetry {
		mark = "retrying"
	}
	return slow.of(mark+" for "+clock(m.now.Sub(*w.Since))) + ": " + aim(w)
}

// aim is an object, and what is the matter with it.
func aim(w *wait) string { return w.Object.String() + ": " + printable.Line(w.Message) }

// How much is said of each job, from the most to the least.
var details = []struct{ waits, why int }{{1 << 20, 8}, {1 << 20, 3}, {1 << 20, 1}, {8, 1}, {8, 0}, {3, 0}, {1, 0}, {0, 0}}

// runningLines shows what runs in some lines, with as much of it as there is room for.
func (m *Model) runningLines(width, room int) []string {
	jobs := m.jobs()
	var lines []string
	for _, detail := range details {
		lines = lines[:0]
		for i := 0; i < len(jobs) && len(lines) <= room; i++ {
			lines = append(lines, m.jobLines(jobs[i], detail.waits, detail.why)...)
		}
		if len(lines) <= room {
			break
		}
	}
	if len(lines) > room { // a line for each now
		lines = lines[:room]
		if room > 1 {
			lines[room-1] = "  " + faint.of(fmt.Sprintf("and %d more", len(jobs)-room+1))
		}
	}
	for i := range lines {
		lines[i] = cut(lines[i], width)
	}
	return lines
}

// jobLines are those of one job. With no room for its waits, the first is in the same line.
func (m *Model) jobLines(one job, waits, why int) []string {
	if waits == 0 && len(one.waits) > 0 {
		return []string{m.shortly(one)}
	}
	lines := []string{"  " + m.title(one)}
	for i, w := range one.waits {
		if i == waits {
			lines = append(lines, faint.of(fmt.Sprintf("    and %d more", len(one.waits)-waits)))
			break
		}
		lines = append(lines, "    "+m.about(w))
		for _, text := range w.Why[:min(why, len(w.Why))] {
			lines = append(lines, faint.of("      "+printable.Line(strings.TrimRight(text, " \n"))))
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
