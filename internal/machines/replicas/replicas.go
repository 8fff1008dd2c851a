// Package replicas plans the replicas of the sets of machines of both APIs: which machines a set adopts and releases,
// how many it creates, and which ones it deletes; and it executes the plan. The controller of each API passes the
// differences: priorities, the creation of machines, and whether machines that are being deleted are counted.
//
// Make is the call to start from. It is pure; a Scaler executes its plan.
package replicas

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// A Replica is what the plan depends on of a machine.
type Replica struct {
	Name       string
	Owner      Ownership
	IsSelected bool // its labels match the selector
	IsDeleting bool
	// Priority is the priority of the machine in a scale down: the highest is deleted first. Of equal ones, marked machines
	// are, and then the first by name.
	Priority float64
	IsMarked bool
}

// An Ownership is the relation of a machine's controller to a set.
type Ownership string

// The owners of machines.
const (
	Ours    Ownership = "ours"
	Orphan  Ownership = "orphan" // no controller
	Foreign Ownership = "foreign"
)

// OwnerOf returns the ownership of a machine for the set with a UID.
func OwnerOf(machine metav1.Object, set types.UID) Ownership {
	switch controller := metav1.GetControllerOfNoCopy(machine); {
	case controller == nil:
		return Orphan
	case controller.UID == set:
		return Ours
	default:
		return Foreign
	}
}

// IsCounted reports whether a machine is one of the set's replicas. An orphan that is being deleted is not adopted.
func (r Replica) IsCounted() bool {
	return r.IsSelected && (r.Owner == Ours || r.Owner == Orphan && !r.IsDeleting)
}

// A ReplicaPlan is what to do with machines, in this order.
type ReplicaPlan struct {
	Release []string // no longer selected: the set gives up its ownership
	Adopt   []string // selected orphans
	Create  int
	Remove  []string // surplus machines
}

// IsEmpty reports whether there is nothing to do.
func (p ReplicaPlan) IsEmpty() bool {
	return len(p.Release) == 0 && len(p.Adopt) == 0 && p.Create == 0 && len(p.Remove) == 0
}

// Make returns a plan that leads to the wanted number of machines. Machines that are being deleted are counted if they are
// passed, and are then the first of the surplus: their replacements are created when they are gone.
func Make(wanted int, machines []Replica) ReplicaPlan {
	var p ReplicaPlan
	var counted []Replica
	for _, m := range machines {
		switch {
		case m.IsCounted():
			counted = append(counted, m)
			if m.Owner == Orphan {
				p.Adopt = append(p.Adopt, m.Name)
			}
		case m.Owner == Ours && !m.IsDeleting:
			p.Release = append(p.Release, m.Name)
		}
	}
	p.Create = max(0, wanted-len(counted))
	slices.SortFunc(counted, Replica.before)
	for _, m := range counted[:max(0, len(counted)-wanted)] {
		if !m.IsDeleting {
			p.Remove = append(p.Remove, m.Name)
		}
	}
	return p
}

// before orders replicas by the order of their deletion.
func (r Replica) before(other Replica) int {
	return cmp.Or(
		rank(other.IsDeleting)-rank(r.IsDeleting),
		cmp.Compare(other.Priority, r.Priority),
		rank(other.IsMarked)-rank(r.IsMarked),
		strings.Compare(r.Name, other.Name),
	)
}

func rank(isFirst bool) int {
	if isFirst {
		return 1
	}
	return 0
}

// highestByAge is what PriorityByAge comes close to.
const highestByAge = 50.0

// PriorityByAge returns a priority that grows with the age of a machine from 0 to 50, of which it has reached 63% after the
// time constant. It is zero if the creation is in the future.
func PriorityByAge(created, now time.Time, constant time.Duration) float64 {
	age := now.Sub(created)
	if created.IsZero() || age < 0 {
		return 0
	}
	return highestByAge * (1 - math.Exp(-age.Seconds()/constant.Seconds()))
}

// SelectorOf returns the selector of a set, which has to match the labels of the template.
func SelectorOf(selected *metav1.LabelSelector, template map[string]string) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(selected)
	switch {
	case err != nil:
		return nil, fmt.Errorf("spec.selector is not valid: %w", err)
	case selector.Empty():
		return nil, errors.New("spec.selector is empty: it would select every machine of the namespace")
	case !selector.Matches(labels.Set(template)):
		return nil, fmt.Errorf("spec.selector %q does not match the labels in spec.template.metadata.labels: %q",
			selector, labels.FormatLabels(template))
	}
	return selector, nil
}
