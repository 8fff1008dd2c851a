// Package replicas is what the sets of machines of both APIs have in common: which machines a set takes in and lets
// go, how many it lacks, and which ones it can spare; and how that is written. How machines are ranked, how they are
// made, and whether those that are being deleted are counted, differs: each set's controller says so in what it passes.
//
// Make is the call to start from. It is pure; a Scaler does what was planned.
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

// A Replica is a machine as the decisions see it.
type Replica struct {
	Name       string
	Owner      Ownership
	IsSelected bool // its labels match the selector
	IsDeleting bool
	// Priority ranks the machines of a set that can spare some: the highest goes first. Of equal ones, those that are
	// marked do, and then the first by name.
	Priority float64
	IsMarked bool
}

// An Ownership says who controls a machine.
type Ownership string

// The owners of machines.
const (
	Ours    Ownership = "ours"
	Orphan  Ownership = "orphan" // no controller
	Foreign Ownership = "foreign"
)

// OwnerOf returns who controls a machine, as a set with that UID sees it.
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

// IsCounted says whether a machine is one of the set's replicas. An orphan that is being deleted comes too late.
func (r Replica) IsCounted() bool {
	return r.IsSelected && (r.Owner == Ours || r.Owner == Orphan && !r.IsDeleting)
}

// A ReplicaPlan is what is to be done with machines, in this order.
type ReplicaPlan struct {
	Release []string // no longer selected: the set gives up its ownership
	Adopt   []string // selected orphans
	Create  int
	Remove  []string // to be deleted
}

// IsEmpty says that nothing is to be done.
func (p ReplicaPlan) IsEmpty() bool {
	return len(p.Release) == 0 && len(p.Adopt) == 0 && p.Create == 0 && len(p.Remove) == 0
}

// Make returns what is to be done so that there are as many machines as wanted. Machines that are being deleted are
// counted if they are among those passed, and are then the first that a set can spare: their replacements are made
// when they are gone.
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

// before orders replicas: those that a set can spare first, first.
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

// PriorityByAge ranks a machine by its age: it grows from 0 to 50, and has come 63% of the way after the time constant.
// It is zero for a machine that, by this clock, is yet to be made.
func PriorityByAge(created, now time.Time, constant time.Duration) float64 {
	age := now.Sub(created)
	if created.IsZero() || age < 0 {
		return 0
	}
	return highestByAge * (1 - math.Exp(-age.Seconds()/constant.Seconds()))
}

// SelectorOf returns the selector of a set whose template makes machines that match it.
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
