package apply

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// hookFlags select the lifecycle hooks of Deployments that are skipped, and those that run again.
type hookFlags struct{ skip, rerun []string }

// The names of the flags.
const (
	skipHook  = "skip-hook"
	rerunHook = "rerun-hook"
)

func addHookFlags(command *cobra.Command, f *hookFlags, release *core.ReleaseFlags) {
	flags := command.Flags()
	flags.StringSliceVar(&f.skip, skipHook, nil,
		"continue without these lifecycle hooks, as NAMESPACE/NAME[:STAGE] of their Deployments; may be repeated")
	flags.StringSliceVar(&f.rerun, rerunHook, nil,
		"run these lifecycle hooks even if they have run for the pod template, as NAMESPACE/NAME[:STAGE]; may be "+
			"repeated")
	for _, name := range []string{skipHook, rerunHook} {
		_ = command.RegisterFlagCompletionFunc(name, completeHooks(release))
	}
}

// isSet reports whether any of the flags is set.
func (f *hookFlags) isSet() bool { return len(f.skip)+len(f.rerun) > 0 }

// checkHooks refuses flags that contradict each other.
func (f *applyFlags) checkHooks() error {
	switch {
	case !f.hooks.isSet():
		return nil
	case f.dryRun.IsEnabled():
		return core.Misusef("--%s, --%s: a dry run runs no hooks: leave them out", skipHook, rerunHook)
	case f.watch.isEnabled && len(f.hooks.rerun) > 0: // --watch may apply the release again after an outage
		return core.Misusef("--%s: not possible with --watch: run apply without --watch first", rerunHook)
	}
	return nil
}

// overrides returns the overrides of the hooks of a release, with the user by the name that the API server knows.
func (f *hookFlags) overrides(ctx context.Context, c *cluster.Cluster,
	release *payload.Payload) (map[kinds.ID]deploymenthook.Override, error) {
	if !f.isSet() {
		return nil, nil
	}
	names, stages := hooksOf(release)
	skip, err := deploymenthook.Select(names, stages, f.skip)
	if err != nil {
		return nil, core.Misusef("--%s: %w", skipHook, err)
	}
	rerun, err := deploymenthook.Select(names, stages, f.rerun)
	if err != nil {
		return nil, core.Misusef("--%s: %w", rerunHook, err)
	}
	by, overrides := cmp.Or(cluster.UserOf(ctx, c).Username, "an unknown user"), map[kinds.ID]deploymenthook.Override{}
	for id, stages := range skip {
		overrides[id] = deploymenthook.Override{Skip: stages, By: by}
	}
	for id, stages := range rerun {
		for _, stage := range stages {
			if slices.Contains(skip[id], stage) {
				return nil, core.Misusef("--%s and --%s both name the %s: remove one of them", skipHook, rerunHook,
					id.OrHook(string(stage)))
			}
		}
		overrides[id] = deploymenthook.Override{Skip: skip[id], Rerun: stages, By: by}
	}
	return overrides, nil
}

// hooksOf returns the Deployments of a release that have hooks, as NAMESPACE/NAME, and the stages of each.
func hooksOf(release *payload.Payload) (names []string, stages map[string][]deploymenthook.Stage) {
	stages = map[string][]deploymenthook.Stage{}
	for _, m := range release.Manifests {
		hooks, _ := deploymenthook.Parse(m.Object())
		if hooks != nil && !m.IsTombstone() {
			name := m.ID().Namespace + "/" + m.ID().Name
			names, stages[name] = append(names, name), hooks.Stages()
		}
	}
	return names, stages
}

// completeHooks completes the hooks of the release on the command line, also after a comma.
func completeHooks(release *core.ReleaseFlags) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string,
		toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(command.Context(), core.CompletionTimeout)
		defer cancel()
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		read, _, err := release.Parse(ctx, args[0], io.Discard)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		before := toComplete[:strings.LastIndex(toComplete, ",")+1]
		var found []cobra.Completion
		names, stages := hooksOf(read)
		for _, name := range names {
			found = append(found, before+name)
			for _, stage := range stages[name] {
				found = append(found, before+name+":"+string(stage))
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}
