package payload

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v2"
	yaml3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// CreateOnlyAnnotation makes Runlevel create an object that does not exist, and never change it.
const CreateOnlyAnnotation = "release.openshift.io/create-only"

// DeleteAnnotation makes a manifest a tombstone if its value is "true".
const DeleteAnnotation = "release.openshift.io/delete"

// A Manifest is one object of a payload, as an apply applies it. Callers must not change it.
type Manifest struct {
	Path     string // path in the release: release-manifests/0000_50_name_file.yaml
	Document int    // index in the file, counted from 1
	Line     int    // line of the file where the object begins

	place   int           // index of the file among the files of the release
	order   string        // level and component by its kind, if no file has any: see orderByKind
	foreign *ForeignPlace // place in the order of another tool, if no file has a level
	object  *unstructured.Unstructured
	id      kinds.ID
	sum     [sha256.Size]byte // checksum of the text, with its template rendered and its images substituted
	text    chunk             // set if Options.KeepText is set

	isShifted bool // its template has other lines than the rendered text
}

// File returns the name of the manifest's file, with its level and component. If no file of the release has a level,
// File puts the level and component of the manifest's kind before the name.
func (m *Manifest) File() string { return m.order + path.Base(m.Path) }

// Object returns the object of the manifest. Callers must not change it.
func (m *Manifest) Object() *unstructured.Unstructured { return m.object }

// ID returns the ID of the object. The namespace of a cluster-scoped object is left out: API
// servers drop it.
func (m *Manifest) ID() kinds.ID { return m.id }

// manifestOf returns the manifest of an object.
func manifestOf(object *unstructured.Unstructured) *Manifest {
	return &Manifest{object: object, id: idOf(object)}
}

func idOf(object *unstructured.Unstructured) kinds.ID {
	id := kinds.IDOf(object)
	if id.Namespace != "" && kinds.ScopeOf(id.GroupKind()) == kinds.Cluster {
		id.Namespace = ""
	}
	return id
}

// GroupVersionKind returns the type of the object.
func (m *Manifest) GroupVersionKind() schema.GroupVersionKind {
	return m.object.GroupVersionKind()
}

// IsTombstone reports whether the manifest deletes the object.
func (m *Manifest) IsTombstone() bool {
	value, _, _ := unstructured.NestedFieldNoCopy(m.object.Object, "metadata", "annotations", DeleteAnnotation)
	return value == "true"
}

// IsCreateOnly reports whether the object is created if it does not exist, and never changed. The value may be in any
// case, as upstream accepts it.
func (m *Manifest) IsCreateOnly() bool {
	value, _, _ := unstructured.NestedString(m.object.Object, "metadata", "annotations", CreateOnlyAnnotation)
	return strings.EqualFold(value, "true")
}

// TimeToLive returns how many seconds after its end Kubernetes removes a Job, and whether it does.
func (m *Manifest) TimeToLive() (seconds int64, isRemoved bool) {
	seconds, isSet, _ := unstructured.NestedInt64(m.object.Object, "spec", "ttlSecondsAfterFinished")
	return seconds, isSet && m.GroupVersionKind().GroupKind() == kinds.Job
}

// Text returns the text of the manifest, with its template rendered and its images substituted. Without
// Options.KeepText, the text is empty.
func (m *Manifest) Text() []byte { return m.text.text }

// TextLine returns the line of the file where the text begins, which may be with comments.
func (m *Manifest) TextLine() int { return m.text.line }

// LinesAreRendered reports whether lines are those of the rendered template, which differ from those of the file.
func (m *Manifest) LinesAreRendered() bool { return m.isShifted }

// Places returns the positions of the manifest's fields, if Options.KeepText was set.
func (m *Manifest) Places() *Places { return newPlaces(m.text) }

// SameTextAs reports whether two manifests have the same text, and so equal objects. It is cheaper than a comparison of
// the objects.
func (m *Manifest) SameTextAs(other *Manifest) bool { return m.sum == other.sum }

// Sum returns a hash, which is the same for manifests with the same text.
func (m *Manifest) Sum() [sha256.Size]byte { return m.sum }

// YAML returns the object in YAML, with sorted keys.
func (m *Manifest) YAML() ([]byte, error) { return yaml.Marshal(m.object.Object) }

