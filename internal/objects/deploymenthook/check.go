package deploymenthook

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A checker checks the hooks of an annotation against the rest of their Deployment.
type checker struct {
	decoder
	template
}

func (c *checker) invalid(wrong *field.Error) { c.add(RuleInvalid, wrong) }

// hooks checks all hooks.
func (c *checker) hooks(hooks *Hooks) {
	for _, stage := range Stages {
		switch path := field.NewPath(string(stage)); {
		case hooks.Of(stage) != nil:
			c.hook(stage, path, hooks.Of(stage))
		case c.places.Node(string(stage)) != nil:
			c.invalid(field.Required(path, "write execNewPod below it, or drop it"))
		}
	}
	if *hooks == (Hooks{}) && !c.isRefused {
		c.invalid(&field.Error{
			Type:   field.ErrorTypeRequired,
			Detail: "the annotation has no hook: write pre, mid or post, or drop the annotation",
		})
	}
}

// hook checks the hook of a stage.
func (c *checker) hook(stage Stage, path *field.Path, hook *Hook) {
	if known := []FailurePolicy{Abort, Ignore, Retry}; !slices.Contains(known, hook.Policy()) {
		c.invalid(field.NotSupported(path.Child("failurePolicy"), short(string(hook.FailurePolicy)), known))
	}
	if known := []KeepPolicy{KeepFailed, KeepNever, KeepAlways}; !slices.Contains(known, hook.Keeps()) {
		c.invalid(field.NotSupported(path.Child("keep"), short(string(hook.Keep)), known))
	}
	if seconds := hook.TimeoutSeconds; seconds != nil && (*seconds < 1 || *seconds > math.MaxInt32) {
		c.invalid(field.Invalid(path.Child("timeoutSeconds"), *seconds,
			fmt.Sprintf("must be from 1 to %d: drop it for 600", math.MaxInt32)))
	}
	if times := hook.BackoffLimit; times != nil && *times < 1 {
		c.invalid(field.Invalid(path.Child("backoffLimit"), *times,
			"must be at least 1: for a hook that runs once, write failurePolicy: Abort"))
	} else if times != nil && hook.Policy() != Retry {
		c.add(RuleNoEffect, field.Forbidden(path.Child("backoffLimit"),
			fmt.Sprintf("it has no effect with failurePolicy: %s, since only Retry runs a hook again: drop it",
				hook.Policy())))
	}
	if name := hook.ServiceAccountName; name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		c.invalid(field.Invalid(path.Child("serviceAccountName"), short(name), validation.IsDNS1123Subdomain(name)[0]))
	}
	if hook.Resources != nil && len(hook.Resources.Claims) > 0 {
		c.invalid(field.Forbidden(path.Child("resources", "claims"),
			"the pod of a hook has no resource claims: drop it"))
	}
	c.strategy(stage, path, hook)
	if hook.ExecNewPod == nil {
		c.invalid(field.Required(path.Child("execNewPod"),
			"write the containerName and the command of the hook below it"))
		return
	}
	c.pod(path.Child("execNewPod"), hook.ExecNewPod)
}

// strategy checks whether the Deployment's strategy allows a hook.
func (c *checker) strategy(stage Stage, path *field.Path, hook *Hook) {
	switch {
	case c.template.strategyType == recreate:
	case stage == Mid:
		c.add(RuleStrategy, field.Forbidden(path,
			fmt.Sprintf("it needs spec.strategy.type: Recreate, and that is %s, where old pods run until new ones "+
				"do: change the strategy, or use pre", short(c.template.strategyType))))
	case stage == Post && hook.Policy() == Abort:
		c.add(RuleStrategy, field.Forbidden(path.Child("failurePolicy"),
			fmt.Sprintf("Abort has nothing to stop under spec.strategy.type: %s, where the rollout is complete by "+
				"then: write Retry or Ignore, or use pre", short(c.template.strategyType))))
	}
}

// pod checks execNewPod.
func (c *checker) pod(path *field.Path, pod *ExecNewPod) {
	switch name, namePath := pod.ContainerName, path.Child("containerName"); {
	case name == "":
		c.add(RuleContainer, field.Required(namePath,
			"name the container of the template whose image runs: "+has(c.containers)))
	case !slices.Contains(c.containers, name):
		wrong := field.NotFound(namePath, short(name))
		wrong.Detail = "name one of the template's containers: " + has(c.containers)
		c.add(RuleContainer, wrong)
	}
	if len(pod.Command) == 0 {
		c.invalid(field.Required(path.Child("command"),
			`without it, the hook would run what the image runs, which never ends: write it as a list, such as [rake, "db:migrate"]`))
	}
	names := map[string]bool{}
	for i, envVar := range pod.Env {
		c.variable(path.Child("env").Index(i), envVar, names)
	}
	seen := map[string]bool{}
	for i, name := range pod.Volumes {
		switch namePath := path.Child("volumes").Index(i); {
		case seen[name]:
			c.invalid(field.Duplicate(namePath, short(name)))
		case !slices.Contains(c.volumes, name):
			unknown := field.NotFound(namePath, short(name))
			unknown.Detail = "the hook runs without it, because the template has no such volume: " + has(c.volumes)
			c.add(RuleUnknownVolume, unknown)
		}
		seen[name] = true
	}
}

