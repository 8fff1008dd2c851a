package review

import (
	"context"
	"slices"

	"github.com/spf13/pflag"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/review/plan/show"
	"github.com/runlevel/runlevel/internal/source"
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
func (f *planFlags) planCluster(ctx context.Context, args []string, streams core.Streams) (difference, error) {
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
