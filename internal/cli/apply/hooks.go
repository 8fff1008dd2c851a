package apply

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
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
	flags.StringSliceVar(&f.skip, skipHook, nil, "go on without these lifecycle hooks, as NAMESPACE/NAME[:STAGE] of their Deployments; may be repeated")
	flags.StringSliceVar(&f.rerun, rerunHook, nil, "run these lifecycle hooks although they have run for the pod template, as NAMESPACE/NAME[:STAGE]; may be repeated")
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
		return core.Misusef("--%s: it is for one apply, and --watch goes on: apply without --watch first", rerunHook)
	}
	return nil
}

// overrides returns the overrides of the hooks of a release, with the user by the name that the API server knows.
func (f *hookFlags) overrides(ctx context.Context, c *cluster.Cluster, release *payload.Payload) (map[kinds.ID]deploymenthook.Override, error) {
	if !f.isSet() {
		return nil, nil
	}
	skip, err := selectHooks(release, f.skip)
	if err != nil {
		return nil, core.Misusef("--%s: %w", skipHook, err)
	}
	rerun, err := selectHooks(release, f.rerun)
	if err != nil {
		return nil, core.Misusef("--%s: %w", rerunHook, err)
	}
	by, overrides := cmp.Or(cluster.UserOf(ctx, c), "an unknown user"), map[kinds.ID]deploymenthook.Override{}
	for id, stages := range skip {
		overrides[id] = deploymenthook.Override{Skip: stages, By: by}
	}
	for id, stages := range rerun {
		for _, stage := range stages {
			if slices.Contains(skip[id], stage) {
				return nil, core.Misusef("--%s and --%s both name the %s: leave one of them out", skipHook, rerunHook, id.OrHook(string(stage)))
			}
		}
		overrides[id] = deploymenthook.Override{Skip: skip[id], Rerun: stages, By: by}
	}
	return overrides, nil
}

// hookedDeployments returns the stages of the Deployments of a release that have hooks, and their names as NAMESPACE/NAME.
func hookedDeployments(release *payload.Payload) (stages map[kinds.ID][]deploymenthook.Stage, names []string) {
	stages = map[kinds.ID][]deploymenthook.Stage{}
	for _, m := range release.Manifests {
		hooks, _ := deploymenthook.Parse(m.Object())
		if hooks != nil && !m.IsTombstone() {
			stages[m.ID()] = hooks.Stages()
			names = append(names, m.ID().Namespace+"/"+m.ID().Name)
		}
	}
	return stages, names
}

// deploymentID returns the ID of a Deployment that is written as NAMESPACE/NAME.
func deploymentID(written string) (id kinds.ID, isNamed bool) {
	namespace, name, isNamed := strings.Cut(written, "/")
	id = kinds.ID{Group: kinds.Deployment.Group, Kind: kinds.Deployment.Kind, Namespace: namespace, Name: name}
	return id, isNamed && namespace != "" && name != "" && !strings.Contains(name, "/")
}

// selectHooks returns the hooks that the values of a flag name.
func selectHooks(release *payload.Payload, values []string) (map[kinds.ID][]deploymenthook.Stage, error) {
	hooked, names := hookedDeployments(release)
	selected := map[kinds.ID][]deploymenthook.Stage{}
	for _, value := range values {
		of, stage, hasStage := strings.Cut(strings.TrimSpace(value), ":")
		id, isNamed := deploymentID(of)
		stages := hooked[id]
		switch {
		case !isNamed:
			return nil, fmt.Errorf("%q names no Deployment: write NAMESPACE/NAME, with :pre, :mid or :post for one hook only", printable.Line(value))
		case stages == nil && len(names) == 0:
			return nil, fmt.Errorf("%s has no hooks in the release: no Deployment has any", id)
		case stages == nil:
			return nil, fmt.Errorf("%s has no hooks in the release: these have: %s", id, printable.Few(names, 5))
		case hasStage && !slices.Contains(stages, deploymenthook.Stage(stage)):
			return nil, fmt.Errorf("%s has no %q hook: it has %s", id, printable.Line(stage), core.Join(stages))
		case hasStage:
			stages = []deploymenthook.Stage{deploymenthook.Stage(stage)}
		}
		selected[id] = append(slices.DeleteFunc(selected[id], func(s deploymenthook.Stage) bool { return slices.Contains(stages, s) }), stages...)
	}
	return selected, nil
}

// completeHooks completes the hooks of the release on the command line, also after a comma.
func completeHooks(release *core.ReleaseFlags) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
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
		stages, names := hookedDeployments(read)
		for _, name := range names {
			found = append(found, before+name)
			id, _ := deploymentID(name)
			for _, stage := range stages[id] {
				found = append(found, before+name+":"+string(stage))
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}
