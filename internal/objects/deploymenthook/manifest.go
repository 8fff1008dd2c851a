package deploymenthook

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/text/printable"
)

const createOnlyAnnotation = "release.openshift.io/create-only"

var deploymentKind = schema.GroupKind{Group: "apps", Kind: "Deployment"}

// Check returns the problems of hooks in a manifest of any kind: those of Parse for a Deployment, and contradictions
// between hooks and the rest of the manifest.
func Check(manifest *unstructured.Unstructured) []HookProblem {
	problems := misplaced(manifest.Object)
	hooks, found := Parse(manifest)
	problems = append(problems, found...)
	if hooks != nil {
		problems = append(problems, withoutEffect(manifest.Object, hooks)...)
	}
	return problems
}

// outside returns a problem outside of the text of an annotation.
func outside(rule HookRule, path []string, format string, args ...any) HookProblem {
	return HookProblem{Rule: rule, Path: path, Message: fmt.Sprintf(format, args...)}
}

// misplaced reports annotations whose names resemble that of the annotation for hooks.
func misplaced(manifest map[string]any) []HookProblem {
	var problems []HookProblem
	for _, key := range slices.Sorted(maps.Keys(annotations(manifest))) {
		switch {
		case key == StateAnnotation:
			problems = append(problems, outside(RuleMisplaced, annotationPath(key), "%s is what Runlevel writes to remember which hooks have run: drop it", key))
		case isMisspelt(key):
			problems = append(problems, outside(RuleMisplaced, annotationPath(key), "the annotation %s has no effect: did you mean %s?", short(key), Annotation))
		}
	}
	path := []string{"spec", "template", "metadata", "annotations", Annotation}
	if _, found, _ := unstructured.NestedFieldNoCopy(manifest, path...); found {
		problems = append(problems, outside(RuleMisplaced, path, "%s has no effect in a pod template: move it to metadata.annotations of the Deployment", Annotation))
	}
	return problems
}

// isMisspelt reports whether an annotation is a misspelling of the one for hooks.
func isMisspelt(key string) bool {
	domain, name, _ := strings.Cut(key, "/")
	if key == Annotation || !strings.HasSuffix(domain, "runlevel.dev") {
		return false
	}
	plain := strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(name))
	return plain == "hooks" || printable.EditDistance(plain, "lifecyclehooks") < 3
}

// wrongKind returns the problem of hooks on an object that is no Deployment; nil if it is one.
func wrongKind(object *unstructured.Unstructured) []HookProblem {
	kind := object.GroupVersionKind().GroupKind()
	name := kind.Kind
	switch {
	case kind == deploymentKind:
		return nil
	case name == deploymentKind.Kind:
		name = kind.String()
	}
	return []HookProblem{outside(RuleMisplaced, annotationPath(Annotation),
		"only a Deployment of the group apps has hooks, and this is a %s: drop the annotation %s, or move it to a Deployment", name, Annotation)}
}

// withoutEffect reports fields that keep hooks from running.
func withoutEffect(deployment map[string]any, hooks *Hooks) []HookProblem {
	var problems []HookProblem
	if isPaused, _, _ := unstructured.NestedBool(deployment, "spec", "paused"); isPaused && (hooks.Mid != nil || hooks.Post != nil) {
		problems = append(problems, outside(RuleNoEffect, []string{"spec", "paused"}, "spec.paused is true, so that a rollout never completes, and hooks after pre never run: drop it"))
	}
	if value, _ := annotations(deployment)[createOnlyAnnotation].(string); strings.EqualFold(value, "true") {
		problems = append(problems, outside(RuleNoEffect, annotationPath(createOnlyAnnotation),
			"the Deployment is create-only, so that an update never changes it: its hooks run when it is created, and never again"))
	}
	return problems
}

// annotations returns the annotations of an object, not copied.
func annotations(object map[string]any) map[string]any {
	value, _, _ := unstructured.NestedFieldNoCopy(object, "metadata", "annotations")
	found, _ := value.(map[string]any)
	return found
}
