package live

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/runlevel/runlevel/pkg/printable"
)

// Screen is all that there is to see, in no more lines than a height, none of them wider than
// a width.
func (m *Model) Screen(width, height int) string {
	if width < 1 || height < 1 {
		return ""
	}
	lines := m.head(width)
	parts := m.parts(width, height)
	share(parts, height-len(lines))
	for _, one := range parts {
		lines = append(lines, one.lines(width)...)
	}
	for i := range lines {
		lines[i] = cut(lines[i], width)
	}
	return strings.Join(lines[:min(height, len(lines))], "\n")
}

// head is what, for how long, and how much of it is done.
func (m *Model) head(width int) []string {
	times := clock(m.now.Sub(m.plan.Began))
	if left := m.leftInWords(); left != "" {
		times += ", " + left
	}
	title := printable.Line(m.plan.Title)
	if room := width - ansi.StringWidth(times) - 2; ansi.StringWidth(title) > room {
		title = cut(title, max(room, 0))
	}
	gap := max(1, width-ansi.StringWidth(title)-ansi.StringWidth(times))
	first := strong.of(title) + strings.Repeat(" ", gap) + times

	all := progress{}
	waiting := m.waiting()
	for _, n := range m.nodes {
		all = all.add(m.progressOf(n, waiting))
	}
	counts := fmt.Sprintf("%d/%d", m.done, all.total)
	var more string
	if len(m.failures) > 0 {
		more += fmt.Sprintf(", %d failed", len(m.failures))
	}
	if len(m.waits) > 0 {
		more += fmt.Sprintf(", %d waiting", len(m.waits))
	}
	room := min(max(width-len(counts)-len(more)-1, 8), 80)
	return []string{first, bar(room, all) + " " + counts + more}
}

// A part is one list of the screen.
type part struct {
	title string
	want  int                            // lines, with the title
	got   int                            // of them
	body  func(width, room int) []string // without the title
}

// lines are those of a part that has got some. With one line only, it is a title that says
// how many there are.
func (p part) lines(width int) []string {
	switch {
	case p.got == 0:
		return nil
	case p.title == "":
		return p.body(width, p.got)
	default:
		return append([]string{strong.of(p.title)}, p.body(width, p.got-1)...)
	}
}

// The parts, in the order in which they stand.
const (
	levelPart = iota
	runningPart
	failedPart
	deletesPart
	recentPart
)

// parts are what there is to show below the head, on a screen of some lines.
func (m *Model) parts(width, height int) []part {
	running := m.runningLines(width, height)
	parts := []part{
		levelPart:   {want: len(m.levelLines(width, height)), body: m.levelLines},
		runningPart: {title: fmt.Sprintf("running (%d)", len(m.jobs())), want: len(running), body: m.runningLines},
		failedPart:  list(fmt.Sprintf("failed (%d)", len(m.failures)), m.failures, bad, width),
		deletesPart: list(fmt.Sprintf("deletes that are pending (%d)", len(m.deletes)), m.deletesInWords(), plain, width),
		recentPart:  list("lately", m.recent, faint, width),
	}
	if len(running) > 0 {
		parts[runningPart].want++
	}
	return parts
}

func (m *Model) deletesInWords() []string {
	var lines []string
	for _, one := range m.deletes {
		lines = append(lines, one.id.String()+": "+printable.Line(one.state))
	}
	return lines
}

// list is a part that shows all items as a whole where there is room for that; else the last of
// them, each in a line.
func list(title string, items []string, look style, width int) part {
	if len(items) == 0 {
		return part{}
	}
	items = items[max(0, len(items)-mostRecent):]
	var whole []string
	for _, item := range items {
		for _, line := range wrap("  "+item, width) {
			whole = append(whole, look.of(line))
		}
	}
	return part{title: title, want: len(whole) + 1, body: func(width, room int) []string {
		if len(whole) <= room {
			return whole
		}
		var lines []string
		for _, item := range items[max(0, len(items)-room):] {
			lines = append(lines, look.of(cut("  "+item, width)))
		}
		return lines
	}}
}

// turns are in which order parts get their lines, and up to how many: a little of each
// first.
var turns = []struct{ part, upTo int }{
	{runningPart, 2}, {failedPart, 2}, {levelPart, 1}, {deletesPart, 2}, {levelPart, 4}, {runningPart, 4}, {failedPart, 4},
	{runningPart, 8}, {levelPart, 8}, {deletesPart, 4}, {runningPart, 12}, {recentPart, 4}, {runningPart, 16}, {levelPart, 16}, {failedPart, 8},
	{runningPart, 40}, {levelPart, 40}, {failedPart, 20}, {deletesPart, 20}, {recentPart, 10},
	{runningPart, 1 << 20}, {levelPart, 1 << 20},
}

// share gives parts their lines. Titles without anything below them say nothing.
func share(parts []part, room int) {
	for _, turn := range turns {
		p := &parts[turn.part]
		more := max(0, min(min(p.want, turn.upTo)-p.got, room))
		if p.title != "" && p.got+more < 2 && turn.part != failedPart && turn.part != deletesPart {
			more = 0
		}
		p.got += more
		room -= more
	}
}
