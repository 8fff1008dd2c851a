package operator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ensureDefinitions creates the definitions of ClusterVersion and ClusterOperator unless they exist, and waits until
// their kinds are served. It changes nothing else in existing ones, which may belong to a release or to OpenShift, than
// an owner reference to the ClusterVersion, which it removes.
func ensureDefinitions(ctx context.Context, c *cluster.Cluster) error {
	definition, err := c.FindKind(ctx, kinds.CustomResourceDefinition)
	if err != nil {
		return err
	}
	for _, object := range install.Definitions() {
		_, err := c.Create(ctx, definition, object, cluster.NoForce)
		if apierrors.IsAlreadyExists(err) {
			var live *metav1.PartialObjectMetadata
			if live, err = c.GetMetadata(ctx, definition, "", object.GetName()); err == nil {
				err = ownership.Disown(ctx, c, definition, live)
			}
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

// create creates the ClusterVersion.
func (r *reconciler) create(ctx context.Context) error {
	version := &unstructured.Unstructured{ // a typed one would have fields that the definition lacks
		Object: map[string]any{"spec": map[string]any{"clusterID": string(uuid.NewUUID())}},
	}
	version.SetGroupVersionKind(configv1.GroupVersion.WithKind(kinds.ClusterVersion.Kind))
	version.SetName(clusterVersionMeta.Name)
	switch err := r.client.Create(ctx, version); {
	case err == nil:
		ctrl.LoggerFrom(ctx).Info("created the ClusterVersion")
		return nil
	case apierrors.IsAlreadyExists(err): // the cache will have it in a moment
		return nil
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return fmt.Errorf("the definition of ClusterVersion was deleted, and is recreated: %w",
			cmp.Or(ensureDefinitions(ctx, r.cluster), err))
	default:
		return fmt.Errorf("create the ClusterVersion: %w", err)
	}
}

// precreate creates the ClusterOperators of a release before its other objects, with their relatedObjects: must-gather
// reads there which objects it collects, also of an install that fails early.
func precreate(ctx context.Context, c *cluster.Cluster, p *payload.Payload) error {
	for _, m := range operatorsOf(p) {
		if err := precreateOperator(ctx, c, p.Name, m); err != nil {
			ctrl.LoggerFrom(ctx).Info("ClusterOperator not created ahead of the release", "name", m.ID().Name, "reason",
				err.Error())
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
	created, err := c.Apply(ctx, resource, object, cluster.CreateOnly)
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return nil
	case err != nil || !hasRelated:
		return err
	}
	for _, item := range related {
		if fields, isObject := item.(map[string]any); isObject && fields["name"] == nil {
			fields["name"] = "" // means all objects; the definition requires the field, and manifests may lack it
		}
	}
	if err := unstructured.SetNestedSlice(created.Object.Object, related, "status", "relatedObjects"); err != nil {
		return err
	}
	_, err = c.In(resource, "").UpdateStatus(ctx, created.Object,
		metav1.UpdateOptions{FieldManager: cluster.FieldManager})
	return err
}
