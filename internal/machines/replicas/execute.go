package replicas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// shownNames is how many machines an event names.
const shownNames = 10

// A Scaler executes a plan for the machines of one set.
type Scaler struct {
	Client client.Client
	Events events.EventRecorder
	Set    client.Object
	// Owner is the reference to the set that its machines have.
	Owner metav1.OwnerReference
	// Requests is how many machines are created or deleted at a time.
	Requests int
	// OnlyUnchanged makes Remove fail with a conflict for a machine that has changed since it was read.
	OnlyUnchanged bool
}

// SettleOwnership releases and adopts machines. It has to succeed first: a machine that could not be adopted must neither be
// replaced nor deleted.
func SettleOwnership[M client.Object](ctx context.Context, s Scaler, p ReplicaPlan, machines map[string]M) error {
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

// Create creates machines, each by a call that returns its name. It is no failure if the namespace is being deleted.
func (s Scaler) Create(ctx context.Context, count int, create func() (string, error)) error {
	var mu sync.Mutex
	var names []string
	made, failure := InBatches(count, s.Requests, func() error {
		name, err := create()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		names = append(names, name)
		return nil
	})
	if made > 0 {
		slices.Sort(names)
		ctrl.LoggerFrom(ctx).Info("machines created", "count", made, "missing", count-made)
		s.Events.Eventf(s.Set, nil, corev1.EventTypeNormal, "SuccessfulCreate", "Scale", "Created machines: %s", printable.Few(names, shownNames))
	}
	if failure == nil || apierrors.HasStatusCause(failure, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return fmt.Errorf("create %d of %d machines: %w", count-made, count, failure)
}

// MessageOf returns the message of a set's problem. Conflicts, and the end of the controller, are no problems of the
// set.
func MessageOf(problem error) string {
	if problem == nil || apierrors.IsConflict(problem) || errors.Is(problem, context.Canceled) {
		return ""
	}
	return printable.Line(problem.Error())
}

// Remove deletes machines, each with its UID as a precondition.
func Remove[M client.Object](ctx context.Context, s Scaler, names []string, machines map[string]M) error {
	deleted, failure := InParallel(len(names), s.Requests, func(i int) error {
		machine := machines[names[i]]
		isAsSeen := client.Preconditions{UID: ptr.To(machine.GetUID())}
		if s.OnlyUnchanged {
			isAsSeen.ResourceVersion = ptr.To(machine.GetResourceVersion())
		}
		return client.IgnoreNotFound(s.Client.Delete(ctx, machine, isAsSeen))
	})
	if failure != nil {
		return fmt.Errorf("delete %d of %d machines: %w", len(names)-deleted, len(names), failure)
	}
	ctrl.LoggerFrom(ctx).Info("machines deleted", "count", deleted)
	s.Events.Eventf(s.Set, nil, corev1.EventTypeNormal, "SuccessfulDelete", "Scale", "Deleted machines: %s", printable.Few(names, shownNames))
	return nil
}

// InBatches calls a function a number of times, in batches of which each is twice as large as the one before: if a quota or
// an admission policy refuses all requests, only one is sent. It returns the number of successes, and the first failure,
// after which no batch begins.
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
	_ = group.Wait() // each failure is in its place
	failed := slices.DeleteFunc(failures, func(err error) bool { return err == nil })
	return count - len(failed), errors.Join(failed[:min(1, len(failed))]...)
}
