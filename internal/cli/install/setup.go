package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/runlevel/runlevel/internal/cli/core"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

var (
	clusterVersions = kinds.ClusterVersion.WithVersion("v1")
	deployments     = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	definitions     = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
)

// theOperator is the operator's Deployment.
var theOperator = kinds.ID{Group: "apps", Kind: "Deployment", Namespace: "runlevel-system", Name: "runlevel-operator"}

// rightsForReleases is the ClusterRole that an administrator may restrict. An install does not revert that.
var rightsForReleases = kinds.ID{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "runlevel-operator-apply"}

// theVersion is the ClusterVersion that the operator follows.
var theVersion = kinds.ID{Group: clusterVersions.Group, Kind: clusterVersions.Kind, Name: kinds.ClusterVersionName}

// An OperatorReport is the result of an install or uninstall of the operator, or of its dry run.
type OperatorReport struct {
	Release string           `json:"release,omitempty"`
	Image   string           `json:"image,omitempty"`
	DryRun  bool             `json:"dryRun,omitempty"`
	Objects []operatorChange `json:"objects"`
}

// An operatorChange is the change of one object.
type operatorChange struct {
	Object  kinds.ID      `json:"object"`
	Action  object.Action `json:"action"`
	Message string        `json:"message,omitempty"`
}

// An operatorSetup installs or uninstalls the operator, and reports the changes.
type operatorSetup struct {
	cluster *cluster.Cluster
	streams core.Streams
	format  core.Output
	report  OperatorReport
}

// note reports the change of an object: in text, it prints a line at once.
func (s *operatorSetup) note(id kinds.ID, action object.Action, message string) {
	s.report.Objects = append(s.report.Objects, operatorChange{id, action, message})
	if s.format != core.Text {
		return
	}
	if message != "" {
		message = ": " + message
	}
	if s.report.DryRun {
		message += " (dry run)"
	}
	fmt.Fprintf(s.streams.Out, "%-11s %s%s\n", action, id, message)
}

// printReport prints the report in JSON or YAML. In text, it was printed line by line.
func (s *operatorSetup) printReport() error {
	return s.format.Print(s.streams.Out, s.report, func(io.Writer) error { return nil })
}

// install applies the manifests with the program in them, and creates the ClusterVersion if there is none.
func (s *operatorSetup) install(ctx context.Context, program operatorProgram) error {
	if err := s.checkAlone(ctx); err != nil {
		return err
	}
	for _, object := range install.Objects() {
		if object.GroupVersionKind() == deployments {
			if err := s.ensureVersion(ctx); err != nil {
				return err
			}
			text, err := s.applySettings(ctx, program.flags)
			if err == nil {
				err = errors.Join(program.setIn(object), setSettings(object, text))
			}
			if err != nil {
				return err
			}
		}
		if err := s.apply(ctx, object); err != nil {
			return err
		}
	}
	monitoring, err := s.monitoring(ctx)
	if err != nil {
		return err
	}
	for _, object := range monitoring {
		if err := s.apply(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// monitoring returns the objects that have Prometheus watch the operator, if all of their kinds are served.
func (s *operatorSetup) monitoring(ctx context.Context) ([]*unstructured.Unstructured, error) {
	objects := install.Monitoring()
	for _, object := range objects {
		_, err := s.cluster.Find(ctx, object.GroupVersionKind())
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
func (s *operatorSetup) apply(ctx context.Context, wanted *unstructured.Unstructured) error {
	id := idOf(wanted)
	in, err := s.cluster.Find(ctx, wanted.GroupVersionKind())
	if err != nil {
		return err
	}
	before, err := s.cluster.In(in, id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get %s: %w", id, err)
	}
	exists := err == nil
	if exists && before.GetLabels()[objectmeta.ReleaseLabel] != "" {
		s.note(id, object.Left, "release "+before.GetLabels()[objectmeta.ReleaseLabel]+" has it")
		return nil
	}
	mode := cluster.Force
	if id == rightsForReleases {
		mode = cluster.NoForce
	}
	if s.report.DryRun {
		mode |= cluster.DryRun
	}
	result, err := s.cluster.Apply(ctx, in, wanted, mode)
	switch {
	case s.report.DryRun && apierrors.IsNotFound(err): // the namespace does not exist yet
		s.note(id, object.Created, "")
		return nil
	case id == rightsForReleases && apierrors.IsConflict(err):
		s.note(id, object.Left, "it was given other rules")
		return nil
	case err != nil:
		return fmt.Errorf("apply %s: %w", id, err)
	}
	core.Warn(s.streams.Err, result.Warnings)
	s.note(id, actionOf(before, exists, result.Object), "")
	if wanted.GroupVersionKind() == definitions && !s.report.DryRun {
		return s.establish(ctx, in, id.Name)
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

// establish waits until the API server serves the kind of a definition.
func (s *operatorSetup) establish(ctx context.Context, in cluster.Resource, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, core.AnswerTimeout, fmt.Errorf("it is not established after %s", core.AnswerTimeout))
	defer cancel()
	definition, err := sandbox.Await(ctx, s.cluster.In(in, ""), name, sandbox.HasCondition("Established"))
	if err != nil {
		return fmt.Errorf("CustomResourceDefinition %w", err)
	}
	s.cluster.Learn(definition)
	return nil
}

// ensureVersion creates the ClusterVersion, if there is none.
func (s *operatorSetup) ensureVersion(ctx context.Context) error {
	in, err := s.cluster.Find(ctx, clusterVersions)
	if s.report.DryRun && errors.Is(err, cluster.ErrNotServed) {
		s.note(theVersion, object.Created, "")
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
	if s.report.DryRun {
		how = cluster.DryRun
	}
	_, err = s.cluster.Create(ctx, in, version, how)
	if apierrors.IsAlreadyExists(err) {
		return s.noteVersion(ctx, in)
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", theVersion, err)
	}
	s.note(theVersion, object.Created, "")
	return nil
}

// noteVersion reports an existing ClusterVersion and its desired update, which takes precedence over --release.
func (s *operatorSetup) noteVersion(ctx context.Context, in cluster.Resource) error {
	version, err := s.cluster.In(in, "").Get(ctx, theVersion.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get %s: %w", theVersion, err)
	}
	message := ""
	if image, _, _ := unstructured.NestedString(version.Object, "spec", "desiredUpdate", "image"); image != "" {
		message = "it requests " + image + ", which the operator applies"
	}
	s.note(theVersion, object.Unchanged, message)
	return nil
}

// awaitOperator waits until the operator's Deployment is rolled out.
func (s *operatorSetup) awaitOperator(ctx context.Context, timeout time.Duration) error {
	in, err := s.cluster.Find(ctx, deployments)
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var verdict ready.Verdict
	_, err = sandbox.Await(waiting, s.cluster.In(in, theOperator.Namespace), theOperator.Name, func(seen *unstructured.Unstructured) bool {
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
	if s.format == core.Text {
		fmt.Fprintf(s.streams.Out, "the operator is available: \"oc get clusterversion\" shows how far the release is\n")
	}
	return nil
}

// idOf returns the name of an object.
func idOf(object *unstructured.Unstructured) kinds.ID {
	gvk := object.GroupVersionKind()
	return kinds.ID{Group: gvk.Group, Kind: gvk.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}
