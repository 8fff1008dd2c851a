package draw

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/runlevel/runlevel/pkg/graph"
)

// Text writes the graph for a terminal: step by step, and in each step its parallel
// nodes.
func (p Picture) Text(out io.Writer) error {
	w := bufio.NewWriter(out)
	if p.Title != "" {
		fmt.Fprintln(w, p.Title)
	}
	for i, rank := range p.ranks() {
		fmt.Fprintf(w, "\nstep %d%s\n", i+1, rank.describe())
		width := rank.width()
		for _, b := range rank {
			fmt.Fprintf(w, "  %-6s %-*s  %s%s\n", b.level(), width, short(b.title(), maxTitle), b.count(), b.because())
			p.textManifests(w, b)
		}
	}
	if len(p.Dependencies) > 0 {
		fmt.Fprintf(w, "\n%d that the objects themselves imply\n", len(p.Dependencies))
	}
	for _, d := range p.Dependencies {
		fmt.Fprintf(w, "  %s waits for %s: %s\n", graph.Label(p.Graph.Tasks[d.Task]),
			graph.Label(p.Graph.Tasks[d.Needs]), d.Why)
	}
	return w.Flush()
}

const maxTitle = 48

func (r rank) describe() string {
	switch {
	case len(r) > 1:
		return fmt.Sprintf(": %d nodes side by side", len(r))
	case r[0].isBarrier:
		return ": a Job, alone"
	default:
		return ""
	}
}

func (r rank) width() int {
	width := 0
	for _, b := range r {
		width = max(width, len([]rune(short(b.title(), maxTitle))))
	}
	return width
}

// textManifests lists the steps of a box, tombstones marked.
func (p Picture) textManifests(w io.Writer, b box) {
	if !p.Manifests {
		return
	}
	for _, task := range b.tasks {
		mark, note := " ", ""
		switch {
		case task.IsTombstone() && b.isRed():
			mark = "✗"
		case task.IsTombstone():
			note = later
		}
		for _, step := range StepsOf(task) {
			fmt.Fprintf(w, "       %s %s%s\n", mark, step.Label(), note)
		}
	}
}

// short cuts a text to a number of characters.
func short(text string, length int) string {
	runes := []rune(text)
	if len(runes) <= length {
		return text
	}
	return strings.TrimRight(string(runes[:length-1]), ", ") + "…"
}
