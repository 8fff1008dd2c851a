package rolloutpreview

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
)

// WantedObjects are the desired MachineDeployment, and new templates for it.
type WantedObjects struct {
	deployment *clusterv1.MachineDeployment
	isUnsized  bool // the file has no spec.replicas
	templates  wantedTemplates
}

// wantedTemplates are the templates of a file, whose name is empty if there is none.
type wantedTemplates struct {
	file    string
	objects []*unstructured.Unstructured
}

// Namespace is the namespace of the MachineDeployment; empty if the file has none.
func (w *WantedObjects) Namespace() string { return w.deployment.Namespace }

// Read reads the documents of a file: the MachineDeployment of a name, and templates. Errors name the document and the
// field.
func Read(file string, text []byte, name string) (*WantedObjects, error) {
	w := &WantedObjects{templates: wantedTemplates{file: file}}
	documents, err := documentsOf(file, text)
	if err != nil {
		return nil, err
	}
	for i, document := range documents {
		if err := w.add(document, name); err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", file, i+1, err)
		}
	}
	if w.deployment == nil {
		return nil, fmt.Errorf("%s has no MachineDeployment %s: write it as it is to be", file, name)
	}
	return w, nil
}

// A document is a document of a file. Its object may be empty.
type document struct {
	json   []byte
	object *unstructured.Unstructured
}

// documentsOf returns the documents of a file.
func documentsOf(file string, text []byte) ([]document, error) {
	var found []document
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number := 1; ; number++ {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		d := document{object: &unstructured.Unstructured{}}
		if err == nil {
			d.json, err = yaml.YAMLToJSONStrict(part)
		}
		if err == nil && json.Unmarshal(d.json, &d.object.Object) != nil {
			err = errors.New("it is no object")
		}
		if err != nil {
			return nil, fmt.Errorf("%s, document %d: %s", file, number, strings.ReplaceAll(err.Error(), "\n", " "))
		}
		found = append(found, d)
	}
}

// readControlPlane reads what replaces the machines of a control plane, of a kind and a name, and the templates of a
// file. Errors name the document and the field.
func readControlPlane[T any](file string, text []byte, kind schema.GroupVersionKind,
	name string) (*T, wantedTemplates, error) {
	templates := wantedTemplates{file: file}
	documents, err := documentsOf(file, text)
	if err != nil {
		return nil, templates, err
	}
	var found *T
	for i, d := range documents {
		if strings.HasSuffix(d.object.GetKind(), clusterv1.TemplateSuffix) {
			templates.objects = append(templates.objects, d.object)
		}
		if d.object.GroupVersionKind() != kind || d.object.GetName() != name {
			continue
		}
		wanted := new(T)
		unknown, err := kjson.UnmarshalStrict(d.json, wanted)
		if err = errors.Join(append(unknown, err)...); err != nil {
			return nil, templates, fmt.Errorf("%s, document %d: %s %s: %s", file, i+1, kind.Kind, name,
				strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		if found != nil {
			return nil, templates, fmt.Errorf("%s, document %d: it is the %s once more: leave one", file, i+1,
				kind.Kind)
		}
		found = wanted
	}
	if found == nil {
		return nil, templates, fmt.Errorf("%s has no %s %s of %s: write it as it is to be", file, kind.Kind, name,
			kind.GroupVersion())
	}
	return found, templates, nil
}

// add adds one document. It may be empty.
func (w *WantedObjects) add(d document, name string) error {
	object := d.object
	switch kind := object.GroupVersionKind(); {
	case len(object.Object) == 0:
		return nil
	case kind == clusterv1.GroupVersion.WithKind("MachineDeployment") && object.GetName() == name:
		return w.setDeployment(d.json)
	case kind.Kind == "MachineDeployment":
		return fmt.Errorf("it is a MachineDeployment %s of %s: write MachineDeployment %s of %s", object.GetName(),
			object.GetAPIVersion(), name, clusterv1.GroupVersion)
	case !strings.HasSuffix(kind.Kind, clusterv1.TemplateSuffix):
		return fmt.Errorf("kind: it is %q, which is neither a MachineDeployment nor a template", kind.Kind)
	}
	w.templates.objects = append(w.templates.objects, object)
	return nil
}

func (w *WantedObjects) setDeployment(text []byte) error {
	if w.deployment != nil {
		return errors.New("it is the MachineDeployment once more: leave one")
	}
	d := &clusterv1.MachineDeployment{}
	unknown, err := kjson.UnmarshalStrict(text, d)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return fmt.Errorf("MachineDeployment %s: %s", d.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	w.isUnsized = d.Spec.Replicas == nil
	rolloutrules.SetDefaults(&d.Spec)
	if _, _, err := rolloutrules.Limits(&d.Spec); err != nil {
		return fmt.Errorf("MachineDeployment %s: %w", d.Name, err)
	}
	if !d.Spec.Template.Spec.InfrastructureRef.IsDefined() {
		return fmt.Errorf("MachineDeployment %s: spec.template.spec.infrastructureRef is not set", d.Name)
	}
	w.deployment = d
	return nil
}

// setUnsetReplicas sets spec.replicas, if the file leaves it out, as the controller does: live is the MachineDeployment
// of the cluster.
func (w *WantedObjects) setUnsetReplicas(live *unstructured.Unstructured) error {
	if !w.isUnsized {
		return nil
	}
	last, _, _ := unstructured.NestedInt64(live.Object, "spec", "replicas")
	unset, invalid := rolloutrules.UnsetReplicas(w.deployment.Annotations, int(last))
	if invalid != "" {
		return fmt.Errorf("MachineDeployment %s in %s: %s", w.deployment.Name, w.templates.file, invalid)
	}
	w.deployment.Spec.Replicas = unset
	return nil
}
