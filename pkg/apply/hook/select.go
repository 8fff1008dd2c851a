package hook

import (
	"fmt"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Names returns the Deployments of a release that have hooks, as NAMESPACE/NAME, and the stages of each.
func Names(release *payload.Payload) (names []string, stages map[string][]deploymenthook.Stage) {
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

// Select returns the hooks of a release that a user has written as NAMESPACE/NAME[:STAGE] of their Deployments.
func Select(release *payload.Payload, written []string) (map[kinds.ID][]deploymenthook.Stage, error) {
	names, hooked := Names(release)
	selected := map[kinds.ID][]deploymenthook.Stage{}
	for _, text := range written {
		deployment, stage, hasStage := strings.Cut(strings.TrimSpace(text), ":")
		namespace, name, _ := strings.Cut(deployment, "/")
		id := kinds.NewID(kinds.Deployment, namespace, name)
		stages := hooked[deployment]
		switch {
		case namespace == "" || name == "" || strings.Contains(name, "/"):
			return nil, fmt.Errorf("%q names no Deployment: write NAMESPACE/NAME, with :pre, :mid or :post for one "+
				"hook only", printable.Line(text))
		case stages == nil && len(names) == 0:
			return nil, fmt.Errorf("%s has no hooks in the release: no Deployment has any", id)
		case stages == nil:
			return nil, fmt.Errorf("%s has no hooks in the release: these have: %s", id, printable.Few(names, 5))
		case hasStage && !slices.Contains(stages, deploymenthook.Stage(stage)):
			return nil, fmt.Errorf("%s has no %q hook: it has %s", id, printable.Line(stage), joined(stages))
		case hasStage:
			stages = []deploymenthook.Stage{deploymenthook.Stage(stage)}
		}
		selected[id] = append(slices.DeleteFunc(selected[id], func(s deploymenthook.Stage) bool {
			return slices.Contains(stages, s)
		}), stages...)
	}
	return selected, nil
}

// joined lists stages.
func joined(stages []deploymenthook.Stage) string {
	texts := make([]string, len(stages))
	for i, stage := range stages {
		texts[i] = string(stage)
	}
	return strings.Join(texts, ", ")
}
