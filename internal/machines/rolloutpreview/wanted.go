package rolloutpreview

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	machinev1 "github.com/openshift/api/machine/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/typedread"
)

// A Wanted is the object of a file, and the templates of the file.
type Wanted struct {
	kind      schema.GroupVersionKind
	name      string
	object    metav1.Object // a pointer of the kind's type; nil while the file is read
	isUnsized bool          // a MachineDeployment without spec.replicas
	templates templates
}

// Namespace returns the namespace of the object; "" if the file has none.
func (w *Wanted) Namespace() string { return w.object.GetNamespace() }

// Read reads the object of a kind and a name, and templates, from a file. Errors name the document and the field.
func Read(kind schema.GroupVersionKind, name, file string, text []byte) (*Wanted, error) {
	w := &Wanted{kind: kind, name: name, templates: templates{file: file}}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = w.addDocument(document)
		}
		if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", file, number, err)
		}
	}
	if w.object == nil {
		return nil, fmt.Errorf("%s does not contain %s %s of %s", file, kind.Kind, name, kind.GroupVersion())
	}
	return w, nil
}

// addDocument adds one document of the file. It may be empty.
func (w *Wanted) addDocument(document []byte) error {
	text, err := yaml.YAMLToJSONStrict(document)
	object := &unstructured.Unstructured{}
	if err == nil && json.Unmarshal(text, &object.Object) != nil {
		err = errors.New("not an object")
	}
	if err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	switch kind := object.GroupVersionKind(); {
	case len(object.Object) == 0:
	case kind == w.kind && object.GetName() == w.name:
		return w.setObject(text)
	case strings.HasSuffix(kind.Kind, clusterv1.TemplateSuffix):
		w.templates.objects = append(w.templates.objects, object)
	case w.kind != DeploymentKind: // a file with a control plane may have any other objects
	case kind.Kind == DeploymentKind.Kind:
		return fmt.Errorf("unexpected MachineDeployment %s of %s, expected MachineDeployment %s of %s",
			object.GetName(), object.GetAPIVersion(), w.name, w.kind.GroupVersion())
	default:
		return fmt.Errorf("kind %q is neither a MachineDeployment nor a template", kind.Kind)
	}
	return nil
}

// setObject sets the wanted object from its JSON, with the defaults of the API.
func (w *Wanted) setObject(text []byte) error {
	if w.object != nil {
		return fmt.Errorf("%s %s is defined twice", w.kind.Kind, w.name)
	}
	switch w.kind {
	case DeploymentKind:
		w.object = &clusterv1.MachineDeployment{}
	case RunlevelControlPlaneKind:
		w.object = &v1alpha1.RunlevelControlPlane{}
	default:
		w.object = &machinev1.ControlPlaneMachineSet{}
	}
	unknown, err := kjson.UnmarshalStrict(text, w.object)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return fmt.Errorf("%s %s: %s", w.kind.Kind, w.name, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	deployment, ok := w.object.(*clusterv1.MachineDeployment)
	if !ok {
		return nil
	}
	w.isUnsized = deployment.Spec.Replicas == nil
	rolloutrules.SetDefaults(&deployment.Spec)
	if _, _, err = rolloutrules.Limits(&deployment.Spec); err != nil {
		return fmt.Errorf("MachineDeployment %s: %w", w.name, err)
	}
	if !deployment.Spec.Template.Spec.InfrastructureRef.IsDefined() {
		return fmt.Errorf("MachineDeployment %s: spec.template.spec.infrastructureRef is not set", w.name)
	}
	return nil
}

// readLive reads the object of a query from the cluster. If a file has the object, it need not exist: the result is an
// empty object then.
func readLive[T any](ctx context.Context, c *cluster.Cluster, q Query) (live *T, isNew bool, err error) {
	live, err = typedread.Get[T](ctx, c, q.Kind, q.Namespace, q.Name)
	switch {
	case errors.Is(err, cluster.ErrNotServed):
		page := "docs/machines.md"
		if q.Kind == DeploymentKind {
			page = "docs/machines-cluster-api.md"
		}
		return nil, false, fmt.Errorf("the cluster does not serve %ss of %s: install the machine controller (%s)",
			q.Kind.Kind, q.Kind.GroupVersion(), page)
	case apierrors.IsNotFound(err) && q.Kind == DeploymentKind:
		return nil, true, fmt.Errorf("MachineDeployment %s does not exist in namespace %s", q.Name, q.Namespace)
	case apierrors.IsNotFound(err) && q.Wanted == nil:
		return nil, true,
			fmt.Errorf("%s %s does not exist in namespace %s: pass its namespace with -n, or a file with -f",
				q.Kind.Kind, q.Name, q.Namespace)
	case apierrors.IsNotFound(err):
		return new(T), true, nil
	case err != nil:
		return nil, false, fmt.Errorf("read %s %s/%s: %w", q.Kind.Kind, q.Namespace, q.Name, err)
	}
	return live, false, nil
}

// templates are the templates of a file. The name of the file is empty if it has none.
type templates struct {
	file    string
	objects []*unstructured.Unstructured
}

// find returns a template of the file or the cluster. A template in both must have the same spec.
func (t templates) find(ctx context.Context, c *cluster.Cluster, ref clusterv1.ContractVersionedObjectReference,
	namespace string) (*unstructured.Unstructured, error) {
	live, err := readReferenced(ctx, c, ref, namespace)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(t.objects, func(template *unstructured.Unstructured) bool {
		return template.GetName() == ref.Name && template.GroupVersionKind().GroupKind() == ref.GroupKind()
	})
	switch {
	case live == nil && i < 0 && t.file == "":
		return nil, fmt.Errorf("%s %s does not exist on the cluster: create it", ref.Kind, ref.Name)
	case live == nil && i < 0:
		return nil, fmt.Errorf("%s %s is neither in %s nor on the cluster: add it to %s", ref.Kind, ref.Name,
			t.file, t.file)
	case live == nil:
		return t.objects[i], nil
	case i >= 0 && !equality.Semantic.DeepEqual(live.Object["spec"], t.objects[i].Object["spec"]):
		return nil,
			fmt.Errorf("%s %s has another spec on the cluster than in %s: give the changed template another name",
				ref.Kind, ref.Name, t.file)
	}
	return live, nil
}

// readReferenced returns a referenced object of the cluster; nil if it does not exist.
func readReferenced(ctx context.Context, c *cluster.Cluster, ref clusterv1.ContractVersionedObjectReference,
	namespace string) (*unstructured.Unstructured, error) {
	kind := schema.GroupVersionKind{Group: ref.APIGroup, Kind: ref.Kind}
	object, err := typedread.GetUnstructured(ctx, c, kind, namespace, ref.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	return object, nil
}
