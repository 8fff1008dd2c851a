// Package clusteroperator reports the state of a controller in the status of its ClusterOperator: its availability, its
// version, problems that an administrator has to fix, and whether a minor update is allowed. It reports missing rights
// of the controller, which it reads from refusals of the API server.
//
// Options.Status returns the state of the controller.
//
// Start with NewReporter.
package clusteroperator

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	"github.com/runlevel/runlevel/internal/text/printable"
)

// reportEvery is the interval of checks of the status. The ClusterOperator itself is read each time, because other
// clients may have changed it.
const reportEvery = 10 * time.Second

// Options describe the controller. All are required.
type Options struct {
	Name           string // name of the ClusterOperator, and of the controller's service account
	Namespace      string // namespace of the service account
	Version        string // version of the release
	RelatedObjects []configv1.ObjectReference
	// Status returns the state of the controller. It is called often, and should read from caches.
	Status  func(context.Context) (Status, error)
	Denials *Denials // denials of the controller's connection
}

// A Reporter writes the status of the ClusterOperator, when it changes. It is a runnable of a manager, for the
// leader.
type Reporter struct {
	Options
	client    client.Client // without a cache
	lastError string        // why the status can't be written; it is logged when it changes
}

// NewReporter returns a reporter. Its own requests are not checked for missing rights.
func NewReporter(connection *rest.Config, o Options) (*Reporter, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(configv1.Install(scheme), authorizationv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(connection, client.Options{Scheme: scheme})
	return &Reporter{Options: o, client: c}, err
}

// Start reports until ctx ends.
func (r *Reporter) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) { r.log(ctx, r.report(ctx)) }, reportEvery)
	return nil
}

// log logs each error of writing the status once.
func (r *Reporter) log(ctx context.Context, err error) {
	now := ""
	switch {
	case err == nil || ctx.Err() != nil:
	case meta.IsNoMatchError(err):
		now = "ClusterOperators are not served on this cluster, so that the controller's conditions are only in its " +
			"log and metrics"
	default:
		now = err.Error()
	}
	if now != "" && now != r.lastError {
		ctrl.LoggerFrom(ctx).Info("status not reported", "reason", now)
	}
	r.lastError = now
}

// report writes the status if it has changed.
func (r *Reporter) report(ctx context.Context) error {
	lacking, err := r.Denials.reviewDenials(ctx, r.client)
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
func (r *Reporter) clusterOperator(ctx context.Context) (*configv1.ClusterOperator, error) {
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

// The reasons of conditions of every controller.
const (
	ReasonAsExpected    = "AsExpected"
	ReasonStarting      = "Starting"
	ReasonRightsMissing = "RightsMissing"
)

// A Status is the state of a controller and of its work.
type Status struct {
	// Awaits is the reason why the controller waits at its start; empty once it is available.
	Awaits string
	// Degraded is the problem that an administrator has to fix, NotUpgradeable the problem that prevents a minor
	// update.
	Degraded, NotUpgradeable Problem
}

// A Problem is the reason and the message of a condition. It is empty if there is no problem.
type Problem struct{ Reason, Message string }

// next returns the next status, from the status before, the state of the controller, and the rights that it lacks.
func (o Options) next(before configv1.ClusterOperatorStatus, s Status, lacking []string,
	now metav1.Time) configv1.ClusterOperatorStatus {
	after := *before.DeepCopy()
	if s.Awaits == "" {
		after.Versions = []configv1.OperandVersion{{Name: "operator", Version: o.Version}}
	}
	after.RelatedObjects = o.RelatedObjects
	for _, wanted := range []configv1.ClusterOperatorStatusCondition{
		s.available(), o.progressing(before, s), o.degraded(s, lacking),
		condition(configv1.OperatorUpgradeable, configv1.ConditionFalse, s.NotUpgradeable),
	} {
		wanted.LastTransitionTime = now
		i := slices.IndexFunc(after.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool {
			return c.Type == wanted.Type
		})
		if i < 0 {
			after.Conditions = append(after.Conditions, wanted)
			continue
		}
		if after.Conditions[i].Status == wanted.Status {
			wanted.LastTransitionTime = after.Conditions[i].LastTransitionTime
		}
		after.Conditions[i] = wanted
	}
	return after
}

// condition returns a condition with the status ofProblem if there is a problem, and the opposite status if there is
// none.
func condition(name configv1.ClusterStatusConditionType, ofProblem configv1.ConditionStatus,
	p Problem) configv1.ClusterOperatorStatusCondition {
	c := configv1.ClusterOperatorStatusCondition{Type: name, Status: ofProblem, Reason: p.Reason, Message: p.Message}
	if p.Reason != "" {
		return c
	}
	c.Reason, c.Status = ReasonAsExpected, configv1.ConditionTrue
	if ofProblem == configv1.ConditionTrue {
		c.Status = configv1.ConditionFalse
	}
	return c
}

func (s Status) available() configv1.ClusterOperatorStatusCondition {
	var p Problem
	if s.Awaits != "" {
		p = Problem{ReasonStarting, s.Awaits}
	}
	return condition(configv1.OperatorAvailable, configv1.ConditionFalse, p)
}

func (o Options) progressing(before configv1.ClusterOperatorStatus,
	s Status) configv1.ClusterOperatorStatusCondition {
	isNew := !slices.ContainsFunc(before.Versions, func(v configv1.OperandVersion) bool {
		return v.Name == "operator" && v.Version == o.Version
	})
	var p Problem
	if isNew && s.Awaits != "" {
		p = Problem{ReasonStarting, "working towards " + o.Version}
	}
	return condition(configv1.OperatorProgressing, configv1.ConditionTrue, p)
}

// degraded reports missing rights first: they may be the cause of other problems.
func (o Options) degraded(s Status, lacking []string) configv1.ClusterOperatorStatusCondition {
	p := s.Degraded
	if len(lacking) > 0 {
		p = Problem{ReasonRightsMissing,
			fmt.Sprintf("service account %s/%s lacks the right to %s", o.Namespace, o.Name, List(lacking))}
	}
	return condition(configv1.OperatorDegraded, configv1.ConditionTrue, p)
}

// maxNames bounds the names in a message.
const maxNames = 5

// List returns the first names in order, and how many more there are.
func List(names []string) string {
	return printable.Few(slices.Sorted(slices.Values(names)), maxNames)
}
