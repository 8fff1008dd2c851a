package machinedeployment

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment/rolloutplan"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// A snapshot is the observed state of a MachineDeployment, its MachineSets and their Machines, and the plan. The sets
// and Machines belong to the cache: they must not be changed.
type snapshot struct {
	time       time.Time
	deployment *clusterv1.MachineDeployment
	cluster    *clusterv1.Cluster // nil if there is none
	selector   labels.Selector
	// unset is the value to set in spec.replicas if the field is not set; nil if it is.
	unset *int32
	// invalid is the reason why the deployment is invalid, so that no set is changed; empty if it is valid.
	invalid string

	sets     []*clusterv1.MachineSet // those that the deployment controls, the oldest first
	orphans  []*clusterv1.MachineSet // sets to adopt
	machines map[types.UID][]*clusterv1.Machine
	// made is the set for the deployment's template before it is created; nil if it exists.
	made *clusterv1.MachineSet
	// inPlace has the decision for each old set; it is undecided while an extension does not answer.
	inPlace   map[types.UID]rolloutplan.InPlaceDecision
	undecided error
	rollout   rollout
}

// takeSnapshot takes a snapshot of a deployment, and plans the next steps. The suffix is the end of the name of a new
// set: it is passed in, so that it stays the same during a reconciliation.
func (r *Reconciler) takeSnapshot(ctx context.Context, reader client.Reader, key types.NamespacedName,
	suffix string) (*snapshot, error) {
	s, err := readSnapshot(ctx, reader, key, r.now())
	if err != nil || s == nil || s.invalid != "" || s.unset != nil || s.isPaused() ||
		s.deployment.DeletionTimestamp != nil {
		return s, err
	}
	if s.current() == nil && !s.spec().IsPaused {
		if s.made, err = s.newSet(suffix); err != nil {
			return nil, err
		}
	}
	if s.undecided = r.decideInPlace(ctx, s); s.undecided == nil {
		s.rollout = s.plan()
	}
	return s, nil
}

// readSnapshot reads a MachineDeployment after its machines and sets, as the controller of MachineSets does. It returns
// nil if the deployment does not exist.
func readSnapshot(ctx context.Context, reader client.Reader, key types.NamespacedName,
	now time.Time) (*snapshot, error) {
	var machines clusterv1.MachineList
	var sets clusterv1.MachineSetList
	for _, list := range []client.ObjectList{&machines, &sets} {
		if err := reader.List(ctx, list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list machines and their sets: %w", err)
		}
	}
	s := &snapshot{
		time:       now,
		deployment: &clusterv1.MachineDeployment{},
		machines:   map[types.UID][]*clusterv1.Machine{},
	}
	if err := reader.Get(ctx, key, s.deployment); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	isUnset := s.deployment.Spec.Replicas == nil
	rolloutrules.SetDefaults(&s.deployment.Spec)
	var err error
	if s.cluster, err = contract.FindCluster(ctx, reader, key.Namespace, s.deployment.Spec.ClusterName); err != nil {
		return nil, err
	}
	s.validate()
	for i := range machines.Items {
		if owner := metav1.GetControllerOfNoCopy(&machines.Items[i]); owner != nil {
			s.machines[owner.UID] = append(s.machines[owner.UID], &machines.Items[i])
		}
	}
	s.takeSets(sets.Items)
	if isUnset && s.invalid == "" {
		s.unset, s.invalid = rolloutrules.UnsetReplicas(s.deployment.Annotations, s.lastReplicas())
	}
	return s, nil
}

// validate refuses the specs that Cluster API's admission refuses, because it does not run here.
func (s *snapshot) validate() {
	var err error
	if s.selector, err = replicas.SelectorOf(&s.deployment.Spec.Selector,
		s.deployment.Spec.Template.Labels); err != nil {
		s.invalid, s.selector = err.Error(), labels.Nothing()
	}
	if faults := validation.IsValidLabelValue(s.deployment.Name); len(faults) > 0 {
		s.invalid = "metadata.name is the value of a label of machines: it " + faults[0]
	}
	if _, _, err := rolloutrules.Limits(&s.deployment.Spec); err != nil {
		s.invalid = err.Error()
	}
}

