package live

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply"
)

// A job is a component that runs or waits for objects.
type job struct {
	progress.Component
	waits []apply.Wait // the longest first
}

// jobs returns the current jobs: first those that wait, the longest first.
func (p page) jobs() []job {
	byNode := map[string]*job{}
	for _, l := range p.Levels {
		for _, c := range l.Components {
			byNode[c.Node] = &job{Component: c}
		}
	}
	for _, w := range p.Waits {
		if byNode[w.Node] == nil { // not in a file of the release
			byNode[w.Node] = &job{Component: progress.Component{Node: w.Node}}
		}
		byNode[w.Node].waits = append(byNode[w.Node].waits, w)
	}
	var jobs []job
	for _, item := range byNode {
		if item.IsRunning || len(item.waits) > 0 {
			jobs = append(jobs, *item)
		}
	}
	slices.SortFunc(jobs, func(a, b job) int {
		return cmp.Or(a.since().Compare(b.since()), cmp.Compare(a.name(), b.name()))
	})
	return jobs
}

// since returns the start of the longest wait of a job. For a job that does not wait, it returns a time far in the
// future, so that the job is sorted after those that wait.
func (j job) since() time.Time {
	if len(j.waits) > 0 {
		return j.waits[0].Since
	}
	const later = 100 * 365 * 24 * time.Hour
	return j.Began.Add(later)
}

func (j job) name() string {
	if j.Node == "" {
		return "files without a level"
	}
	return printable.Line(j.Node)
}

// title returns the name of a job, the time for which it has run, and its duration in the last apply.
func (p page) title(j job) string {
	text := strong.of(j.name())
	if j.IsRunning && !j.Began.IsZero() {
		text += " " + clock(p.Now.Sub(j.Began))
		if j.Before > 0 {
			text += faint.of(", " + clock(j.Before) + " the last time")
		}
	}
	return text
}

// waitText returns the object of a wait, and the reason of the wait.
func waitText(w apply.Wait) string { return w.Name() + ": " + printable.Line(w.For) }

// A detail limits the lines that show jobs.
type detail struct {
	maxWaits     int // waits of each job
	causeLines   int // lines for the cause of each wait
	wrappedWaits int // the number of oldest waits whose lines are wrapped instead of cut
}

const unlimited = 1 << 20

// details are tried in order, from the most to the least.
var details = []detail{{unlimited, 8, unlimited}, {unlimited, 3, unlimited}, {unlimited, 1, unlimited},
	{unlimited, 1, 1}, {8, 1, 1}, {8, 0, 1}, {3, 0, 1}, {1, 0, 1}, oldestOnly}

// oldestOnly limits each job to a line, except for the oldest wait, which also has its cause.
var oldestOnly = detail{0, 0, 1}

// runningLines renders the jobs in at most room lines, with as much detail as fits.
func (p page) runningLines(width, room int) []string {
	jobs := p.jobs()
	if len(jobs) == 0 {
		return nil
	}
	for _, d := range details {
		var lines []string
		for i := 0; i < len(jobs) && len(lines) <= room; i++ {
			lines = append(lines, p.jobLines(jobs[i], d, width)...)
			d.wrappedWaits = max(0, d.wrappedWaits-max(1, len(jobs[i].waits)))
		}
		if len(lines) <= room {
			return lines
		}
	}
	return p.crowdedLines(jobs, width, room)
}

// crowdedLines renders jobs that do not fit in the room: each job has a line, except the oldest wait, which has up to
// two thirds of the lines.
func (p page) crowdedLines(jobs []job, width, room int) []string {
	const fewest = 3 // lines: the job, its wait, and a line of the cause
	lines := []string{cut(p.oneLine(jobs[0]), width)}
	if most := room * 2 / 3; most >= fewest {
		lines = p.jobLines(jobs[0], oldestOnly, width)
		if len(lines) > most {
			lines = append(lines[:most-1], cut(lines[most-1], width-1)+"…")
		}
	}
	for i, item := range jobs[1:] {
		if len(lines) == room-1 && i < len(jobs)-2 {
			return append(lines, cut("  "+faint.of(fmt.Sprintf("and %d more", len(jobs)-1-i)), width))
		}
		if len(lines) == room {
			break
		}
		lines = append(lines, p.jobLines(item, detail{}, width)...)
	}
	return lines
}

// jobLines renders a job. If the detail allows no waits, the line of the job has its oldest wait.
func (p page) jobLines(item job, d detail, width int) []string {
	if d.wrappedWaits > 0 {
		d.maxWaits = max(d.maxWaits, 1)
	}
	switch {
	case len(item.waits) == 0:
		return []string{cut("  "+p.title(item), width)}
	case d.maxWaits == 0:
		return []string{cut(p.oneLine(item), width)}
	}
	lines := []string{cut("  "+p.title(item), width)}
	for i, w := range item.waits {
		if i == d.maxWaits {
			return append(lines, cut(faint.of(fmt.Sprintf("    and %d more", len(item.waits)-i)), width))
		}
		lines = append(lines, p.waitLines(w, detail{causeLines: d.causeLines, wrappedWaits: d.wrappedWaits - i},
			width)...)
	}
	return lines
}

// waitLines renders a wait, its time and its cause. A wrapped wait always has its cause.
func (p page) waitLines(w apply.Wait, d detail, width int) []string {
	fit, causeText := cutLine, d.causeLines
	if d.wrappedWaits > 0 {
		const leastWhy = 3
		fit, causeText = wrap, max(d.causeLines, leastWhy)
	}
	mark := "waiting"
	if w.IsRetry {
		mark = "retrying"
	}
	mark += " for " + clock(p.Now.Sub(w.Since))
	lines := fit("    "+mark+": "+waitText(w), width)
	lines[0] = strings.Replace(lines[0], mark, slow.of(mark), 1)
	for _, text := range w.Why[:min(causeText, len(w.Why))] {
		for _, line := range fit("      "+printable.Line(strings.TrimRight(text, " \n")), width) {
			lines = append(lines, faint.of(line))
		}
	}
	return lines
}

// oneLine renders a job in one line, with its longest wait.
func (p page) oneLine(item job) string {
	name := strong.of(strings.TrimPrefix(item.name(), "level "))
	if more := len(item.waits) - 1; more > 0 {
		name += fmt.Sprintf(" (+%d)", more)
	}
	if item.waits[0].IsRetry {
		name += " retrying"
	}
	return "  " + slow.of(fmt.Sprintf("%-6s", clock(p.Now.Sub(item.waits[0].Since)))) + " " + name + ": " +
		waitText(item.waits[0])
}
