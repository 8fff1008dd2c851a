package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/config/clusteroperator/v1helpers"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ensureDefinitions creates the definitions of ClusterVersion and ClusterOperator unless they exist, and waits until
// their kinds are served. Existing ones stay as they are: they may be a release's, or OpenShift's. But none is owned by
// the ClusterVersion.
func ensureDefinitions(ctx context.Context, c *cluster.Cluster) error {
	definition, err := c.FindKind(ctx, kinds.CustomResourceDefinition)
	if err != nil {
		return err
	}
	for _, object := range install.Definitions() {
		_, err := c.Create(ctx, definition, object, cluster.NoForce)
		if apierrors.IsAlreadyExists(err) {
			err = disown(ctx, c, definition, object.GetName())
		}
		if err != nil {
			return fmt.Errorf("create %s: %w", object.GetName(), err)
		}
	}
	for _, kind := range []schema.GroupKind{kinds.ClusterVersion, kinds.ClusterOperator} {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				c.Refresh()
				_, err := c.FindKind(ctx, kind)
				return err == nil, nil
			})
		if err != nil {
			return fmt.Errorf("wait until %s is served: %w", kind, err)
		}
	}
	return nil
}

// disown removes the ClusterVersion from the owners of a definition.
func disown(ctx context.Context, c *cluster.Cluster, definition cluster.Resource, name string) error {
	live, err := c.GetMetadata(ctx, definition, "", name)
	if err != nil {
		return err
	}
	return ownership.Disown(ctx, c, definition, live)
}

// create creates the ClusterVersion.
func (r *reconciler) create(ctx context.Context) error {
	made := &unstructured.Unstructured{
		Object: map[string]any{"spec": map[string]any{"clusterID": string(uuid.NewUUID())}},
	}
	made.SetGroupVersionKind(configv1.GroupVersion.WithKind(kinds.ClusterVersion.Kind))
	made.SetName(clusterVersionMeta.Name)
	if err := r.client.Create(ctx, made); err != nil { // a typed one would have fields that the definition does not
		if apierrors.IsAlreadyExists(err) { // it is seen in a moment
			return nil
		}
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) { // its definition was deleted
			if recreated := ensureDefinitions(ctx, r.cluster); recreated != nil {
				err = recreated
			}
			return fmt.Errorf("the definition of ClusterVersion was deleted, and is recreated: %w", err)
		}
		return fmt.Errorf("create the ClusterVersion: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("created the ClusterVersion")
	return nil
}

// historyOf returns the history of a ClusterVersion with the entries that only the record has: all of them for one that
// is new or was recreated, and updates that the command line has begun since. Applies of the same release, with other
// filters, are no updates.
func (k *known) historyOf(v *configv1.ClusterVersion) []configv1.UpdateHistory {
	before, known := v.Status.History, k.record
	var history []configv1.UpdateHistory
	for _, entry := range known.History {
		image := k.recordedImage(v, entry)
		isKnown := len(before) > 0 &&
			(before[0].Version == entry.Version && before[0].Image == image ||
				!before[0].StartedTime.Before(&entry.Started))
		if isKnown {
			break
		}
		history = append(history, configv1.UpdateHistory{
			State: configv1.UpdateState(entry.State), Version: entry.Version, Image: image, StartedTime: entry.Started,
			CompletionTime: entry.Completed,
			Verified:       entry.Verified, AcceptedRisks: strings.Join(entry.Forced, ", "),
		})
	}
	before = slices.Clone(before)
	if len(history) > 0 && len(before) > 0 && before[0].CompletionTime == nil {
		before[0].CompletionTime = &history[len(history)-1].StartedTime // it was superseded
	}
	history = append(history, before...)
	for i := range history {
		if i > 0 && history[i].State == configv1.PartialUpdate {
			completeAsRecorded(&history[i], known)
		}
	}
	return history
}

// completeAsRecorded completes a superseded entry that is completed in the record: the next update may have begun
// before that could be written.
func completeAsRecorded(superseded *configv1.UpdateHistory, known *record.Record) {
	at := slices.IndexFunc(known.History, func(e record.HistoryEntry) bool {
		return e.Version == superseded.Version && imageIn(e) == superseded.Image &&
			!superseded.StartedTime.Before(&e.Started)
	})
	if at >= 0 && known.History[at].State == record.Completed {
		superseded.State, superseded.CompletionTime = configv1.CompletedUpdate, known.History[at].Completed
	}
}

// precreate creates the ClusterOperators of a release before anything else, with their relatedObjects, so that
// must-gather knows the objects of an install that gets no further.
func precreate(ctx context.Context, c *cluster.Cluster, p *payload.Payload) error {
	for _, m := range p.Manifests {
		if m.ID().GroupKind() != kinds.ClusterOperator || m.IsTombstone() {
			continue
		}
		if err := precreateOperator(ctx, c, p.Name, m); err != nil {
			ctrl.LoggerFrom(ctx).Info("ClusterOperator not made ahead", "name", m.ID().Name, "reason", err.Error())
		}
	}
	return ctx.Err()
}

// precreateOperator creates one ClusterOperator, unless it exists.
func precreateOperator(ctx context.Context, c *cluster.Cluster, release string, m *payload.Manifest) error {
	resource, err := c.Find(ctx, m.GroupVersionKind())
	if err != nil {
		return err
	}
	related, hasRelated, _ := unstructured.NestedSlice(m.Object().Object, "status", "relatedObjects")
	object := ownership.Draft(m.Object(), objectmeta.ReleaseLabel, release)
	made, err := c.Apply(ctx, resource, object, cluster.CreateOnly)
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return nil
	case err != nil || !hasRelated:
		return err
	}
	for _, item := range related {
		if fields, isObject := item.(map[string]any); isObject && fields["name"] == nil {
			// all objects of the resource: the definition requires the field, manifests leave it out
			fields["name"] = ""
		}
	}
	if err := unstructured.SetNestedSlice(made.Object.Object, related, "status", "relatedObjects"); err != nil {
		return err
	}
	_, err = c.In(resource, "").UpdateStatus(ctx, made.Object, metav1.UpdateOptions{FieldManager: cluster.FieldManager})
	return err
}

