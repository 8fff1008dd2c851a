// Package machineset maintains the replicas of Cluster API's MachineSets: it creates Machines, with their
// infrastructure and bootstrap config, from a set's templates, deletes surplus Machines, adopts and releases Machines
// by their labels, updates fields that need no new Machines, and counts them in the set's status. In an update in
// place, a set moves Machines to another one, which begins their update. A Machine marked as unhealthy is deleted and
// replaced. The controller of Machines executes the deletion of a Machine, with drains and hooks; a Machine is a
// replica of its set as long as it exists.
//
// Package replicas decides what to do, from the snapshot of snapshot.go.
//
// Start with SetupWithManager.
package machineset

import (
	"cmp"
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/capi/machinetemplate"
	"github.com/runlevel/runlevel/internal/machines/capi/owners"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/machines/queue"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

const (
	concurrency = 10 // MachineSets that are worked on at a time
	requests    = 20 // machines of one MachineSet that are created, changed or deleted at a time
)

// Options configure the controller of MachineSets. The zero value works.
type Options struct {
	RetrySoon time.Duration // pause before the first retry; a quarter of a second if it is 0
}

// A Reconciler maintains the machines of Cluster API's MachineSets.
type Reconciler struct {
	owners.Writer // its client reads from the cache
	machines      machinetemplate.Writer
	now           func() time.Time
	templates     *infra.Watcher // watches missing templates
}

// SetupWithManager adds the controller of MachineSets to a manager.
func SetupWithManager(manager ctrl.Manager, o Options) error {
	templates, err := infra.NewWatcher(manager)
	if err != nil {
		return err
	}
	r := &Reconciler{
		Writer: owners.Writer{
			Client: manager.GetClient(),
			Events: manager.GetEventRecorder("machineset-controller"),
		},
		machines:  machinetemplate.NewWriter(manager, fieldManager),
		now:       time.Now,
		templates: templates,
	}
	sets := func(matches func(*clusterv1.MachineSet, client.Object) bool) handler.EventHandler {
		return enqueue.Matching(r.Client, &clusterv1.MachineSetList{}, matches)
	}
	owner := handler.EnqueueRequestForOwner(manager.GetScheme(), manager.GetRESTMapper(), &clusterv1.MachineSet{},
		handler.OnlyControllerOwner())
	templates.Controller, err = ctrl.NewControllerManagedBy(manager).
		Named("cluster-api-machineset").
		WithOptions(queue.Backoff(concurrency, cmp.Or(o.RetrySoon, queue.RetrySoon))).
		For(&clusterv1.MachineSet{}).
		Watches(&clusterv1.Machine{}, owner).
		Watches(&clusterv1.Machine{}, sets(mayAdopt)).
		Watches(&clusterv1.MachineDeployment{}, sets(isOfDeployment),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&clusterv1.Cluster{}, sets(isOfCluster), builder.WithPredicates(contract.ClusterPauses)).
		Build(r)
	return err
}

// Reconcile creates, changes or deletes the machines of a MachineSet, and writes its status.
//
// The cache may lag behind the last writes of this controller, or of another instance, and behind an annotation that
// selects a machine for deletion. So the cache only decides whether a read from the API server is necessary, and the
// plan is computed from that read.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s, err := r.readSnapshot(ctx, r.Client, request.NamespacedName)
	if err == nil && s != nil && s.hasWork() {
		s, err = r.readSnapshot(ctx, r.machines.Live, request.NamespacedName)
	}
	switch {
	case err != nil || s == nil:
		return ctrl.Result{}, err
	case s.isPaused():
		return ctrl.Result{}, r.report(ctx, s, nil)
	case s.set.DeletionTimestamp != nil:
		problem := r.end(ctx, s)
		return ctrl.Result{}, r.report(ctx, s, problem)
	case s.unset != nil:
		changed := s.set.DeepCopy()
		changed.Spec.Replicas = s.unset
		return ctrl.Result{}, r.SetReplicas(ctx, s.set, changed) // which causes another reconciliation
	}
	if err := r.claim(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	isChanged, problem := r.remediate(ctx, s)
	if !isChanged { // a change causes another reconciliation
		problem = errors.Join(problem, r.propagate(ctx, s), r.beginUpdates(ctx, s), r.execute(ctx, s))
	}
	return ctrl.Result{}, r.report(ctx, s, problem)
}

// mayAdopt reports whether a set may adopt a machine.
func mayAdopt(set *clusterv1.MachineSet, machine client.Object) bool {
	if metav1.GetControllerOfNoCopy(machine) != nil {
		return false
	}
	selector, err := replicas.SelectorOf(&set.Spec.Selector, set.Spec.Template.Labels)
	return err == nil && selector.Matches(labels.Set(machine.GetLabels()))
}

func isOfCluster(set *clusterv1.MachineSet, cluster client.Object) bool {
	return set.Spec.ClusterName == cluster.GetName()
}

// isOfDeployment reports whether a MachineDeployment limits how many machines of a set are remediated at once.
func isOfDeployment(set *clusterv1.MachineSet, deployment client.Object) bool {
	return metav1.IsControlledBy(set, deployment)
}

// creations passes only creations: a template can't be changed.
var creations = predicate.TypedFuncs[*metav1.PartialObjectMetadata]{
	UpdateFunc: func(event.TypedUpdateEvent[*metav1.PartialObjectMetadata]) bool { return false },
	DeleteFunc: func(event.TypedDeleteEvent[*metav1.PartialObjectMetadata]) bool { return false },
}

// awaitTemplate reconciles the sets of a missing template when the template is created. The templates of its kind are
// watched from then on.
func (r *Reconciler) awaitTemplate(ctx context.Context, template contract.Reference) error {
	if !template.IsDefined() {
		return nil
	}
	served, err := r.machines.References.Served(ctx, template.GroupKind())
	if err != nil {
		return err
	}
	return r.templates.Watch(served.GroupVersionKind,
		func(ctx context.Context, object *metav1.PartialObjectMetadata) []reconcile.Request {
			created := template
			created.Name = object.Name
			return enqueue.Requests(ctx, r.Client, &clusterv1.MachineSetList{}, func(set *clusterv1.MachineSet) bool {
				spec := set.Spec.Template.Spec
				return spec.InfrastructureRef == created || spec.Bootstrap.ConfigRef == created
			}, client.InNamespace(object.Namespace))
		}, creations)
}

// report writes the status of a set, and returns the problem of the reconciliation, so that the queue retries.
func (r *Reconciler) report(ctx context.Context, s *snapshot, problem error) error {
	changed := s.set.DeepCopy()
	message := cmp.Or(s.invalid, replicas.MessageOf(problem))
	setStatus(changed, s, message)
	return r.WriteStatus(ctx, s.set, changed, message, problem)
}

// setStatus sets the status of a set. An invalid set keeps its counts, since its machines are not known. For a paused
// set only the condition Paused changes.
func setStatus(set *clusterv1.MachineSet, s *snapshot, problem string) {
	if owners.SetPaused(set, s.cluster) {
		return
	}
	status := &set.Status
	status.ObservedGeneration = set.Generation
	if s.invalid != "" {
		owners.Set(set, owners.Condition(clusterv1.ScalingUpCondition, false, problem))
		return
	}
	machines := s.counted()
	status.Selector = s.selector.String()
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.UpToDateReplicas = owners.Count(machines)
	owners.SetSummary(set, owners.Summary{
		Machines: machines, Current: len(machines), Wanted: s.wanted(), Problem: problem, Now: s.now,
	})
	owners.Set(set, owners.Remediated(machines, "MachineSet"))
}