// variable checks an environment variable. Its problems never contain a value, which may be secret.
func (c *checker) variable(path *field.Path, envVar corev1.EnvVar, seenNames map[string]bool) {
	switch namePath := path.Child("name"); {
	case envVar.Name == "":
		c.invalid(field.Required(namePath, "each environment variable has a name"))
	case len(validation.IsRelaxedEnvVarName(envVar.Name)) > 0:
		c.invalid(field.Invalid(namePath, field.OmitValueType{},
			"not a valid environment variable name: write letters, digits and _, such as DB_NAME, and its content "+
				"into value"))
	case seenNames[envVar.Name]:
		c.invalid(field.Duplicate(namePath, short(envVar.Name)))
	}
	seenNames[envVar.Name] = true
	if envVar.Value != "" && envVar.ValueFrom != nil {
		c.invalid(field.Forbidden(path.Child("valueFrom"), "valueFrom and value are exclusive: remove one of them"))
	}
}

// short returns a quoted text of a bounded length.
func short(text string) string { return printable.Truncate(text, maxQuoted) }

// has lists names of the template.
func has(names []string) string {
	if len(names) == 0 {
		return "it has none"
	}
	return "it has " + printable.Few(names, 5)
}

const createOnlyAnnotation = "release.openshift.io/create-only"

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

// outsideProblem returns a problem outside of the text of an annotation.
func outsideProblem(rule HookRule, path []string, format string, args ...any) HookProblem {
	return HookProblem{Rule: rule, Path: path, Message: fmt.Sprintf(format, args...)}
}

// misplaced reports annotations whose names resemble that of the annotation for hooks.
func misplaced(manifest map[string]any) []HookProblem {
	var problems []HookProblem
	for _, key := range slices.Sorted(maps.Keys(annotations(manifest))) {
		switch {
		case key == StateAnnotation:
			problems = append(problems,
				outsideProblem(RuleMisplaced, annotationPath(key),
					"%s is what Runlevel writes to remember which hooks have run: drop it", key))
		case IsMisspelt(key):
			problems = append(problems,
				outsideProblem(RuleMisplaced, annotationPath(key), "the annotation %s has no effect: did you mean %s?",
					short(key), Annotation))
		}
	}
	path := []string{"spec", "template", "metadata", "annotations", Annotation}
	if _, found, _ := unstructured.NestedFieldNoCopy(manifest, path...); found {
		problems = append(problems,
			outsideProblem(RuleMisplaced, path,
				"%s has no effect in a pod template: move it to metadata.annotations of the Deployment", Annotation))
	}
	return problems
}

// IsMisspelt reports whether an annotation is a misspelling of the one for hooks.
func IsMisspelt(key string) bool {
	domain, name, _ := strings.Cut(key, "/")
	if key == Annotation || !strings.HasSuffix(domain, "runlevel.dev") {
		return false
	}
	plain := strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(name))
	return plain == "hooks" || printable.EditDistance(plain, "lifecyclehooks") < 3
}

// wrongKind returns the problem of hooks on an object of another kind; nil for a Deployment.
func wrongKind(object *unstructured.Unstructured) []HookProblem {
	kind := object.GroupVersionKind().GroupKind()
	name := kind.Kind
	switch {
	case kind == kinds.Deployment:
		return nil
	case name == kinds.Deployment.Kind:
		name = kind.String()
	}
	return []HookProblem{outsideProblem(RuleMisplaced, annotationPath(Annotation),
		"only a Deployment of the group apps has hooks, and this is a %s: drop the annotation %s, or move it to a "+
			"Deployment", name, Annotation)}
}

// withoutEffect reports fields that keep hooks from running.
func withoutEffect(deployment map[string]any, hooks *Hooks) []HookProblem {
	var problems []HookProblem
	if isPaused, _, _ := unstructured.NestedBool(deployment, "spec", "paused"); isPaused &&
		(hooks.Mid != nil || hooks.Post != nil) {
		problems = append(problems,
			outsideProblem(RuleNoEffect, []string{"spec", "paused"},
				"spec.paused is true, so that a rollout never completes, and hooks after pre never run: drop it"))
	}
	if value, _ := annotations(deployment)[createOnlyAnnotation].(string); strings.EqualFold(value, "true") {
		problems = append(problems, outsideProblem(RuleNoEffect, annotationPath(createOnlyAnnotation),
			"the Deployment is create-only, so that an update never changes it: its hooks run when it is created, "+
				"and never again"))
	}
	return problems
}

// annotations returns the annotations of an object, not copied.
func annotations(object map[string]any) map[string]any {
	value, _, _ := unstructured.NestedFieldNoCopy(object, "metadata", "annotations")
	found, _ := value.(map[string]any)
	return found
}