// addOperators adds the problems that the ClusterOperators of a complete release report, and the missing ones.
func (a *applier) addOperators(applied *clusterversion.AppliedRelease, all []configv1.ClusterOperator, isInstall bool) {
	for _, m := range a.current().payload.Manifests {
		if m.ID().GroupKind() != kinds.ClusterOperator || m.IsTombstone() {
			continue
		}
		at := slices.IndexFunc(all, func(o configv1.ClusterOperator) bool { return o.Name == m.ID().Name })
		if at < 0 {
			applied.MissingOperators = append(applied.MissingOperators, m.ID().Name)
			continue
		}
		if problem, found := operatorProblem(m, &all[at], isInstall); found {
			applied.Problems = append(applied.Problems, problem)
		}
	}
}

// operatorProblem returns the problem that a ClusterOperator of the release reports.
func operatorProblem(m *payload.Manifest, reported *configv1.ClusterOperator,
	isInstall bool) (problem clusterversion.ReleaseProblem, found bool) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(reported)
	if err != nil {
		return problem, false // it can't be: it came from the API server
	}
	live := &unstructured.Unstructured{Object: object}
	// which a typed one does not have
	live.SetGroupVersionKind(configv1.GroupVersion.WithKind(kinds.ClusterOperator.Kind))
	verdict := ready.Check(live, ready.Upstream, ready.Related{Manifest: m.Object(), Installing: isInstall})
	if verdict.State == ready.Ready {
		return problem, false
	}
	wait := apply.Wait{
		ID:     m.ID(),
		File:   m.Path,
		For:    verdict.Message,
		Reason: verdict.Reason,
		Effect: verdict.Effect,
		Since:  lastTransition(reported).Time,
	}
	return clusterversion.ReleaseProblem{Wait: wait, IsWait: true}, true
}

// lastTransition returns when a ClusterOperator last changed whether it is available, or degraded.
func lastTransition(operator *configv1.ClusterOperator) (last metav1.Time) {
	for _, kind := range []configv1.ClusterStatusConditionType{configv1.OperatorAvailable, configv1.OperatorDegraded} {
		if condition := v1helpers.FindStatusCondition(operator.Status.Conditions, kind); condition != nil &&
			last.Before(&condition.LastTransitionTime) {
			last = condition.LastTransitionTime
		}
	}
	return last
}
