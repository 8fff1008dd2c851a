package review

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/review/plan/show"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// place puts a component into a release, and reads the old release, if OLD is set.
func (f *planFlags) place(ctx context.Context, args []string, view *show.Printer,
	progress io.Writer) (both releasePair, err error) {
	before, after, err := f.sides()
	if err != nil {
		return both, err
	}
	released := &before
	if len(args) == 2 {
		if both.old, _, err = before.LoadAs(ctx, "the old release", args[0], progress); err != nil {
			return both, err
		}
		released = nil
		if f.Release.Capabilities != "" {
			after.Before = both.old
		}
	}
	ref := args[len(args)-1]
	p, err := f.component.Place(ctx, ref, &after, released, progress)
	if err != nil {
		return both, err
	}
	view.To = f.component.Label(ref)
	view.PathOf = func(file string) string { return p.PathOf(core.FolderOf(ref), file) }
	own, others := p.OwnProblems()
	if err := payload.Refuse(own); err != nil {
		return both, core.ProblemsError(view.To, err)
	}
	core.Warn(progress, core.ProblemLines(own))
	others = slices.DeleteFunc(others, payload.Problem.IsWarning)
	if count := len(others); count > 0 {
		fmt.Fprintf(progress, "warning: files of other components of %s have %s, and are in the plan as far as they "+
			"can be read\n", f.component.Into, printable.Count(count, "problem"))
	}
	both = releasePair{cmp.Or(both.old, p.Released), p.After, p.AfterProblems}
	core.WarnIfEmpty(progress, p.After)
	return both, f.Release.CheckFilters(both.old, both.next)
}