// takeSets selects the sets of the namespace that the deployment controls or has to adopt.
func (s *snapshot) takeSets(all []clusterv1.MachineSet) {
	for i := range all {
		set := &all[i]
		switch {
		case metav1.IsControlledBy(set, s.deployment):
			s.sets = append(s.sets, set)
		case s.adopts(set):
			s.orphans = append(s.orphans, set)
		}
	}
	rolloutrules.SortSets(s.sets)
}

// adopts reports whether the deployment has to adopt a set: it belonged to a deployment, and no longer has a
// controller.
func (s *snapshot) adopts(set *clusterv1.MachineSet) bool {
	_, wasOfDeployment := set.Labels[clusterv1.MachineDeploymentUniqueLabel]
	return wasOfDeployment && metav1.GetControllerOfNoCopy(set) == nil && set.DeletionTimestamp == nil &&
		set.Spec.ClusterName == s.deployment.Spec.ClusterName && s.selector.Matches(labels.Set(set.Labels))
}

// lastReplicas returns the spec.replicas by which the sets were scaled last; 0 if there are none.
func (s *snapshot) lastReplicas() int {
	for _, set := range slices.Backward(s.sets) {
		if last, err := strconv.Atoi(set.Annotations[clusterv1.DesiredReplicasAnnotation]); err == nil {
			return last
		}
	}
	return len(s.owned())
}

// owned returns all machines of the deployment's sets.
func (s *snapshot) owned() []*clusterv1.Machine {
	var owned []*clusterv1.Machine
	for _, set := range s.sets {
		owned = append(owned, s.machines[set.UID]...)
	}
	return owned
}

// isPaused reports whether nothing must be changed. A deployment with spec.paused is still scaled.
func (s *snapshot) isPaused() bool { return contract.IsPaused(s.deployment, s.cluster) }

// hasWork reports whether there is work that requires a read from the API server first.
func (s *snapshot) hasWork() bool {
	if s.deployment.DeletionTimestamp != nil {
		return len(s.sets) == 0 // before the finalizer is removed
	}
	return s.unset != nil || len(s.orphans) > 0 || len(s.rollout.changes) > 0 || len(s.obsolete()) > 0
}

// rolloutFields returns the fields of a template that reach machines only when they are recreated.
func rolloutFields(template clusterv1.MachineSpec) clusterv1.MachineSpec {
	return clusterv1.MachineSpec{
		Version: template.Version, FailureDomain: template.FailureDomain,
		Bootstrap: template.Bootstrap, InfrastructureRef: template.InfrastructureRef,
	}
}

// untilRollout returns how long it is until spec.rollout.after, 0 if that has passed.
func (s *snapshot) untilRollout() time.Duration {
	after := s.deployment.Spec.Rollout.After
	if after.IsZero() {
		return 0
	}
	return max(0, after.Sub(s.time))
}

// current returns the set with the deployment's template, or nil.
func (s *snapshot) current() *clusterv1.MachineSet {
	return rolloutrules.Current(s.deployment, s.sets, s.time)
}

// old returns all sets except for the current one, the oldest first.
func (s *snapshot) old(current *clusterv1.MachineSet) []*clusterv1.MachineSet {
	return slices.DeleteFunc(slices.Clone(s.sets), func(set *clusterv1.MachineSet) bool { return set == current })
}

// missing returns why the machines of a set are not up to date; empty if its template is the deployment's.
func (s *snapshot) missing(set *clusterv1.MachineSet) []string {
	missing := rolloutrules.Differences(set.Spec.Template.Spec, s.deployment.Spec.Template.Spec)
	if rolloutrules.IsExpired(s.deployment, set, s.time) {
		missing = append(missing, "MachineDeployment spec.rolloutAfter expired")
	}
	return missing
}
