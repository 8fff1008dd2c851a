// Package setup installs the operator on a cluster, and uninstalls it.
//
// It applies the manifests of package install with the operator's image and settings in them. It knows nothing of the
// release that the operator applies afterwards, beyond its name, and prints nothing: an Installer reports each change.
//
// Start with Installer.Install.
package setup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

var (
	clusterVersions = kinds.ClusterVersion.WithVersion("v1")
	deployments     = kinds.Deployment.WithVersion("v1")
	definitions     = kinds.CustomResourceDefinition.WithVersion("v1")
)

// theOperator is the operator's Deployment.
var theOperator = kinds.NewID(kinds.Deployment, "runlevel-system", "runlevel-operator")

// rightsForReleases is the ClusterRole that an administrator may restrict. An install does not revert that.
var rightsForReleases = kinds.NewID(kinds.ClusterRole, "", "runlevel-operator-apply")

// theVersion is the ClusterVersion that the operator follows.
var theVersion = kinds.NewID(clusterVersions.GroupKind(), "", kinds.ClusterVersionName)

// A Change is the change of one object by an install or uninstall.
type Change struct {
	Object  kinds.ID      `json:"object"`
	Action  object.Action `json:"action"`
	Message string        `json:"message,omitempty"`
}

// An Installer installs or uninstalls the operator.
type Installer struct {
	Cluster   *cluster.Cluster
	IsDryRun  bool
	OnChange  func(Change)            // called for each object, once it is changed or left
	OnWarning func(warnings []string) // called with the warnings of the API server
}

// note reports the change of an object.
func (i *Installer) note(id kinds.ID, action object.Action, message string) {
	i.OnChange(Change{id, action, message})
}

