package lint

import (
	"reflect"

	"github.com/runlevel/runlevel/pkg/lifecycle"
)

// checkHooksNotRun looks for hooks that are new on Deployments whose rollout this update does not start.
func checkHooksNotRun(s *subject, r *reporter) error {
	for _, m := range s.normal {
		before := s.hookedBefore(m)
		if before == nil {
			continue
		}
		hooks, _ := lifecycle.Parse(m.Object())
		had, _ := lifecycle.Parse(before.Object())
		for _, stage := range lifecycle.Stages {
			if hooks.Of(stage) != nil && had.Of(stage) == nil {
				r.field(m, annotation(lifecycle.Annotation), "the hook %s is new, and spec.template is as in the previous payload: the hook does not run before the template changes", stage)
			}
		}
	}
	return nil
}

// hookedBefore returns a Deployment with hooks as the previous payload has it, if its template is the same; else nil.
func (s *subject) hookedBefore(m *manifest) *manifest {
	if _, isHooked := m.annotations[lifecycle.Annotation]; !isHooked {
		return nil
	}
	for _, before := range s.previous.byID[m.id] {
		if !before.isTombstone && s.shareCluster(m, before) && reflect.DeepEqual(before.get("spec", "template"), m.get("spec", "template")) {
			return before
		}
	}
	return nil
}
