package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// How many lines are printed for people: a screenful, and of one object no more than a part of it.
const (
	mostLines  = 40
	mostOfEach = 8
)

// releases says how releases stand as a whole.
func (f *whyFlags) releases(ctx context.Context, streams Streams) error {
	if f.namespace != "" {
		return misuse{errors.New("--namespace is that of an object: name one, or leave it out")}
	}
	if _, err := f.release.options(streams.Err); err != nil {
		return err
	}
	c, err := f.cluster.connect(ctx)
	if err != nil {
		return err
	}
	records, unread := f.cluster.knownRecords(ctx, c, f.release.name)
	if unread != "" || len(records) == 0 {
		return f.noReleases(ctx, c, streams.Out, unread)
	}
	wholes := []*why.ReleaseAnswer{}
	for _, record := range records {
		wholes = append(wholes, why.ExplainRelease(ctx, c, record, f.cluster.namespace))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := f.format.printWhole(streams.Out, wholes, func(out io.Writer) error { return printWholes(out, wholes) }); err != nil {
		return err
	}
	return failIf(slices.ContainsFunc(wholes, func(w *why.ReleaseAnswer) bool { return !w.Done }))
}

// noReleases says that there is no record of a release, or why that is not known.
func (f *whyFlags) noReleases(ctx context.Context, c *cluster.Cluster, out io.Writer, unread string) error {
	answer := &why.ReleaseAnswer{Release: cmp.Or(f.release.name, payload.DefaultName), Messages: []why.Message{}, Objects: []*why.Answer{}}
	lines := []string{"not known: " + unread}
	if unread != "" {
		answer.Unknown = []string{unread}
	} else {
		none := f.cluster.noneApplied(f.release.name)
		lost, err := f.cluster.findLost(ctx, c, f.release.name)
		if err != nil {
			return err
		}
		answer.Messages = append(answer.Messages, why.Message{Text: none})
		for _, lostRelease := range lost {
			answer.Messages = append(answer.Messages, why.Message{Text: "release " + lostRelease.title() + ": " + lostRelease.String()})
		}
		if answer.NotKept, answer.Unknown = why.ExplainNotKept(ctx, c, f.cluster.lock(c, answer.Release)); answer.NotKept != nil {
			answer.Messages = append(answer.Messages, answer.NotKept.Sentence())
		}
		lines = append([]string{none}, said(answer.Messages[1:], answer.Unknown)...)
	}
	err := f.format.print(out, []*why.ReleaseAnswer{answer}, func(out io.Writer) error { return printLines(out, lines) })
	return cmp.Or(err, failIf(true))
}

// printWholes prints a screenful on releases for people.
func printWholes(out io.Writer, wholes []*why.ReleaseAnswer) error {
	var lines []string
	for i, whole := range wholes {
		own := append([]string{titleOfWhole(whole)}, said(whole.Messages, whole.Unknown)...)
		rest := mostLines - len(lines) - len(own) - (len(wholes)-i-1)*2
		lines = append(lines, append(own, objectLinesOf(whole.Objects, rest)...)...)
	}
	return printLines(out, lines)
}

// titleOfWhole says how a release stands, in one line.
func titleOfWhole(w *why.ReleaseAnswer) string {
	title := "release " + w.Release
	if w.Version != "" {
		title += " " + w.Version
	}
	if w.Done {
		return printable.Line(title + ": all of it is there and ready")
	}
	var counts []string
	for _, state := range []why.ObjectState{why.Absent, why.NotReady, why.Outdated, why.Changed, why.Terminating, why.Kept, why.Unknown, why.Blocked} {
		if n := w.Counts[state]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, stands[state]))
		}
	}
	if len(counts) == 0 && w.NotKept != nil && len(w.Unknown) == 0 {
		counts = []string{"no process keeps it in place"}
	}
	if len(counts) == 0 {
		counts = []string{"it is not known whether all of it is there and ready"}
	}
	return printable.Line(title + ": " + strings.Join(counts, "; "))
}

// objectLinesOf returns lines on the objects of a release, about as many as there is room for.
// Objects with the same trouble are told of once.
func objectLinesOf(objects []*why.Answer, room int) []string {
	var lines []string
	told := 0
	for _, answers := range folded(objects, trouble) {
		first, more := answers.first, len(answers.others)
		own := said(first.Messages, nil)
		if len(own) > mostOfEach {
			own = append(own[:mostOfEach-1], "    …")
		}
		if first.State == why.Blocked || len(lines) > 0 && len(lines)+len(own)+1 > room {
			break
		}
		name := first.Object.String()
		if more > 0 {
			name += fmt.Sprintf(" and %d more", more)
		}
		lines = append(lines, printable.Line(name+": "+stands[first.State]))
		lines = append(lines, own...)
		told += 1 + more
	}
	if rest := len(objects) - told; rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more: -o json has them all", rest))
	}
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}

// trouble is what is to be said of an object, but for its name.
func trouble(a *why.Answer) string {
	return string(a.State) + "\n" + a.Object.Without(strings.Join(said(a.Messages, nil), "\n"))
}
