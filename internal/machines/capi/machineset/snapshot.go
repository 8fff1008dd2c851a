package machineset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// A snapshot is the observed state of a MachineSet and the Machines of its namespace. The Machines belong to the cache:
// they must not be changed.
type snapshot struct {
	now         time.Time
	set         *clusterv1.MachineSet
	cluster     *clusterv1.Cluster            // nil if there is none
	machines    map[string]*clusterv1.Machine // all of the namespace, by name
	replicas    []replicas.Replica            // those that are the set's, or may be
	selector    labels.Selector
	destination *clusterv1.MachineSet // set that surplus machines are moved to; nil if there is none
	// deployment is the MachineDeployment of the set. It is read only if machines are marked as unhealthy.
	deployment *clusterv1.MachineDeployment
	// unset is the value to set in spec.replicas if the field is not set; nil if it is.
	unset *int32
	// invalid is the reason why the set is invalid, so that no machine is changed; empty if it is valid.
	invalid string
}

// readSnapshot reads a MachineSet after its machines: if the garbage collector has orphaned machines of a set, the set
// is observed as being deleted. It returns nil if the set does not exist.
func (r *Reconciler) readSnapshot(ctx context.Context, reader client.Reader,
	key types.NamespacedName) (*snapshot, error) {
	var list clusterv1.MachineList
	if err := reader.List(ctx, &list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	s := &snapshot{now: r.now(), set: &clusterv1.MachineSet{}, machines: map[string]*clusterv1.Machine{}}
	if err := reader.Get(ctx, key, s.set); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	var err error
	if s.cluster, err = contract.FindCluster(ctx, reader, key.Namespace, s.set.Spec.ClusterName); err != nil {
		return nil, err
	}
	s.selector, err = replicas.SelectorOf(&s.set.Spec.Selector, s.set.Spec.Template.Labels)
	if err != nil {
		s.invalid, s.selector = err.Error(), labels.Nothing()
	}
	for i := range list.Items {
		machine := &list.Items[i]
		s.machines[machine.Name] = machine
		if m := s.replicaOf(machine); m.Owner == replicas.Ours || m.IsCounted() {
			s.replicas = append(s.replicas, m)
		}
	}
	if s.set.Spec.Replicas == nil && s.invalid == "" {
		s.unset, s.invalid = rolloutrules.UnsetReplicas(s.set.Annotations, len(s.counted()))
	}
	return s, errors.Join(s.readDestination(ctx, reader), s.readDeployment(ctx, reader))
}

// replicaOf returns a machine as a replica. Machines of another cluster are not the set's, whatever labels they have.
func (s *snapshot) replicaOf(machine *clusterv1.Machine) replicas.Replica {
	return replicas.Replica{
		Name: machine.Name, Owner: replicas.OwnerOf(machine, s.set.UID),
		IsSelected: s.selector.Matches(labels.Set(machine.Labels)) &&
			machine.Spec.ClusterName == s.set.Spec.ClusterName,
		IsDeleting: machine.DeletionTimestamp != nil,
	}
}

// isPaused reports whether nothing must be changed.
func (s *snapshot) isPaused() bool { return contract.IsPaused(s.set, s.cluster) }

// hasWork reports whether there is work that requires a read from the API server first.
func (s *snapshot) hasWork() bool {
	if s.set.DeletionTimestamp != nil {
		return len(s.owned()) == 0 // before the finalizer is removed
	}
	return s.unset != nil || !s.plan().IsEmpty() || s.invalid == "" && len(s.arrivals()) > 0 ||
		len(s.remedies("")) > 0
}

// owned returns the machines that the set controls.
func (s *snapshot) owned() []*clusterv1.Machine {
	var owned []*clusterv1.Machine
	for _, m := range s.replicas {
		if m.Owner == replicas.Ours {
			owned = append(owned, s.machines[m.Name])
		}
	}
	return owned
}

// counted returns the replicas of the set, sorted by name.
func (s *snapshot) counted() []*clusterv1.Machine {
	var counted []*clusterv1.Machine
	for _, m := range s.replicas {
		if m.IsCounted() {
			counted = append(counted, s.machines[m.Name])
		}
	}
	slices.SortFunc(counted, func(a, b *clusterv1.Machine) int { return strings.Compare(a.Name, b.Name) })
	return counted
}

// plan returns the plan for the set, which is empty if the set is invalid.
func (s *snapshot) plan() replicas.Plan {
	if s.invalid != "" {
		return replicas.Plan{}
	}
	ranked := slices.DeleteFunc(slices.Clone(s.replicas), s.isUncounted)
	for i := range ranked {
		ranked[i].Priority = rolloutrules.DeletionPriority(s.machines[ranked[i].Name], s.set.Spec.Deletion.Order, s.now)
	}
	plan := replicas.Make(s.wanted(), ranked)
	if s.set.Annotations[clusterv1.DisableMachineCreateAnnotation] == "true" || s.isAhead() {
		plan.Create = 0
	}
	return plan
}

// wanted is spec.replicas.
func (s *snapshot) wanted() int {
	if s.set.DeletionTimestamp != nil {
		return 0
	}
	return int(ptr.Deref(s.set.Spec.Replicas, 1))
}
