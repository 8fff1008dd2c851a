package deploymenthook

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// maxProblems bounds the problems of one annotation: a list may have a hundred thousand items.
	maxProblems = 20
	// maxQuoted limits the quoted part of a name, in bytes.
	maxQuoted = 60
)

// Parse reads the hooks of a Deployment: nil if it has none, or if a problem is an error. Defaults are not filled in:
// the methods of Hook return them.
func Parse(deployment *unstructured.Unstructured) (*Hooks, []HookProblem) {
	written, found := annotations(deployment.Object)[Annotation].(string)
	if !found {
		return nil, nil
	}
	if problems := wrongKind(deployment); problems != nil {
		return nil, problems
	}
	c := &checker{template: readTemplate(deployment.Object)}
	hooks := c.decode(written)
	if hooks != nil {
		c.hooks(hooks)
	}
	slices.SortStableFunc(c.problems, byPlace)
	if c.isRefused {
		return nil, c.problems
	}
	return hooks, c.problems
}

// annotationPath is the path of an annotation.
func annotationPath(key string) []string { return []string{"metadata", "annotations", key} }

// A template is the parts of a Deployment that hooks refer to.
type template struct {
	containers, volumes []string
	strategyType        string // RollingUpdate is the default
}

const recreate = "Recreate"

func readTemplate(deployment map[string]any) template {
	t := template{
		strategyType: "RollingUpdate",
		containers:   names(deployment, "containers"),
		volumes:      names(deployment, "volumes"),
	}
	if strategy, _, _ := unstructured.NestedString(deployment, "spec", "strategy", "type"); strategy != "" {
		t.strategyType = strategy
	}
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

// A HookRule is a rule that hooks are checked against, by the name that it has as the cause of a payload's problem.
type HookRule string

// The rules for which a release is refused.
const (
	RuleInvalid   HookRule = "InvalidHooks"   // the annotation can't be read, or has an invalid field or value
	RuleContainer HookRule = "HookContainer"  // the template has no container of that name
	RuleStrategy  HookRule = "HookStrategy"   // the Deployment's strategy does not allow the hook
	RuleMisplaced HookRule = "MisplacedHooks" // hooks are on another kind, or under a misspelt name
)

// The rules that only warn.
const (
	RuleUnknownVolume HookRule = "HookVolume"      // the template has no such volume, and the hook runs without it
	RuleNoEffect      HookRule = "HookIneffective" // the field has no effect
)

// A HookProblem is a problem of the hooks of a manifest, and its place.
type HookProblem struct {
	Rule         HookRule
	Path         []string // path of the field of the manifest: the annotation, or the field that contradicts it
	Line, Column int      // position in the annotation's text, from 1; 0 if the problem is not in the text
	Message      string   // names the field, and what to write instead
	IsUnknown    bool     // a field or word that a newer Runlevel may know
}

// IsWarning reports whether the release can be applied nevertheless.
func (p HookProblem) IsWarning() bool { return p.Rule == RuleUnknownVolume || p.Rule == RuleNoEffect }

// byPlace orders problems by their place in the manifest.
func byPlace(a, b HookProblem) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}
