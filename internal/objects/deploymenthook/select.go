package deploymenthook

import (
	"fmt"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// Select returns the hooks that a user has written as NAMESPACE/NAME[:STAGE] of their Deployments. Names are the
// Deployments with hooks, as NAMESPACE/NAME, and hooked has the stages of each.
func Select(names []string, hooked map[string][]Stage, written []string) (map[kinds.ID][]Stage, error) {
	selected := map[kinds.ID][]Stage{}
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
		case hasStage && !slices.Contains(stages, Stage(stage)):
			return nil, fmt.Errorf("%s has no %q hook: it has %s", id, printable.Line(stage), joinStages(stages))
		case hasStage:
			stages = []Stage{Stage(stage)}
		}
		selected[id] = append(slices.DeleteFunc(selected[id], func(s Stage) bool {
			return slices.Contains(stages, s)
		}), stages...)
	}
	return selected, nil
}

// joinStages returns stages as a list.
func joinStages(stages []Stage) string {
	texts := make([]string, len(stages))
	for i, stage := range stages {
		texts[i] = string(stage)
	}
	return strings.Join(texts, ", ")
}
