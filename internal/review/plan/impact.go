package plan

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// An Impact is what users of a release notice first of its update.
type Impact struct {
	Restarts    []kinds.ID `json:"restarts"`    // workloads whose pods are replaced
	LosesData   []kinds.ID `json:"losesData"`   // objects whose data are lost
	Unreachable []kinds.ID `json:"unreachable"` // empty in the plan of a cluster, which does not know it
}

// impact returns the impact of the steps and of the warnings.
func (p *Plan) impact() Impact {
	found := Impact{Restarts: []kinds.ID{}, LosesData: []kinds.ID{}, Unreachable: []kinds.ID{}}
	for _, step := range p.Steps {
		if step.Restarts {
			found.Restarts = append(found.Restarts, step.ID)
		}
	}
	lost := map[kinds.ID][]kinds.ID{}
	for _, step := range slices.Concat(p.Steps, p.Absent) {
		lost[step.ID] = append(lost[step.ID], step.Loses...)
	}
	for _, warning := range p.Warnings {
		switch ids := lost[warning.ID]; {
		case warning.Reason == Unreachable:
			found.Unreachable = appendNew(found.Unreachable, warning.ID)
		case warning.Reason == DataLost && len(ids) == 0:
			found.LosesData = appendNew(found.LosesData, warning.ID)
		case warning.Reason == DataLost:
			found.LosesData = appendNew(found.LosesData, ids...)
		}
	}
	return found
}

// appendNew appends objects that a list does not have.
func appendNew(all []kinds.ID, more ...kinds.ID) []kinds.ID {
	for _, id := range more {
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all
}

// restarting are the kinds of workloads that replace their pods when their template changes.
var restarting = []schema.GroupKind{kinds.Deployment, kinds.StatefulSet, kinds.DaemonSet}

// findRestart finds out whether the pods of a changed workload are replaced.
func (o *ObjectPlan) findRestart(planned map[string]any) {
	if !slices.Contains(restarting, o.GroupKind()) || o.Action != Changed || o.CreateOnly {
		return
	}
	strategy, _, _ := unstructured.NestedString(planned, "spec", "updateStrategy", "type")
	isPaused, _, _ := unstructured.NestedBool(planned, "spec", "paused")
	isRolled := strategy != "OnDelete" && !isPaused && len(o.Refused()) == 0 &&
		slices.ContainsFunc(o.Changes, func(change FieldChange) bool {
			return strings.HasPrefix(change.Path.String(), "spec.template")
		})
	o.Restarts = o.Recreated || isRolled
}