// Install applies the manifests with the program in them, and creates the ClusterVersion if there is none.
func (i *Installer) Install(ctx context.Context, program Program) error {
	if err := i.checkAlone(ctx); err != nil {
		return err
	}
	settings, err := i.mergeSettings(ctx, program.Settings)
	if err != nil {
		return err
	}
	for _, object := range install.Objects() {
		if object.GroupVersionKind() == deployments {
			if err := i.ensureVersion(ctx); err != nil {
				return err
			}
			if len(program.Settings) > 0 {
				if err := i.applySettings(ctx, settings); err != nil {
					return err
				}
			}
			if err := errors.Join(program.setIn(object), setSettings(object, settings)); err != nil {
				return err
			}
		}
		if err := i.apply(ctx, object); err != nil {
			return err
		}
	}
	monitoring, err := i.monitoring(ctx)
	if err != nil {
		return err
	}
	for _, object := range monitoring {
		if err := i.apply(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// monitoring returns the objects that have Prometheus watch the operator, if all of their kinds are served.
func (i *Installer) monitoring(ctx context.Context) ([]*unstructured.Unstructured, error) {
	objects := install.Monitoring()
	for _, object := range objects {
		_, err := i.Cluster.Find(ctx, object.GroupVersionKind())
		if errors.Is(err, cluster.ErrNotServed) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// apply applies an object, unless it belongs to a release. It waits until a definition is established.
func (i *Installer) apply(ctx context.Context, wanted *unstructured.Unstructured) error {
	id := idOf(wanted)
	resource, err := i.Cluster.Find(ctx, wanted.GroupVersionKind())
	if err != nil {
		return err
	}
	before, err := i.Cluster.In(resource, id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get %s: %w", id, err)
	}
	exists := err == nil
	if exists && before.GetLabels()[objectmeta.ReleaseLabel] != "" {
		i.note(id, object.Left, "release "+before.GetLabels()[objectmeta.ReleaseLabel]+" has it")
		return nil
	}
	mode := cluster.Force
	if id == rightsForReleases {
		mode = cluster.NoForce
	}
	if i.IsDryRun {
		mode |= cluster.DryRun
	}
	result, err := i.Cluster.Apply(ctx, resource, wanted, mode)
	switch {
	case i.IsDryRun && apierrors.IsNotFound(err): // the namespace does not exist yet
		i.note(id, object.Created, "")
		return nil
	case id == rightsForReleases && apierrors.IsConflict(err):
		i.note(id, object.Left, "it was given other rules")
		return nil
	case err != nil:
		return fmt.Errorf("apply %s: %w", id, err)
	}
	i.OnWarning(result.Warnings)
	i.note(id, actionOf(before, exists, result.Object), "")
	if wanted.GroupVersionKind() == definitions && !i.IsDryRun {
		return i.establish(ctx, resource, id.Name)
	}
	return nil
}

// actionOf returns the action of an apply on an object.
func actionOf(before *unstructured.Unstructured, exists bool, after *unstructured.Unstructured) object.Action {
	content := func(o *unstructured.Unstructured) map[string]any {
		o = o.DeepCopy()
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		o.SetGeneration(0)
		unstructured.RemoveNestedField(o.Object, "status")
		return o.Object
	}
	switch {
	case !exists:
		return object.Created
	case equality.Semantic.DeepEqual(content(before), content(after)):
		return object.Unchanged
	default:
		return object.Configured
	}
}

// establishTimeout limits the time until the API server serves a kind.
const establishTimeout = 30 * time.Second

// establish waits until the API server serves the kind of a definition.
func (i *Installer) establish(ctx context.Context, resource cluster.Resource, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, establishTimeout,
		fmt.Errorf("it is not established after %s", establishTimeout))
	defer cancel()
	definition, err := objectwatch.Await(ctx, i.Cluster.In(resource, ""), name, objectwatch.HasCondition("Established"))
	if err != nil {
		return fmt.Errorf("CustomResourceDefinition %w", err)
	}
	i.Cluster.Learn(definition)
	return nil
}

// ensureVersion creates the ClusterVersion, if there is none.
func (i *Installer) ensureVersion(ctx context.Context) error {
	resource, err := i.Cluster.Find(ctx, clusterVersions)
	if i.IsDryRun && errors.Is(err, cluster.ErrNotServed) {
		i.note(theVersion, object.Created, "")
		return nil
	}
	if err != nil {
		return err
	}
	version := &unstructured.Unstructured{}
	version.SetGroupVersionKind(clusterVersions)
	version.SetName(theVersion.Name)
	version.Object["spec"] = map[string]any{"clusterID": string(uuid.NewUUID())}
	how := cluster.NoForce
	if i.IsDryRun {
		how = cluster.DryRun
	}
	_, err = i.Cluster.Create(ctx, resource, version, how)
	if apierrors.IsAlreadyExists(err) {
		return i.noteVersion(ctx, resource)
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", theVersion, err)
	}
	i.note(theVersion, object.Created, "")
	return nil
}

// noteVersion reports an existing ClusterVersion and its desired update, which takes precedence over --release.
func (i *Installer) noteVersion(ctx context.Context, resource cluster.Resource) error {
	version, err := i.Cluster.In(resource, "").Get(ctx, theVersion.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get %s: %w", theVersion, err)
	}
	message := ""
	image, _, _ := unstructured.NestedString(version.Object, "spec", "desiredUpdate", "image")
	mode, _, _ := unstructured.NestedString(version.Object, "spec", "desiredUpdate", "mode")
	if image != "" && mode == "" { // otherwise it only requests a preflight
		message = "it requests " + image + ", which the operator applies"
	}
	i.note(theVersion, object.Unchanged, message)
	return nil
}

// AwaitOperator waits until the operator's Deployment is rolled out.
func (i *Installer) AwaitOperator(ctx context.Context, timeout time.Duration) error {
	resource, err := i.Cluster.Find(ctx, deployments)
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var verdict ready.Verdict
	_, err = objectwatch.Await(waiting, i.Cluster.In(resource, theOperator.Namespace), theOperator.Name,
		func(seen *unstructured.Unstructured) bool {
			verdict = ready.Check(seen, ready.Full, ready.Related{})
			return verdict.State != ready.Waiting
		})
	ask := fmt.Sprintf("\"runlevel why deployment/%s -n %s\" shows why", theOperator.Name, theOperator.Namespace)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case waiting.Err() != nil:
		return fmt.Errorf("%s is not available after %s: %s: %s", theOperator, timeout, verdict.Message, ask)
	case err != nil:
		return err
	case verdict.State == ready.Failed:
		return fmt.Errorf("%s is not available: %s: %s", theOperator, verdict.Message, ask)
	}
	return nil
}

// idOf returns the name of an object.
func idOf(object *unstructured.Unstructured) kinds.ID {
	return kinds.IDOf(object)
}

// clusterVersionOperator is the Deployment of the cluster-version operator.
var clusterVersionOperator = kinds.NewID(kinds.Deployment, "openshift-cluster-version", "cluster-version-operator")

// checkAlone returns an error if a release contains the operator, since the release sets its image. It also returns an
// error if a cluster-version operator runs, which would apply its own release to the same objects.
func (i *Installer) checkAlone(ctx context.Context) error {
	deploymentsOf := i.Cluster.Client.AppsV1().Deployments
	own, err := deploymentsOf(theOperator.Namespace).Get(ctx, theOperator.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("get %s: %w", theOperator, err)
	case own.Labels[objectmeta.ReleaseLabel] != "":
		return fmt.Errorf("the operator is part of release %s on this cluster, and is updated with it: to start "+
			"over, \"runlevel uninstall --operator\" first", own.Labels[objectmeta.ReleaseLabel])
	}
	theirs, err := deploymentsOf(clusterVersionOperator.Namespace).Get(ctx, clusterVersionOperator.Name,
		metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("get %s: %w", clusterVersionOperator, err)
	case ptr.Deref(theirs.Spec.Replicas, 1) > 0:
		return fmt.Errorf("%s runs, and would apply its own release to the same objects: to replace it, \"kubectl -n "+
			"%s scale deployment/%s --replicas=0\" first",
			clusterVersionOperator, clusterVersionOperator.Namespace, clusterVersionOperator.Name)
	}
	return nil
}
