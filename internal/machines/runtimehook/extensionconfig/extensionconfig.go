// Package extensionconfig is the controller of ExtensionConfigs (runtime.cluster.x-k8s.io): it discovers the handlers
// of each extension, writes them into the status with a condition Discovered, and copies the certificate authority of a
// Secret into the spec. It calls only the hook Discovery: package runtimehook calls the others, by the handlers in the
// statuses.
//
// The discovery is repeated every minute, so that neither a new version of an extension nor a new certificate authority
// needs a change of its ExtensionConfig.
//
// Start with SetupWithManager.
package extensionconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/queue"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
)

// concurrency limits how many extensions are called at a time: a slow one does not block the others.
const concurrency = 5

// Options configure the discovery. The zero value works.
type Options struct {
	Interval time.Duration // between two discoveries; a minute if it is 0
}

// A reconciler reconciles ExtensionConfigs.
type reconciler struct {
	cached     client.Client
	live       client.Reader // reads Secrets, which are not cached
	extensions runtimehook.Client
	interval   time.Duration
}

// SetupWithManager adds the controller of ExtensionConfigs to a manager.
func SetupWithManager(manager ctrl.Manager, o Options) error {
	r := &reconciler{
		cached: manager.GetClient(), live: manager.GetAPIReader(), interval: cmp.Or(o.Interval, time.Minute),
	}
	changes := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	return ctrl.NewControllerManagedBy(manager).
		Named("extensionconfig").
		WithOptions(queue.Backoff(concurrency, queue.RetrySoon)).
		For(&runtimev1.ExtensionConfig{}, builder.WithPredicates(changes)).
		Complete(r)
}

// Reconcile discovers the handlers of an extension, and writes the status.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	config := &runtimev1.ExtensionConfig{}
	if err := r.cached.Get(ctx, request.NamespacedName, config); err != nil || config.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if _, isPaused := config.Annotations[clusterv1.PausedAnnotation]; isPaused {
		return ctrl.Result{}, r.write(ctx, config, pausedStatus(config))
	}
	found, problem := r.discover(ctx, config)
	if ctx.Err() != nil {
		return ctrl.Result{}, ctx.Err()
	}
	if !apierrors.IsConflict(problem) {
		problem = errors.Join(problem, r.write(ctx, config, newStatus(config, found, problem)))
	}
	if apierrors.IsConflict(problem) { // the cache is outdated
		return ctrl.Result{RequeueAfter: queue.RetrySoon}, nil
	}
	return ctrl.Result{RequeueAfter: r.interval}, problem
}

// discover injects the certificate authority into the ExtensionConfig, and returns the handlers of the extension.
func (r *reconciler) discover(ctx context.Context,
	config *runtimev1.ExtensionConfig) ([]runtimev1.ExtensionHandler, error) {
	if err := r.injectCA(ctx, config); err != nil {
		return nil, err
	}
	return r.extensions.Discover(ctx, config)
}

// write writes a status. It fails with a conflict if the object has changed since it was read.
func (r *reconciler) write(ctx context.Context, config *runtimev1.ExtensionConfig,
	status runtimev1.ExtensionConfigStatus) error {
	if equality.Semantic.DeepEqual(config.Status, status) {
		return nil
	}
	changed := config.DeepCopy()
	changed.Status = status
	err := patch.StatusWithLock(ctx, r.cached, changed, config)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of ExtensionConfig %s: %w", config.Name, err)
	}
	return nil
}
