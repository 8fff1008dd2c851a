package machinedeployment

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment/rolloutplan"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
)

// A rollout is what is to be done with the sets of a deployment.
type rollout struct {
	revision string // of the current set, empty if there is none
	changes  []setChange
}

// A setChange is a set that is to be made or changed.
type setChange struct {
	before  *clusterv1.MachineSet // nil if it is to be made
	desired *clusterv1.MachineSet
	step    rolloutplan.SetStep
}

// plan returns what is to be done. Sets that are being deleted are left alone, but for their machines, which count.
func (s *deploymentSnapshot) plan() rollout {
	state := rolloutplan.RolloutState{Spec: s.spec()}
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
	for _, machine := range s.owned() {
		if rolloutrules.IsUpdating(machine) {
			state.Updating = append(state.Updating, machine.Name)
		}
	}
	return s.changes(rolloutplan.Make(state), current, old)
}

func (s *deploymentSnapshot) spec() rolloutplan.RolloutSpec {
	spec := s.deployment.Spec
	surge, unavailable, _ := rolloutrules.Limits(&spec) // which is valid
	return rolloutplan.RolloutSpec{
		Replicas: int(*spec.Replicas), MaxSurge: surge, MaxUnavailable: unavailable,
		IsOnDelete: rolloutrules.IsOnDelete(&spec), IsPaused: ptr.Deref(spec.Paused, false),
	}
}

// stateOf returns a set as the plan sees it. Its machines are counted as they are, and not as its status has them, which
// lags behind.
func (s *deploymentSnapshot) stateOf(set *clusterv1.MachineSet) rolloutplan.SetState {
	state := rolloutplan.SetState{
		Name: set.Name, Replicas: int(ptr.Deref(set.Spec.Replicas, 1)), Current: len(s.machines[set.UID]),
		InPlace: s.inPlace[set.UID], Acknowledged: rolloutrules.Names(set.Annotations[clusterv1.AcknowledgedMoveAnnotation]),
	}
	living := 0
	for _, machine := range s.machines[set.UID] {
		if machine.DeletionTimestamp == nil {
			living++
		}
		if rolloutrules.IsAvailable(machine) {
			state.Available++
		}
		if rolloutrules.IsAvailable(machine) && len(rolloutrules.Differences(set.Spec.Template.Spec, s.deployment.Spec.Template.Spec)) == 0 {
			state.UpToDate++
		}
		if rolloutrules.IsArriving(machine) {
			state.Arrived = append(state.Arrived, machine.Name)
		}
	}
	if _, isMoving := set.Annotations[clusterv1.MachineSetMoveMachinesToMachineSetAnnotation]; isMoving {
		state.Unmoved = max(0, living-state.Replicas)
	}
	return state
}

// changes returns the sets that are not as the plan wants them: the new one first.
func (s *deploymentSnapshot) changes(plan rolloutplan.RolloutPlan, current *clusterv1.MachineSet, old []*clusterv1.MachineSet) rollout {
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

// historyAnnotation is on a set whose template came back, and lists the revisions that it had.
const historyAnnotation = "machinedeployment.clusters.x-k8s.io/revision-history"

// newRevision returns the annotations that say which revision of the deployment the current set is: the highest.
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

// oldRevision returns the annotations of a set's revisions, as they are.
func oldRevision(set *clusterv1.MachineSet) map[string]string {
	annotations := maps.Clone(set.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return !slices.Contains([]string{clusterv1.RevisionAnnotation, historyAnnotation}, key)
	})
	if annotations == nil {
		annotations = map[string]string{}
	}
	return annotations
}

// revisionOf returns 0 for a set that has none, or one that can't be read.
func revisionOf(set *clusterv1.MachineSet) int {
	revision, _ := strconv.Atoi(set.Annotations[clusterv1.RevisionAnnotation])
	return revision
}

// A MachineSet's name is the beginning of its machines' names, and the value of labels.
const (
	longestName  = 63
	randomLength = 5
)

// newSet returns a set for the deployment's template, before it is made.
func (s *deploymentSnapshot) newSet(suffix string) (*clusterv1.MachineSet, error) {
	hash, err := hashOf(rolloutFields(s.deployment.Spec.Template.Spec))
	if err != nil {
		return nil, err
	}
	prefix := s.deployment.Name + "-"
	set := &clusterv1.MachineSet{}
	set.Name = prefix[:min(len(prefix), longestName-randomLength)] + suffix
	set.Labels = map[string]string{clusterv1.MachineDeploymentUniqueLabel: hash + "-" + suffix}
	set.Finalizers = []string{clusterv1.MachineSetFinalizer} // a set never goes without its machines
	set.Spec.Replicas = ptr.To[int32](0)
	set.Spec.Template.Spec = *s.deployment.Spec.Template.Spec.DeepCopy()
	return set, nil
}
