package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/runlevel/runlevel/internal/etcdguard"
	"github.com/runlevel/runlevel/internal/etcdguard/members"
	"github.com/runlevel/runlevel/internal/program/leader"
	"github.com/runlevel/runlevel/pkg/machinehook"
)

const (
	// busyPause is the requeue interval while a member is being replaced, or an update is requested: changes in etcd
	// are not watched.
	busyPause = 2 * time.Second
	// calmPause is the requeue interval while no step is needed, for metrics and status.
	calmPause = 10 * time.Second
)

// A failed reconciliation is retried after retrySoon, and then after twice as long each time, up to retrySeldom.
const retrySoon, retrySeldom = 250 * time.Millisecond, 10 * time.Second

// A guard reconciles the members of etcd with their machines.
type guard struct {
	options          Options
	api              machineAPI
	selector         labels.Selector // selects machines
	guardPodSelector labels.Selector
	etcd             *members.Client
	client           client.Client
	server           client.Reader // reads past the cache
	events           events.EventRecorder
	isLeader         func() bool
	loggedWait       string // the last logged wait; used by one reconciliation at a time
	observation      observation
	steps            *prometheus.CounterVec
}

// setUp adds the guard to a manager: the hook of each machine of the control plane, and one loop for all members.
func setUp(m ctrl.Manager, isLeader func() bool, o Options) (*guard, error) {
	g, err := newGuard(m, isLeader, o)
	if err != nil {
		return nil, err
	}
	hooks := machinehook.Hook{
		Name: HookName, Owner: HookOwner, Stage: g.api.stage, Machine: g.api.machine, Selector: g.selector, Act: g.hold,
	}
	if err := hooks.SetupWithManager(m); err != nil {
		return nil, err
	}
	// Each change reconciles all members, one after the other: also while there are no machines.
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	atStart := source.Func(func(_ context.Context,
		queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{})
		return nil
	})
	isSelected := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return g.selector.Matches(labels.Set(o.GetLabels()))
	})
	return g, ctrl.NewControllerManagedBy(m).Named("etcd-members").
		Watches(g.api.machine, all, builder.WithPredicates(isSelected)).
		WatchesRawSource(atStart).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](retrySoon,
				retrySeldom),
		}).
		Complete(reconcile.Func(g.reconcile))
}

func newGuard(m ctrl.Manager, isLeader func() bool, o Options) (*guard, error) {
	api, ok := machineAPIs[o.MachineAPI]
	if !ok {
		return nil, fmt.Errorf("unknown machine API %q: write %s or %s", o.MachineAPI, OpenShift, ClusterAPI)
	}
	g := &guard{
		options: o, api: api, etcd: members.NewClient(o.Etcd), client: m.GetClient(), server: m.GetAPIReader(),
		events: m.GetEventRecorder(programName), isLeader: isLeader, steps: newStepCounter(),
	}
	var err error
	if g.selector, err = labels.Parse(cmp.Or(o.Machines, api.selector)); err != nil {
		return nil, fmt.Errorf("select machines: %w", err)
	}
	if g.guardPodSelector, err = labels.Parse(o.GuardPods); err != nil {
		return nil, fmt.Errorf("select guard pods: %w", err)
	}
	return g, nil
}

// snapshot reads the current members and machines. Membership is nil if etcd can't be reached.
func (g *guard) snapshot(ctx context.Context) (etcdguard.Snapshot, *members.Membership, error) {
	seen := etcdguard.Snapshot{Voters: g.options.Voters}
	endpoints, err := g.endpoints(ctx)
	if err != nil {
		return seen, nil, err
	}
	membership, err := g.etcd.Membership(ctx, endpoints)
	if err != nil {
		seen.Problem = err.Error()
	} else {
		seen.Members = membership.Members
	}
	// Machines are read after the members: a machine may be deleted meanwhile, but never becomes undeleted.
	seen.Machines, err = g.readMachines(ctx)
	return seen, membership, errors.Join(err, ctx.Err())
}

// hold is the lifecycle hook's Act: it is done when no member can be on the machine.
func (g *guard) hold(ctx context.Context, held machinehook.HeldMachine) (machinehook.HookAnswer, error) {
	seen, _, err := g.snapshot(ctx)
	if err != nil {
		return machinehook.HookAnswer{}, err
	}
	// The machine is read again as well: it may have got addresses.
	machine, err := g.readMachine(ctx, held.Object)
	if err != nil {
		return machinehook.HookAnswer{}, err
	}
	message := etcdguard.Hold(seen, machine)
	return machinehook.HookAnswer{IsDone: message == "", Message: message, After: busyPause}, nil
}