// InOrder compares two manifests of a release by their files and documents. If no file has a level, the kinds and the
// order of another tool come first.
func InOrder(a, b *Manifest) int {
	return cmp.Or(strings.Compare(a.order, b.order), cmp.Compare(a.foreign.weightOf(), b.foreign.weightOf()),
		cmp.Compare(a.place, b.place), cmp.Compare(a.Document, b.Document))
}

// annotations returns the annotations of the object, which are strings. They must not be changed: copies for each look
// would be a twentieth of all memory that an apply allocates.
func (m *Manifest) annotations() map[string]any {
	value, _, _ := unstructured.NestedFieldNoCopy(m.object.Object, "metadata", "annotations")
	annotations, _ := value.(map[string]any)
	return annotations
}

// annotation returns the value of an annotation; "" if there is none.
func (m *Manifest) annotation(key string) string {
	text, _ := m.annotations()[key].(string)
	return text
}

// problem returns a problem at this manifest.
func (m *Manifest) problem(cause Cause, format string, args ...any) Problem {
	return Problem{
		File: m.Path, Line: m.Line, Document: m.Document, Object: m.ID().String(),
		Cause: cause, Message: fmt.Sprintf(format, args...),
	}
}

// WithObject returns a copy of the manifest with another object in its place in the file, and another sum.
func (m *Manifest) WithObject(object *unstructured.Unstructured) *Manifest {
	changed := *m
	changed.object, changed.id = object, idOf(object)
	changed.sum = sha256.Sum256(fmt.Appendf(m.sum[:len(m.sum):len(m.sum)], "%v", object.Object))
	return &changed
}

// WithAnnotation returns a copy of the manifest with an annotation added, and another sum.
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

// setNamespaces puts objects without a namespace into that of the options, if their kinds are known to be in one:
// Kubernetes' own kinds, and those that the release defines.
func (r *reader) setNamespaces(files []*manifestFile) {
	if r.options.Namespace == "" {
		return
	}
	defined := map[schema.GroupKind]bool{}
	for _, file := range files {
		for _, m := range file.manifests {
			scope, _, _ := unstructured.NestedString(m.object.Object, "spec", "scope")
			if m.GroupVersionKind().GroupKind() == kinds.CustomResourceDefinition && scope == "Namespaced" {
				defined[kinds.DefinedBy(m.object)] = true
			}
		}
	}
	for _, file := range files {
		for _, m := range file.manifests {
			kind := m.GroupVersionKind().GroupKind()
			if m.object.GetNamespace() != "" || kinds.ScopeOf(kind) != kinds.Namespaced && !defined[kind] {
				continue
			}
			m.object.SetNamespace(r.options.Namespace)
			m.id = idOf(m.object)
			// so that another namespace is another manifest
			m.sum = sha256.Sum256(slices.Concat(m.sum[:], []byte(r.options.Namespace)))
			r.payload.Placed = append(r.payload.Placed, m)
		}
	}
}

// hookProblems returns the problems of the hooks of a Deployment.
func (d *document) hookProblems(m *Manifest) []Problem {
	if m.IsTombstone() {
		return nil
	}
	var problems []Problem
	for _, found := range deploymenthook.Check(m.object) {
		problem := d.problem(Cause(found.Rule), found.Path, "%s", found.Message)
		problem.IsNewer = found.IsUnknown
		if found.Line > 0 {
			problem.Line, problem.Column = d.places.within(found.Line, found.Column, found.Path...)
			problem.Message = deploymenthook.Annotation + ": " + found.Message
		}
		problems = append(problems, problem)
	}
	return problems
}

// within returns the position in the file of a line and column of a field's text, if the field is a block that begins
// with "|"; otherwise the position of the field.
func (p *Places) within(line, column int, path ...string) (fileLine, fileColumn int) {
	node := p.Node(path...)
	if node == nil || node.Style != yaml3.LiteralStyle {
		return p.At(path...)
	}
	index, written, values := node.Line+line, bytes.Split(p.text.text, []byte("\n")), strings.Split(node.Value, "\n")
	if index > len(written) || line > len(values) || values[line-1] == "" {
		return p.At(path...)
	}
	indentation, _ := strings.CutSuffix(strings.TrimSuffix(string(written[index-1]), "\r"), values[line-1])
	return p.text.fileLine(index), utf8.RuneCountInString(indentation) + column
}
