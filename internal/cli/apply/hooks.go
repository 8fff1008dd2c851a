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

// overrides returns the overrides of the hooks of a release.
func (f *hookFlags) overrides(release *payload.Payload) (map[kinds.ID]deploymenthook.Override, error) {
	if !f.isSet() {
		return nil, nil
	}
	hooked, overrides := hookedDeployments(release), map[kinds.ID]deploymenthook.Override{}
	for _, value := range f.skip {
		id, stages, err := findHooks(release, hooked, strings.TrimSpace(value))
		if err != nil {
			return nil, core.Misusef("--%s: %w", skipHook, err)
		}
		override := overrides[id]
		override.Skip = union(override.Skip, stages)
		overrides[id] = override
	}
	for _, value := range f.rerun {
		id, stages, err := findHooks(release, hooked, strings.TrimSpace(value))
		if err != nil {
			return nil, core.Misusef("--%s: %w", rerunHook, err)
		}
		override := overrides[id]
		override.Rerun = union(override.Rerun, stages)
		overrides[id] = override
	}
	return overrides, checkOverrides(overrides)
}

// checkOverrides returns an error if a hook is both skipped and run again.
func checkOverrides(overrides map[kinds.ID]deploymenthook.Override) error {
	for id, override := range overrides {
		for _, stage := range override.Skip {
			if slices.Contains(override.Rerun, stage) {
				return core.Misusef("--%s and --%s both name the %s: leave one of them out", skipHook, rerunHook, id.OrHook(string(stage)))
			}
		}
	}
	return nil
}

// union returns the stages that are in either list, in the order of a rollout.
func union(a, b []deploymenthook.Stage) []deploymenthook.Stage {
	return slices.DeleteFunc(slices.Clone(deploymenthook.Stages), func(stage deploymenthook.Stage) bool {
		return !slices.Contains(a, stage) && !slices.Contains(b, stage)
	})
}

// A hookedDeployment is a Deployment of a release with its hooks.
type hookedDeployment struct {
	id     kinds.ID
	stages []deploymenthook.Stage
}

// flag returns the Deployment as NAMESPACE/NAME.
func (h hookedDeployment) flag() string { return h.id.Namespace + "/" + h.id.Name }

// String returns the Deployment with the stages of its hooks.
func (h hookedDeployment) String() string {
	return printable.Line(h.flag()) + " (" + core.Join(h.stages) + ")"
}

// hookedDeployments returns the Deployments of a release that have hooks.
func hookedDeployments(release *payload.Payload) []hookedDeployment {
	var all []hookedDeployment
	for _, m := range release.Manifests {
		hooks, _ := deploymenthook.Parse(m.Object())
		if hooks == nil || m.IsTombstone() {
			continue
		}
		stages := slices.DeleteFunc(slices.Clone(deploymenthook.Stages), func(stage deploymenthook.Stage) bool { return hooks.Of(stage) == nil })
		all = append(all, hookedDeployment{m.ID(), stages})
	}
	return all
}

// findHooks returns the Deployment that the value of a flag names, and the stages.
func findHooks(release *payload.Payload, hooked []hookedDeployment, value string) (kinds.ID, []deploymenthook.Stage, error) {
	of, stage, hasStage := strings.Cut(value, ":")
	namespace, name, isNamed := strings.Cut(of, "/")
	if !isNamed || namespace == "" || name == "" || strings.Contains(name, "/") {
		return kinds.ID{}, nil, fmt.Errorf("%q names no Deployment: write NAMESPACE/NAME, with :pre, :mid or :post for one hook only", printable.Line(value))
	}
	at := slices.IndexFunc(hooked, func(deployment hookedDeployment) bool { return deployment.flag() == of })
	if at < 0 {
		return kinds.ID{}, nil, fmt.Errorf("%s: %s", unhookedReason(release, namespace, name), listHooked(hooked))
	}
	found := hooked[at]
	if !hasStage {
		return found.id, found.stages, nil
	}
	if !slices.Contains(found.stages, deploymenthook.Stage(stage)) {
		return kinds.ID{}, nil, fmt.Errorf("%s has no %q hook: it has %s", found.id, printable.Line(stage), core.Join(found.stages))
	}
	return found.id, []deploymenthook.Stage{deploymenthook.Stage(stage)}, nil
}

// unhookedReason returns why there is no Deployment of that name with hooks.
func unhookedReason(release *payload.Payload, namespace, name string) string {
	id := kinds.ID{Group: kinds.Deployment.Group, Kind: kinds.Deployment.Kind, Namespace: namespace, Name: name}
	for _, m := range release.Manifests {
		if m.ID() == id && !m.IsTombstone() {
			return id.String() + " has no hooks"
		}
	}
	return "the release has no " + id.String()
}

// listHooked lists the Deployments with hooks as text.
func listHooked(hooked []hookedDeployment) string {
	if len(hooked) == 0 {
		return "no Deployment of the release has any"
	}
	names := make([]string, len(hooked))
	for i, deployment := range hooked {
		names[i] = deployment.String()
	}
	return "these have: " + printable.Few(names, 5)
}

// addUser adds the user to overrides, by the name that the API server knows.
func addUser(ctx context.Context, c *cluster.Cluster, overrides map[kinds.ID]deploymenthook.Override) {
	if len(overrides) == 0 {
		return
	}
	by := cmp.Or(cluster.UserOf(ctx, c), "an unknown user")
	for id, override := range overrides {
		override.By = by
		overrides[id] = override
	}
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
		for _, deployment := range hookedDeployments(read) {
			found = append(found, before+deployment.flag())
			for _, stage := range deployment.stages {
				found = append(found, before+deployment.flag()+":"+string(stage))
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}
