// Package clusteroperator reports the state of a controller in the status of its ClusterOperator: whether it is available,
// its version, what an administrator has to fix, and whether a minor update is allowed. It finds out which rights the
// controller lacks from the requests that the API server refuses.
//
// It does not know the work of the controller: ReporterOptions.Status returns its state.
//
// NewReporter is the call to start from.
package clusteroperator

import (
	"context"
	"errors"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reportEvery is how often the status is checked. The ClusterOperator itself is read each time, because other clients may
// have changed it.
const reportEvery = 10 * time.Second

// ReporterOptions describe the controller. All are required.
type ReporterOptions struct {
	Name           string // of the ClusterOperator, and of the controller's service account
	Namespace      string // of the service account
	Version        string // of the release
	RelatedObjects []configv1.ObjectReference
	// Status returns the state of the controller. It is called often, and should read from caches.
	Status  func(context.Context) (ControllerStatus, error)
	Denials *Denials // of the controller's connection
}

// A StatusReporter writes the status of the ClusterOperator, when it changes. It is a runnable of a manager, for the
// leader.
type StatusReporter struct {
	ReporterOptions
	client    client.Client // without a cache
	lastError string        // why the status can't be written; it is logged when it changes
}

// NewReporter returns a reporter. Its own requests are not checked for missing rights.
func NewReporter(connection *rest.Config, o ReporterOptions) (*StatusReporter, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(configv1.Install(scheme), authorizationv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(connection, client.Options{Scheme: scheme})
	return &StatusReporter{ReporterOptions: o, client: c}, err
}

// Start reports until ctx ends.
func (r *StatusReporter) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) { r.log(ctx, r.report(ctx)) }, reportEvery)
	return nil
}

// log logs why the status can't be written, once.
func (r *StatusReporter) log(ctx context.Context, err error) {
	now := ""
	switch {
	case err == nil || ctx.Err() != nil:
	case meta.IsNoMatchError(err):
		now = "ClusterOperators are not served on this cluster, so that the controller's conditions are only in its log and metrics"
	default:
		now = err.Error()
	}
	if now != "" && now != r.lastError {
		ctrl.LoggerFrom(ctx).Info("status not reported", "reason", now)
	}
	r.lastError = now
}

// report writes the status if it has changed.
func (r *StatusReporter) report(ctx context.Context) error {
	lacking, err := r.Denials.stillLacking(ctx, r.client)
	if err != nil {
		return err
	}
	status, err := r.Status(ctx)
	if err != nil {
		return err
	}
	found, err := r.clusterOperator(ctx)
	if err != nil {
		return err
	}
	next := r.next(found.Status, status, lacking, metav1.Now())
	if equality.Semantic.DeepEqual(found.Status, next) {
		return nil
	}
	found.Status = next
	if err := r.client.Status().Update(ctx, found); err != nil {
		return fmt.Errorf("write the status of ClusterOperator %s: %w", r.Name, err)
	}
	return nil
}

// clusterOperator returns the ClusterOperator. It creates one if there is none.
func (r *StatusReporter) clusterOperator(ctx context.Context) (*configv1.ClusterOperator, error) {
	found := &configv1.ClusterOperator{}
	err := r.client.Get(ctx, client.ObjectKey{Name: r.Name}, found)
	if apierrors.IsNotFound(err) {
		found = &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: r.Name}}
		err = r.client.Create(ctx, found)
	}
	if err != nil {
		return nil, fmt.Errorf("read ClusterOperator %s: %w", r.Name, err)
	}
	return found, nil
}
