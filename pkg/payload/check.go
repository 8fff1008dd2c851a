package payload

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// A document is a document of a file that may be a manifest.
type document struct {
	decodedDocument
	path   string
	number int     // number in the file, counted from 1
	places *Places // nil until they are needed
}

// manifest checks a document and returns it as a manifest, or nil if it is not a manifest.
func (d *document) manifest() (*Manifest, []Problem) {
	fields, isMapping := d.value.(map[string]any)
	if !isMapping {
		return nil,
			[]Problem{d.problem(Unidentified, nil,
				"a manifest is a mapping with apiVersion, kind and metadata; this is %s", describe(d.value))}
	}
	problems := d.identityProblems(fields)
	if len(problems) > 0 {
		return nil, problems
	}
	m := manifestOf(&unstructured.Unstructured{Object: fields})
	m.Path, m.Document, m.Line = d.path, d.number, d.text.fileLine(d.line)
	for _, kind := range []string{"annotations", "labels"} {
		problems = append(problems, d.stringMapProblems(fields, kind)...)
	}
	if len(problems) > 0 {
		return m, problems // other checks would report the same
	}
	annotations := m.object.GetAnnotations()
	if err := validation.ValidateAnnotationsSize(annotations); err != nil {
		return m, append(problems,
			d.problem(Malformed, []string{"metadata", "annotations"}, "the API server refuses its annotations: %s",
				err))
	}
	if value, marked := annotations[DeleteAnnotation]; marked && value != "true" {
		problems = append(problems, d.problem(WrongDelete, []string{"metadata", "annotations", DeleteAnnotation},
			`annotation %s is %q, and only "true" deletes: write "true", or drop the annotation`, DeleteAnnotation,
			value))
	}
	for _, repeated := range d.repeated {
		problem := m.problem(RepeatedKey, "the key %q occurs twice in the same mapping: the last one counts",
			repeated.Key)
		problem.Line, problem.Column = d.text.fileLine(repeated.Line), repeated.Column
		problems = append(problems, problem)
	}
	return m, slices.Concat(problems, d.fieldProblems(m), d.annotationProblems(m), d.hookProblems(m))
}

// identityProblems returns the problems of the fields that identify the object.
func (d *document) identityProblems(fields map[string]any) []Problem {
	var problems []Problem
	require := func(value any, path ...string) {
		text, isString := value.(string)
		name := strings.Join(path, ".")
		switch {
		case value == nil:
			problems = append(problems, d.problem(Unidentified, path[:len(path)-1], "%s is missing", name))
		case !isString:
			problems = append(problems,
				d.problem(Unidentified, path, "%s is %s, not a string: write it in quotes", name, describe(value)))
		case text == "":
			problems = append(problems, d.problem(Unidentified, path, "%s is empty", name))
		}
	}
	require(fields["apiVersion"], "apiVersion")
	if text, _ := fields["apiVersion"].(string); strings.Count(text, "/") > 1 {
		problems = append(problems,
			d.problem(Unidentified, []string{"apiVersion"},
				"apiVersion is %q, which is neither VERSION nor GROUP/VERSION", text))
	}
	require(fields["kind"], "kind")
	if kind, _ := fields["kind"].(string); kind == "List" ||
		(strings.HasSuffix(kind, "List") && fields["items"] != nil) {
		return append(problems, d.problem(Unidentified, []string{"kind"},
			`a %s is not a manifest, and annotations of its items mean nothing: write them as documents of their own, with "---" between them`, kind))
	}
	metadata, isMapping := fields["metadata"].(map[string]any)
	if fields["metadata"] != nil && !isMapping {
		return append(problems, d.problem(Unidentified, []string{"metadata"}, "metadata is %s, not a mapping",
			describe(fields["metadata"])))
	}
	require(metadata["name"], "metadata", "name")
	if namespace := metadata["namespace"]; namespace != nil && namespace != "" {
		require(namespace, "metadata", "namespace")
	}
	return problems
}

