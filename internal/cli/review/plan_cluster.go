package review

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/review/plan/show"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Flags of an apply, which require --cluster, all flags that require it, and flags that exclude it.
var (
	flagsOfApply    = []string{"mode", "unknown-fields", "adopt-from", "remove-foreign-fields", "create-namespace"}
	flagsOfCluster  = append([]string{"kubeconfig", "context", "record-namespace"}, flagsOfApply...)
	flagsOfReleases = []string{"previous-version", "previous-image", "component", "into", "write-tombstones"}
)

// checkFlags refuses flags that have no effect, with or without --cluster. A version that was applied is read from a
// cluster, too.
func (f *planFlags) checkFlags(flags *pflag.FlagSet, releases ...string) error {
	useless, reason := flagsOfCluster, "it needs --cluster, and this plan compares two releases"
	if slices.ContainsFunc(releases, source.IsApplied) {
		useless = flagsOfApply
	}
	if f.ofCluster {
		useless, reason = flagsOfReleases, "it is for two releases, and --cluster compares one with the cluster"
	}
	var wrong error
	flags.Visit(func(flag *pflag.Flag) {
		if wrong == nil && slices.Contains(useless, flag.Name) {
			wrong = core.Misusef("--%s: %s", flag.Name, reason)
		}
	})
	return wrong
}

// planCluster prints the plan of an apply to a cluster.
func (f *planFlags) planCluster(ctx context.Context, args []string, streams core.Streams) (planDifference, error) {
	preview, err := f.Preview(ctx, args[0], streams.Err)
	if err != nil {
		return noDifference, err
	}
	p, err := preview.Plan(ctx, streams.Err)
	if err != nil {
		return noDifference, err
	}
	core.DropWholeObjects(p)
	return differenceOf(p, preview.IsRefused()),
		f.print(streams.Out, show.Printer{Plan: p, To: args[0], All: f.all, Command: f.command})
}

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
