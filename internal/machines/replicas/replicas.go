// Package replicas plans the replicas of the sets of machines of both APIs: which machines a set adopts and releases,
// how many it creates, and which ones it deletes; and it executes the plan. The controller of each API passes the
// differences: priorities, the creation of machines, and whether machines that are being deleted are counted.
//
// Start with Make, which is pure. A Scaler executes its plan.
package replicas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Replica contains the facts about a machine on which the plan depends.
type Replica struct {
	Name       string
	Owner      Ownership
	IsSelected bool // its labels match the selector
	IsDeleting bool
	// Priority is the priority of the machine in a scale down: the highest is deleted first. Of equal ones, marked
	// machines are, and then the first by name.
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

// IsCounted reports whether a machine is one of the set's replicas. A set does not adopt an orphan during its deletion.
func (r Replica) IsCounted() bool {
	return r.IsSelected && (r.Owner == Ours || r.Owner == Orphan && !r.IsDeleting)
}

// A Plan contains the next actions for machines, in this order.
type Plan struct {
	Release []string // no longer selected: the set gives up its ownership
	Adopt   []string // selected orphans
	Create  int
	Remove  []string // surplus machines
}

// IsEmpty reports whether there is nothing to do.
func (p Plan) IsEmpty() bool {
	return len(p.Release) == 0 && len(p.Adopt) == 0 && p.Create == 0 && len(p.Remove) == 0
}

// Make returns a plan that leads to the wanted number of machines. If machines that are being deleted are passed, they
// count, and are the first of the surplus: their replacements are created after their deletion.
func Make(wanted int, machines []Replica) Plan {
	var p Plan
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

// highestByAge is the limit of PriorityByAge.
const highestByAge = 50.0

// PriorityByAge returns a priority that grows with the age of a machine from 0 to 50, of which it has reached 63% after
// the time constant. It is zero if the creation is in the future.
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

// shownNames limits how many machines an event names.
const shownNames = 10

// A Scaler executes a plan for the machines of one set.
type Scaler struct {
	Client client.Client
	Events events.EventRecorder
	Set    client.Object
	// Owner is the reference to the set that its machines have.
	Owner metav1.OwnerReference
	// Requests limits how many machines are created or deleted at a time.
	Requests int
}

// SettleOwnership releases and adopts machines. It has to succeed first: a machine that could not be adopted must
// neither be replaced nor deleted.
func SettleOwnership[M client.Object](ctx context.Context, s Scaler, p Plan, machines map[string]M) error {
	for _, name := range p.Release {
		owners := slices.DeleteFunc(slices.Clone(machines[name].GetOwnerReferences()),
			func(owner metav1.OwnerReference) bool { return owner.UID == s.Owner.UID })
		if err := s.patchOwners(ctx, machines[name], owners); err != nil {
			return fmt.Errorf("release machine %s: %w", name, err)
		}
	}
	for _, name := range p.Adopt {
		owners := append(slices.Clone(machines[name].GetOwnerReferences()), s.Owner)
		if err := s.patchOwners(ctx, machines[name], owners); err != nil {
			return fmt.Errorf("adopt machine %s: %w", name, err)
		}
	}
	return nil
}

// patchOwners sets the owners of a machine. It fails with a conflict if the machine has changed since it was read.
func (s Scaler) patchOwners(ctx context.Context, machine client.Object, owners []metav1.OwnerReference) error {
	changed, _ := machine.DeepCopyObject().(client.Object)
	changed.SetOwnerReferences(owners)
	return client.IgnoreNotFound(patch.WithLock(ctx, s.Client, changed, machine))
}

// Create creates machines, each by a call that returns its name. If the namespace is being deleted, it returns no
// error.
func (s Scaler) Create(ctx context.Context, count int, create func() (string, error)) error {
	var mu sync.Mutex
	var names []string
	created, failure := InBatches(count, s.Requests, func() error {
		name, err := create()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		names = append(names, name)
		return nil
	})
	if created > 0 {
		slices.Sort(names)
		ctrl.LoggerFrom(ctx).Info("machines created", "count", created, "missing", count-created)
		s.Events.Eventf(s.Set, nil, corev1.EventTypeNormal, "SuccessfulCreate", "Scale", "Created machines: %s",
			printable.Few(names, shownNames))
	}
	if failure == nil || apierrors.HasStatusCause(failure, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return fmt.Errorf("create %d of %d machines: %w", count-created, count, failure)
}

// longestMessage limits the bytes of a reported problem to those of an event.
const longestMessage = 1024

// MessageOf returns the message of a set's problem. Conflicts, and the end of the controller, are no problems of the
// set.
func MessageOf(problem error) string {
	if problem == nil || apierrors.IsConflict(problem) || errors.Is(problem, context.Canceled) {
		return ""
	}
	return printable.Truncate(printable.Line(problem.Error()), longestMessage)
}

// Remove deletes machines, except for those that are being deleted. It fails with a conflict if one has changed since
// it was read: the decision to delete it may be outdated.
func Remove[M client.Object](ctx context.Context, s Scaler, names []string, machines map[string]M) error {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return machines[name].GetDeletionTimestamp() != nil
	})
	isDeleted := map[string]bool{}
	var mu sync.Mutex
	_, failure := InParallel(len(names), s.Requests, func(i int) error {
		err := client.IgnoreNotFound(patch.DeleteWithLock(ctx, s.Client, machines[names[i]]))
		mu.Lock()
		defer mu.Unlock()
		isDeleted[names[i]] = err == nil
		return err
	})
	deleted := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !isDeleted[name] })
	if len(deleted) > 0 {
		ctrl.LoggerFrom(ctx).Info("machines deleted", "count", len(deleted))
		s.Events.Eventf(s.Set, nil, corev1.EventTypeNormal, "SuccessfulDelete", "Scale", "Deleted machines: %s",
			printable.Few(deleted, shownNames))
	}
	if failure != nil {
		return fmt.Errorf("delete %d of %d machines: %w", len(names)-len(deleted), len(names), failure)
	}
	return nil
}

// InBatches calls a function a number of times, in batches of which each is twice as large as the one before: if a
// quota or an admission policy refuses all requests, only one is sent. It returns the number of successes, and the
// first failure, after which no batch begins.
func InBatches(count, limit int, do func() error) (int, error) {
	done := 0
	for batch := 1; done < count; batch *= 2 {
		succeeded, failure := InParallel(min(batch, count-done), limit, func(int) error { return do() })
		done += succeeded
		if failure != nil {
			return done, failure
		}
	}
	return done, nil
}

// InParallel calls a function for each number below count, and returns the number of successes and the first failure.
func InParallel(count, limit int, do func(int) error) (int, error) {
	failures := make([]error, count)
	var group errgroup.Group
	group.SetLimit(limit)
	for i := range count {
		group.Go(func() error {
			failures[i] = do(i)
			return nil
		})
	}
	_ = group.Wait() // the failures are in the list
	failed := slices.DeleteFunc(failures, func(err error) bool { return err == nil })
	return count - len(failed), errors.Join(failed[:min(1, len(failed))]...)
}
