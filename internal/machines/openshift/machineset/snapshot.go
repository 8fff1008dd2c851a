package machineset

import (
	"context"
	"fmt"
	"slices"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// A machine with one of these annotations is deleted before others when its set is scaled down. An empty value
// means nothing.
const (
	deleteAnnotation       = "machine.openshift.io/delete-machine"
	legacyDeleteAnnotation = "machine.openshift.io/cluster-api-delete-machine"
)

// A setSnapshot is the observed state of a MachineSet and the machines of its namespace. The machines belong to the
// cache: they must not be changed.
type setSnapshot struct {
	set      *machinev1beta1.MachineSet
	machines map[string]*machinev1beta1.Machine // the machines by name
	replicas []replicas.Replica
	// invalid is the reason why the set is invalid, so that no machine is changed; empty if it is valid.
	invalid string
}

// readSnapshot reads a MachineSet after its machines: if the garbage collector has orphaned machines of a set, the set
// is observed as being deleted. It returns nil if the set does not exist. It uses only lists, whose permission the
// watches need as well.
func readSnapshot(ctx context.Context, reader client.Reader, key types.NamespacedName) (*setSnapshot, error) {
	var list machinev1beta1.MachineList
	if err := reader.List(ctx, &list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	var sets machinev1beta1.MachineSetList
	if err := reader.List(ctx, &sets, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list MachineSets: %w", err)
	}
	index := slices.IndexFunc(sets.Items, func(set machinev1beta1.MachineSet) bool { return set.Name == key.Name })
	if index < 0 {
		return nil, nil
	}
	set := sets.Items[index].DeepCopy()
	selector, err := replicas.SelectorOf(&set.Spec.Selector, set.Spec.Template.Labels)
	seen := &setSnapshot{set: set, machines: make(map[string]*machinev1beta1.Machine)}
	if err != nil {
		seen.invalid = err.Error()
		return seen, nil
	}
	for i := range list.Items {
		m := newReplica(set, selector, &list.Items[i])
		if m.Owner == replicas.Ours || isCounted(m) {
			seen.machines[m.Name] = &list.Items[i]
			seen.replicas = append(seen.replicas, m)
		}
	}
	return seen, nil
}

func newReplica(set *machinev1beta1.MachineSet, selector labels.Selector, m *machinev1beta1.Machine) replicas.Replica {
	return replicas.Replica{
		Name: m.Name, Owner: replicas.OwnerOf(m, set.UID), IsSelected: selector.Matches(labels.Set(m.Labels)),
		IsDeleting: m.DeletionTimestamp != nil,
		IsMarked:   isMarked(m), // before a machine of the same priority that was created at this moment
	}
}

// isMarked reports whether a machine is deleted before others: it is annotated, or has failed.
func isMarked(m *machinev1beta1.Machine) bool {
	return m.Annotations[deleteAnnotation] != "" || m.Annotations[legacyDeleteAnnotation] != "" ||
		m.Status.ErrorReason != nil || m.Status.ErrorMessage != nil
}

// isCounted reports whether a machine is one of the set's replicas. A machine being deleted is not, even while
// a hook holds it: its replacement is created at once.
func isCounted(m replicas.Replica) bool { return !m.IsDeleting && m.IsCounted() }

// isManaged reports whether the set exists, and is not being deleted.
func (s *setSnapshot) isManaged() bool { return s != nil && s.set.DeletionTimestamp == nil }

// plan returns the plan for the set, which is empty if the set is invalid.
func (s *setSnapshot) plan(now time.Time) replicas.Plan {
	if s.invalid != "" {
		return replicas.Plan{}
	}
	ranked := slices.DeleteFunc(slices.Clone(s.replicas), func(m replicas.Replica) bool { return m.IsDeleting })
	for i := range ranked {
		ranked[i].Priority = priority(s.machines[ranked[i].Name], deletePolicy(s.set.Spec.DeletePolicy), now)
	}
	return replicas.Make(int(ptr.Deref(s.set.Spec.Replicas, 1)), ranked)
}