// reconcile deletes the present guard pods, once, and carries out steps until a step waits. A pod that can't be
// deleted, or is created again at once, is left to the next reconciliation, and holds no member.
func (g *guard) reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var podErr error // error of deleting guard pods
	for isFirst := true; ; isFirst = false {
		snapshot, membership, err := g.snapshot(ctx)
		if err != nil {
			g.observation.recordFailure(err)
			return ctrl.Result{}, errors.Join(podErr, err)
		}
		if pods := etcdguard.GuardPods(snapshot); isFirst && len(pods) > 0 {
			podErr = g.deleteGuardPods(ctx, pods)
			continue
		}
		step := etcdguard.Next(snapshot)
		g.observation.record(snapshot, step, podErr)
		if step.Action == etcdguard.Wait {
			if now := step.Reason + step.Message; now != g.loggedWait {
				ctrl.LoggerFrom(ctx).Info("waiting", "reason", step.Reason, "message", step.Message)
				g.loggedWait = now
			}
			return requeue(pauseAfter(snapshot, step), errors.Join(podErr, g.holdUpdates(ctx, snapshot)))
		}
		g.loggedWait = ""
		switch err := g.carryOut(ctx, membership, step); {
		case isTooEarly(err):
			return requeue(busyPause, podErr)
		case err != nil:
			return ctrl.Result{}, errors.Join(podErr, err)
		}
	}
}

// requeue schedules the next reconciliation after a pause. After an error, the queue determines the pause.
func requeue(pause time.Duration, err error) (ctrl.Result, error) {
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: pause}, nil
}

// carryOut carries out a step, and reports it in the log, in a metric and by an event.
func (g *guard) carryOut(ctx context.Context, membership *members.Membership, step etcdguard.Step) error {
	log := ctrl.LoggerFrom(ctx)
	log.Info("begin", "action", step.Action, "reason", step.Reason, "machine", step.Machine, "message", step.Message)
	err := g.perform(ctx, membership, step)
	switch {
	case isTooEarly(err):
		g.count(step, resultTooEarly)
		log.Info("not yet", "action", step.Action, "reason", err.Error())
		return err
	case err != nil:
		g.count(step, resultFailed)
		return fmt.Errorf("%s: %w", step.Action, err)
	}
	g.count(step, resultDone)
	log.Info("done", "action", step.Action, "machine", step.Machine)
	g.recordEvent(ctx, step)
	return nil
}

// isTooEarly reports whether a step has to be retried after a pause.
func isTooEarly(err error) bool { return members.IsTooEarly(err) || errors.Is(err, errChanged) }

// pauseAfter returns the requeue interval after a step that waits.
func pauseAfter(seen etcdguard.Snapshot, step etcdguard.Step) time.Duration {
	isBusy := slices.ContainsFunc(seen.Machines, func(m etcdguard.Machine) bool {
		return m.IsDeleting || m.AsksForUpdate
	})
	if step.Reason == etcdguard.AsExpected && !isBusy {
		return calmPause
	}
	return busyPause
}

// perform carries out a step. Etcd does not check the Lease, so it is checked here, as the fence does for the API
// server.
func (g *guard) perform(ctx context.Context, membership *members.Membership, step etcdguard.Step) error {
	switch step.Action {
	case etcdguard.DeleteGuardPod:
		return g.deleteGuardPod(ctx, step.Pod)
	case etcdguard.PermitUpdate:
		return g.permitUpdate(ctx, step)
	}
	if !g.isLeader() {
		return leader.ErrFenced
	}
	return membership.Change(ctx, step)
}

// deleteGuardPods deletes guard pods, and returns the errors of those that could not be deleted.
func (g *guard) deleteGuardPods(ctx context.Context, steps []etcdguard.Step) error {
	var errs error
	for _, step := range steps {
		errs = errors.Join(errs, g.carryOut(ctx, nil, step))
	}
	return errs
}

// deleteGuardPod deletes a pod, but not another one of its name, which may be on another node.
func (g *guard) deleteGuardPod(ctx context.Context, guardPod etcdguard.GuardPod) error {
	namespace, name, _ := strings.Cut(guardPod.Name, "/")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := g.client.Delete(ctx, pod, client.Preconditions{UID: &guardPod.UID})
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// recordEvent records an event for the machine of a step. If the machine was deleted meanwhile, only the log has it.
func (g *guard) recordEvent(ctx context.Context, step etcdguard.Step) {
	m := g.api.machine.DeepCopyObject().(client.Object)
	namespace, name, _ := strings.Cut(step.Machine, "/")
	if err := g.server.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, m); err == nil {
		g.events.Eventf(m, nil, corev1.EventTypeNormal, step.Reason, "Guard", "%s", step.Message)
	}
}
