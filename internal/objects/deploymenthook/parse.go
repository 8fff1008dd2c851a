package deploymenthook

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/runlevel/runlevel/internal/text/yamltext"
)

const (
	// maxProblems bounds the problems of one annotation: a list may have a hundred thousand items.
	maxProblems = 20
	// maxQuoted is how much of a name is quoted, in bytes.
	maxQuoted = 60
)

// Parse reads the hooks of a Deployment: nil if it has none, or if a problem is no warning. Defaults are not filled in:
// the methods of Hook return them.
func Parse(deployment *unstructured.Unstructured) (*Hooks, []HookProblem) {
	written, found := annotations(deployment.Object)[Annotation].(string)
	if !found {
		return nil, nil
	}
	if problem := wrongKind(deployment); problem != nil {
		return nil, []HookProblem{*problem}
	}
	p := &parser{template: readTemplate(deployment.Object), meant: map[string]bool{}}
	hooks := p.parse(written)
	slices.SortStableFunc(p.problems, byPlace)
	return hooks, p.problems
}

// A parser reads one annotation, and collects its problems.
type parser struct {
	template  template
	text      *text
	problems  []HookProblem
	isRefused bool
	meant     map[string]bool // fields that exist in another spelling
}

// parse reads the text of the annotation.
func (p *parser) parse(written string) *Hooks {
	read, err := readText(written)
	var wrong *yamltext.TextError
	if errors.As(err, &wrong) {
		p.problems = append(p.problems, HookProblem{Rule: RuleInvalid, Path: annotationPath(Annotation), Line: wrong.Line, Column: wrong.Column, Message: wrong.Message})
		return nil
	}
	p.text = read
	p.hooks(read.value)
	if p.isRefused {
		return nil
	}
	hooks := &Hooks{}
	if p.typed(nil, read.value, hooks); p.isRefused {
		return nil
	}
	return hooks
}

// report adds a problem at a field of the annotation.
func (p *parser) report(rule HookRule, path []string, format string, args ...any) {
	line, column := p.text.places.At(path...)
	problem := HookProblem{Rule: rule, Path: annotationPath(Annotation), Field: nameOf(path), Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
	isFirstError := !problem.IsWarning() && !p.isRefused // kept behind any number of warnings
	p.isRefused = p.isRefused || isFirstError
	if len(p.problems) < maxProblems || isFirstError {
		p.problems = append(p.problems, problem)
	}
}

// invalid adds a problem whose message is a sentence about the field.
func (p *parser) invalid(path []string, format string, args ...any) {
	name := nameOf(path)
	if name == "" {
		name = "the annotation"
	}
	p.report(RuleInvalid, path, "%s %s", name, fmt.Sprintf(format, args...))
}

// annotationPath is the path of an annotation.
func annotationPath(key string) []string { return []string{"metadata", "annotations", key} }

// typed reads a value into a type of Kubernetes, and reports fields that the type does not have.
func (p *parser) typed(path []string, value, made any) {
	written, err := json.Marshal(value)
	if err != nil {
		p.invalid(path, "can't be read: %s", err)
		return
	}
	unknown, err := kjson.UnmarshalStrict(written, made)
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		field := strings.ReplaceAll(wrongType.Field, "LocalObjectReference.", "") // no field in YAML
		p.invalid(path, "has a %s where it can't: %s", wrongType.Value, field)
	} else if err != nil {
		p.invalid(path, "can't be read: %s", err)
	}
	for _, err := range unknown {
		_, field, _ := strings.Cut(err.Error(), "unknown field ")
		steps := strings.FieldsFunc(strings.Trim(field, `"`), func(r rune) bool { return strings.ContainsRune(".[]", r) })
		p.invalid(slices.Concat(path, steps), "is an unknown field: is it misspelt?")
	}
}

// A template is the parts of a Deployment that hooks refer to.
type template struct {
	containers, initContainers, volumes []string
	strategy                            string // Recreate or RollingUpdate, the default
}

const (
	recreate      = "Recreate"
	rollingUpdate = "RollingUpdate"
)

func readTemplate(deployment map[string]any) template {
	t := template{strategy: rollingUpdate}
	if strategy, _, _ := unstructured.NestedString(deployment, "spec", "strategy", "type"); strategy != "" {
		t.strategy = strategy
	}
	t.containers = names(deployment, "containers")
	t.initContainers = names(deployment, "initContainers")
	t.volumes = names(deployment, "volumes")
	return t
}

// names returns the names of the items of a list of the pod template.
func names(deployment map[string]any, list string) []string {
	value, _, _ := unstructured.NestedFieldNoCopy(deployment, "spec", "template", "spec", list)
	items, _ := value.([]any)
	var found []string
	for _, item := range items {
		fields, _ := item.(map[string]any)
		if name, _ := fields["name"].(string); name != "" {
			found = append(found, name)
		}
	}
	return found
}
