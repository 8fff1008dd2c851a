package state

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// The maximum number of lines in text: for the whole output, and for each object.
const (
	maxLines  = 40
	maxOfEach = 8
)

// releases prints the state of releases as a whole.
func (f *whyFlags) releases(ctx context.Context, streams core.Streams) error {
	if f.namespace != "" {
		return core.Misusef("--namespace is the namespace of an object: name an object, or omit --namespace")
	}
	if _, err := f.release.Options(streams.Err); err != nil {
		return err
	}
	reader, err := connect(ctx, &f.cluster)
	if err != nil {
		return err
	}
	answers, err := reader.Explain(ctx, f.release.Name)
	if err != nil {
		return err
	}
	if err := f.format.PrintWhole(streams.Out, answers, func(out io.Writer) error {
		return printReleases(out, answers)
	}); err != nil {
		return err
	}
	return core.FailIf(slices.ContainsFunc(answers, func(w *why.ReleaseAnswer) bool { return !w.Done }))
}

// printReleases prints releases as text, a screenful at most.
func printReleases(out io.Writer, answers []*why.ReleaseAnswer) error {
	var lines []string
	for i, answer := range answers {
		head := headOf(answer)
		rest := maxLines - len(lines) - len(head) - (len(answers)-i-1)*2
		lines = append(lines, append(head, objectLinesOf(answer.Objects, rest)...)...)
	}
	return core.PrintLines(out, lines)
}

// headOf returns lines on a release, without its objects.
func headOf(w *why.ReleaseAnswer) []string {
	switch {
	case w.IsUnrecorded && len(w.Messages) == 0:
		return []string{"not known: " + w.Unknown[0]}
	case w.IsUnrecorded:
		return append([]string{w.Messages[0].Text}, messageLines(w.Messages[1:], w.Unknown)...)
	default:
		return append([]string{titleOfRelease(w)}, messageLines(w.Messages, w.Unknown)...)
	}
}

// titleOfRelease returns the state of a release in one line.
func titleOfRelease(w *why.ReleaseAnswer) string {
	title := "release " + w.Release
	if w.Version != "" {
		title += " " + w.Version
	}
	if w.Done {
		return printable.Line(title + ": all objects are ready")
	}
	var counts []string
	for _, state := range []why.ObjectState{why.Absent, why.NotReady, why.Outdated, why.Changed, why.Terminating,
		why.Kept, why.Unknown, why.Blocked} {
		if n := w.Counts[state]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, state.Text()))
		}
	}
	if len(counts) == 0 && w.NotKept != nil && len(w.Unknown) == 0 {
		counts = []string{"no process keeps it in place"}
	}
	if len(counts) == 0 {
		counts = []string{"cannot determine whether all objects are ready"}
	}
	return printable.Line(title + ": " + strings.Join(counts, "; "))
}

// objectLinesOf returns lines on the objects of a release, about as many as there is room for.
// Objects with the same cause are folded.
func objectLinesOf(objects []*why.Answer, room int) []string {
	var lines []string
	shown := 0
	for _, answers := range core.Fold(objects, answerCause) {
		first, more := answers.First, len(answers.Others)
		own := messageLines(first.Messages, nil)
		if len(own) > maxOfEach {
			own = append(own[:maxOfEach-1], "    …")
		}
		if first.State == why.Blocked || len(lines) > 0 && len(lines)+len(own)+1 > room {
			break
		}
		name := first.Object.String()
		if more > 0 {
			name += fmt.Sprintf(" and %d more", more)
		}
		lines = append(lines, printable.Line(name+": "+first.State.Text()))
		lines = append(lines, own...)
		shown += 1 + more
	}
	if rest := len(objects) - shown; rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more: -o json lists all", rest))
	}
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}

// answerCause returns the state and the messages of an object, without its name.
func answerCause(a *why.Answer) string {
	return string(a.State) + "\n" + a.Object.Without(strings.Join(messageLines(a.Messages, nil), "\n"))
}
