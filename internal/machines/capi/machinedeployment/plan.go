package machinedeployment

import (
	"cmp"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment/rolloutplan"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
)

// A rollout is the plan for the sets of a deployment.
type rollout struct {
	revision string // revision of the current set; empty if there is none
	changes  []setChange
}

// A setChange is a set to create or change.
type setChange struct {
	before  *clusterv1.MachineSet // nil if it is created
	desired *clusterv1.MachineSet
	step    rolloutplan.SetStep
}

// plan returns the next changes. Sets that are being deleted are left alone, but their machines are counted.
func (s *snapshot) plan() rollout {
	state := rolloutplan.RolloutState{Spec: s.spec(), Updating: rolloutplan.Updating(s.owned())}
	current := s.current()
	switch {
	case current != nil:
		state.New = ptr.To(s.stateOf(current))
	case s.made != nil:
		state.New = &rolloutplan.SetState{Name: s.made.Name}
	}
	old := s.old(current)
	for _, set := range old {
		state.Old = append(state.Old, s.stateOf(set))
	}
	return s.changes(rolloutplan.Make(state), current, old)
}

func (s *snapshot) spec() rolloutplan.RolloutSpec {
	return rolloutplan.SpecOf(&s.deployment.Spec)
}

// stateOf returns the state of a set for the plan.
func (s *snapshot) stateOf(set *clusterv1.MachineSet) rolloutplan.SetState {
	_, isMoving := set.Annotations[clusterv1.MachineSetMoveMachinesToMachineSetAnnotation]
	isCurrent := len(rolloutrules.Differences(set.Spec.Template.Spec, s.deployment.Spec.Template.Spec)) == 0
	return rolloutplan.SetState{
		Name: set.Name, Replicas: int(ptr.Deref(set.Spec.Replicas, 1)), InPlace: s.inPlace[set.UID],
		Acknowledged: rolloutrules.Names(set.Annotations[clusterv1.AcknowledgedMoveAnnotation]),
	}.WithMachines(s.machines[set.UID], isCurrent, isMoving)
}

// changes returns the sets that differ from the plan: the new one first.
func (s *snapshot) changes(plan rolloutplan.Plan, current *clusterv1.MachineSet,
	old []*clusterv1.MachineSet) rollout {
	var result rollout
	if plan.New != nil {
		revisions := newRevision(current, old)
		result.revision = revisions[clusterv1.RevisionAnnotation]
		desired := s.desired(cmp.Or(current, s.made), *plan.New, revisions, false)
		if current == nil || !isAsDesired(current, desired) {
			result.changes = append(result.changes, setChange{before: current, desired: desired, step: *plan.New})
		}
	}
	for i, set := range old {
		desired := s.desired(set, plan.Old[i], oldRevision(set), rolloutrules.IsOnDelete(&s.deployment.Spec))
		if set.DeletionTimestamp == nil && !isAsDesired(set, desired) {
			result.changes = append(result.changes, setChange{before: set, desired: desired, step: plan.Old[i]})
		}
	}
	return result
}

// historyAnnotation is on a set whose template was restored, and lists its earlier revisions.
const historyAnnotation = "machinedeployment.clusters.x-k8s.io/revision-history"

// newRevision returns the annotations with the revision of the current set: the highest one.
func newRevision(current *clusterv1.MachineSet, old []*clusterv1.MachineSet) map[string]string {
	highest := 0
	for _, set := range old {
		highest = max(highest, revisionOf(set))
	}
	if current == nil {
		return map[string]string{clusterv1.RevisionAnnotation: strconv.Itoa(highest + 1)}
	}
	annotations := oldRevision(current)
	if before := revisionOf(current); before <= highest {
		annotations[clusterv1.RevisionAnnotation] = strconv.Itoa(highest + 1)
		if before > 0 {
			history := append(rolloutrules.Names(annotations[historyAnnotation]), strconv.Itoa(before))
			annotations[historyAnnotation] = strings.Join(history, ",")
		}
	}
	return annotations
}

// oldRevision returns the annotations of a set's revisions, unchanged.
func oldRevision(set *clusterv1.MachineSet) map[string]string {
	annotations := map[string]string{}
	for _, key := range []string{clusterv1.RevisionAnnotation, historyAnnotation} {
		if value, has := set.Annotations[key]; has {
			annotations[key] = value
		}
	}
	return annotations
}

// revisionOf returns 0 for a set without a revision, or with one that can't be parsed.
func revisionOf(set *clusterv1.MachineSet) int {
	revision, _ := strconv.Atoi(set.Annotations[clusterv1.RevisionAnnotation])
	return revision
}

// A MachineSet's name is the prefix of its machines' names, and the value of labels.
const (
	longestName  = 63
	randomLength = 5
)

// newSet returns a set for the deployment's template, before it is created.
func (s *snapshot) newSet(suffix string) (*clusterv1.MachineSet, error) {
	hash, err := hashOf(rolloutFields(s.deployment.Spec.Template.Spec))
	if err != nil {
		return nil, err
	}
	prefix := s.deployment.Name + "-"
	set := &clusterv1.MachineSet{}
	set.Name = prefix[:min(len(prefix), longestName-randomLength)] + suffix
	set.Labels = map[string]string{clusterv1.MachineDeploymentUniqueLabel: hash + "-" + suffix}
	set.Finalizers = []string{clusterv1.MachineSetFinalizer} // a set is never removed before its machines
	set.Spec.Replicas = ptr.To[int32](0)
	set.Spec.Template.Spec = *s.deployment.Spec.Template.Spec.DeepCopy()
	return set, nil
}
