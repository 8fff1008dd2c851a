package payload

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"path"
	"strings"

	yaml "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// CreateOnlyAnnotation makes an object that is not there, and never touches it again.
const CreateOnlyAnnotation = "release.openshift.io/create-only"

// DeleteAnnotation makes a manifest a tombstone when its value is "true".
const DeleteAnnotation = "release.openshift.io/delete"

// A Manifest is one object of a payload, as it is to be applied. It must not be
// changed.
type Manifest struct {
	Path     string // in the release: release-manifests/0000_50_name_file.yaml
	Document int    // of the file, counted from 1
	Line     int    // of the file, where the object begins

	place  int // of its file among the files of the release
	object *unstructured.Unstructured
	id     kinds.ID
	sum    [sha256.Size]byte // of its text, with its template rendered and its images substituted
	text   chunk             // if it was to be kept

	isShifted bool // its template has other lines than what it was rendered to
}

// File is the name of the manifest's file, which says its level and component.
func (m *Manifest) File() string { return path.Base(m.Path) }

// Object is what the manifest holds. It must not be changed.
func (m *Manifest) Object() *unstructured.Unstructured { return m.object }

// ID says which object this is. A namespace where there can be none says nothing: API
// servers drop it.
func (m *Manifest) ID() kinds.ID { return m.id }

// manifestOf is the manifest of an object.
func manifestOf(object *unstructured.Unstructured) *Manifest {
	return &Manifest{object: object, id: idOf(object)}
}

func idOf(object *unstructured.Unstructured) kinds.ID {
	kind := object.GroupVersionKind()
	id := kinds.ID{Group: kind.Group, Kind: kind.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
	if id.Namespace != "" && kinds.ScopeOf(kind.GroupKind()) == kinds.Cluster {
		id.Namespace = ""
	}
	return id
}

// GroupVersionKind is the type of the object.
func (m *Manifest) GroupVersionKind() schema.GroupVersionKind {
	return m.object.GroupVersionKind()
}

// IsTombstone says that the object is to go.
func (m *Manifest) IsTombstone() bool {
	value, _, _ := unstructured.NestedFieldNoCopy(m.object.Object, "metadata", "annotations", DeleteAnnotation)
	return value == "true"
}

// IsCreateOnly says that the object is made if it is not there, and never changed. The value may be in any case, as
// upstream has it.
func (m *Manifest) IsCreateOnly() bool {
	value, _, _ := unstructured.NestedString(m.object.Object, "metadata", "annotations", CreateOnlyAnnotation)
	return strings.EqualFold(value, "true")
}

// Text is how the manifest is written, with its template rendered and its images
// substituted. It is empty unless Options.KeepText was set.
func (m *Manifest) Text() []byte { return m.text.text }

// TextLine is the line of the file where the text begins, which may be with comments.
func (m *Manifest) TextLine() int { return m.text.line }

// LinesAreRendered reports that lines are those of the rendered template, which differ from those of the file.
func (m *Manifest) LinesAreRendered() bool { return m.isShifted }

// Places finds the lines of the manifest's fields, and needs its text for it.
func (m *Manifest) Places() *Places { return newPlaces(m.text) }

// SameTextAs says whether two manifests are written alike, letter by letter. Then
// their objects are the same, which is far more work to find out.
func (m *Manifest) SameTextAs(other *Manifest) bool { return m.sum == other.sum }

// Sum is the same for manifests with the same text.
func (m *Manifest) Sum() [sha256.Size]byte { return m.sum }

// YAML is the object in YAML, its keys in order.
func (m *Manifest) YAML() ([]byte, error) { return yaml.Marshal(m.object.Object) }

// InOrder compares two manifests of a release by where they stand in it.
func InOrder(a, b *Manifest) int {
	return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.Document, b.Document))
}

// annotations are those of the object.
func (m *Manifest) annotations() map[string]string { return m.object.GetAnnotations() }

// problem is one at this manifest.
func (m *Manifest) problem(cause Cause, format string, args ...any) Problem {
	return Problem{
		File: m.Path, Line: m.Line, Document: m.Document, Object: m.ID().String(),
		Cause: cause, Message: fmt.Sprintf(format, args...),
	}
}

// WithAnnotation returns a copy of the manifest that has an annotation more, and another sum.
func (m *Manifest) WithAnnotation(key, value string) *Manifest {
	annotated := *m
	annotated.object = m.object.DeepCopy()
	annotations := annotated.object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	annotated.object.SetAnnotations(annotations)
	annotated.sum = sha256.Sum256(fmt.Appendf(m.sum[:len(m.sum):len(m.sum)], "%q=%q", key, value))
	return &annotated
}
