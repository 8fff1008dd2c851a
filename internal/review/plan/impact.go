package plan

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/fields"
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
func (o *ObjectPlan) findRestart(before, planned map[string]any) {
	if !slices.Contains(restarting, o.GroupKind()) || o.Action != Changed || o.CreateOnly {
		return
	}
	hasPods := replicasOf(before) > 0 && replicasOf(planned) > 0
	template, _, _ := unstructured.NestedMap(planned, "spec", "template")
	isRolled := !isHeld(planned) && len(o.Refused()) == 0 &&
		slices.ContainsFunc(o.Changes, func(change FieldChange) bool {
			return strings.HasPrefix(change.Path.String(), "spec.template") &&
				!fields.IsSamePod(change.Difference, template)
		})
	o.Restarts = hasPods && (o.Recreated || isRolled)
}

// replicasOf returns the number of pods of a workload: 1 unless it is set.
func replicasOf(workload map[string]any) int64 {
	replicas, isSet, _ := unstructured.NestedInt64(workload, "spec", "replicas")
	if !isSet {
		return 1
	}
	return replicas
}

// isHeld reports whether the controller of a workload keeps its pods when their template changes.
func isHeld(workload map[string]any) bool {
	strategy, _, _ := unstructured.NestedString(workload, "spec", "updateStrategy", "type")
	isPaused, _, _ := unstructured.NestedBool(workload, "spec", "paused")
	first, _, _ := unstructured.NestedInt64(workload, "spec", "updateStrategy", "rollingUpdate", "partition")
	return strategy == "OnDelete" || isPaused || first > 0 && first >= replicasOf(workload)
}