// stringMapProblems finds annotations or labels that are not strings. Kubernetes'
// libraries would read the whole map as empty, including the delete annotation.
func (d *document) stringMapProblems(fields map[string]any, kind string) []Problem {
	metadata, _ := fields["metadata"].(map[string]any)
	if metadata[kind] == nil {
		return nil
	}
	entries, isMapping := metadata[kind].(map[string]any)
	if !isMapping {
		return []Problem{d.problem(Malformed, []string{"metadata", kind}, "metadata.%s is %s, not a mapping", kind,
			describe(metadata[kind]))}
	}
	var problems []Problem
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if _, isString := entries[key].(string); isString {
			continue
		}
		cause := Malformed
		written := d.scalarText("metadata", kind, key)
		if kind == "annotations" && key == DeleteAnnotation {
			cause, written = WrongDelete, ""
		}
		description, hint := describe(entries[key]), quoteHint(entries[key], written)
		if strings.HasPrefix(description, "the number") && fields["kind"] == "Secret" {
			description, hint = "a number", "" // the number may be secret
		}
		problems = append(problems, d.problem(cause, []string{"metadata", kind, key},
			"%s %s is %s, not a string: write it in quotes%s", strings.TrimSuffix(kind, "s"), key, description, hint))
	}
	return problems
}

// fieldProblems returns the unknown fields of Kubernetes' own kinds, and fields with values of
// wrong types. The schemas of other kinds aren't known here.
func (d *document) fieldProblems(m *Manifest) []Problem {
	typed, err := scheme.Scheme.New(m.GroupVersionKind())
	if err != nil || m.IsTombstone() { // only the name of a tombstone matters
		return nil
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(m.object.Object, typed, true)
	if err == nil {
		return nil
	}
	strict, isUnknown := runtime.AsStrictDecodingError(err)
	if !isUnknown {
		var problems []Problem
		for _, wrong := range m.Misfits() {
			problem := m.problem(WrongType, fields.Refuses+"%s%s", nameOf(wrong.Path), mismatchText(wrong.Err))
			problem.Line, problem.Column = d.at(wrong.Path)
			problems = append(problems, problem)
		}
		return problems
	}
	var problems []Problem
	for _, err := range strict.Errors() {
		problem := m.problem(UnknownField, "%s: is it misspelt?", err)
		if _, field, found := strings.Cut(err.Error(), "unknown field "); found {
			problem.Line, problem.Column = d.at(strings.FieldsFunc(strings.Trim(field, `"`), func(r rune) bool {
				return strings.ContainsRune(".[]", r)
			}))
		}
		problems = append(problems, problem)
	}
	return problems
}

// problem returns a problem at a field of this document.
func (d *document) problem(cause Cause, field []string, format string, args ...any) Problem {
	line, column := d.at(field)
	return Problem{
		File: d.path, Line: line, Column: column, Document: d.number, Object: d.object(),
		Cause: cause, Message: fmt.Sprintf(format, args...),
	}
}

// object returns the kind and name of the object, as far as they are known.
func (d *document) object() string {
	fields, _ := d.value.(map[string]any)
	kind, _ := fields["kind"].(string)
	metadata, _ := fields["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	namespace, _ := metadata["namespace"].(string)
	if name == "" {
		return kind
	}
	return strings.TrimSpace(kinds.ID{Kind: kind, Namespace: namespace, Name: name}.String())
}

// at returns the position of a field, or of its last parent that exists. It parses the text
// once more, which is only done to report a problem.
func (d *document) at(path []string) (line, column int) {
	if d.places == nil {
		d.places = newPlaces(d.text)
	}
	return d.places.At(path...)
}

// describe describes a value for people who write YAML.
func describe(value any) string {
	switch value := value.(type) {
	case nil:
		return "empty"
	case bool:
		return fmt.Sprintf("the boolean %t", value)
	case int64, float64:
		return fmt.Sprintf("the number %v", value)
	case string:
		return "a text"
	case []any:
		return "a list"
	default:
		return "a mapping"
	}
}

// scalarText returns the text of a scalar in the file; "" if the text is not known.
func (d *document) scalarText(path ...string) string {
	d.at(nil)
	return d.places.Scalar(path...)
}

// quoteHint returns a hint to write a scalar in quotes. The hint has the text of the file, since 1.10 is another string
// than 1.1.
func quoteHint(value any, written string) string {
	switch value := value.(type) {
	case nil:
		return `, as ""`
	case bool, int64, float64:
		return fmt.Sprintf(`, as "%s"`, cmp.Or(written, fmt.Sprint(value)))
	default:
		return ""
	}
}

// unreadableProblem returns the problem of a text that can't be decoded.
func unreadableProblem(path string, number, line int, err error) Problem {
	problem := Problem{File: path, Line: line, Document: number, Cause: Unreadable, Message: err.Error()}
	problem.IsNewer = errors.As(err, new(newerError))
	var syntax *yamltext.TextError
	if errors.As(err, &syntax) && syntax.Line > 0 {
		problem.Line = max(line, 1) + syntax.Line - 1
	}
	return problem
}
