package deploymenthook

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
		c.invalid(&field.Error{Type: field.ErrorTypeRequired, Detail: "the annotation has no hook: write pre, mid or post, or drop the annotation"})
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
		c.invalid(field.Invalid(path.Child("timeoutSeconds"), *seconds, fmt.Sprintf("must be from 1 to %d: drop it for 600", math.MaxInt32)))
	}
	if times := hook.BackoffLimit; times != nil && *times < 1 {
		c.invalid(field.Invalid(path.Child("backoffLimit"), *times, "must be at least 1: for a hook that runs once, write failurePolicy: Abort"))
	} else if times != nil && hook.Policy() != Retry {
		c.add(RuleNoEffect, field.Forbidden(path.Child("backoffLimit"), fmt.Sprintf("it has no effect with failurePolicy: %s, since only Retry runs a hook again: drop it", hook.Policy())))
	}
	if name := hook.ServiceAccountName; name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		c.invalid(field.Invalid(path.Child("serviceAccountName"), short(name), validation.IsDNS1123Subdomain(name)[0]))
	}
	if hook.Resources != nil && len(hook.Resources.Claims) > 0 {
		c.invalid(field.Forbidden(path.Child("resources", "claims"), "the pod of a hook has no resource claims: drop it"))
	}
	c.strategy(stage, path, hook)
	if hook.ExecNewPod == nil {
		c.invalid(field.Required(path.Child("execNewPod"), "write the containerName and the command of the hook below it"))
		return
	}
	c.pod(path.Child("execNewPod"), hook.ExecNewPod)
}

// strategy checks whether the Deployment's strategy allows a hook.
func (c *checker) strategy(stage Stage, path *field.Path, hook *Hook) {
	switch {
	case c.template.strategyType == recreate:
	case stage == Mid:
		c.add(RuleStrategy, field.Forbidden(path, fmt.Sprintf("it needs spec.strategy.type: Recreate, and that is %s, where old pods run until new ones do: change the strategy, or use pre", short(c.template.strategyType))))
	case stage == Post && hook.Policy() == Abort:
		c.add(RuleStrategy, field.Forbidden(path.Child("failurePolicy"), fmt.Sprintf("Abort has nothing to stop under spec.strategy.type: %s, where the rollout is complete by then: write Retry or Ignore, or use pre", short(c.template.strategyType))))
	}
}

// pod checks execNewPod.
func (c *checker) pod(path *field.Path, pod *ExecNewPod) {
	switch name, at := pod.ContainerName, path.Child("containerName"); {
	case name == "":
		c.add(RuleContainer, field.Required(at, "name the container of the template whose image runs: "+has(c.containers)))
	case !slices.Contains(c.containers, name):
		wrong := field.NotFound(at, short(name))
		wrong.Detail = "name one of the template's containers: " + has(c.containers)
		c.add(RuleContainer, wrong)
	}
	if len(pod.Command) == 0 {
		c.invalid(field.Required(path.Child("command"), `without it, the hook would run what the image runs, which never ends: write it as a list, such as [rake, "db:migrate"]`))
	}
	names := map[string]bool{}
	for i, envVar := range pod.Env {
		c.variable(path.Child("env").Index(i), envVar, names)
	}
	seen := map[string]bool{}
	for i, name := range pod.Volumes {
		switch at := path.Child("volumes").Index(i); {
		case seen[name]:
			c.invalid(field.Duplicate(at, short(name)))
		case !slices.Contains(c.volumes, name):
			unknown := field.NotFound(at, short(name))
			unknown.Detail = "the hook runs without it, because the template has no such volume: " + has(c.volumes)
			c.add(RuleUnknownVolume, unknown)
		}
		seen[name] = true
	}
}

// variable checks an environment variable. Its problems never contain a value, which may be secret.
func (c *checker) variable(path *field.Path, envVar corev1.EnvVar, names map[string]bool) {
	switch at := path.Child("name"); {
	case envVar.Name == "":
		c.invalid(field.Required(at, "each environment variable has a name"))
	case len(validation.IsRelaxedEnvVarName(envVar.Name)) > 0:
		c.invalid(field.Invalid(at, field.OmitValueType{}, "it is no name of an environment variable: write letters, digits and _, such as DB_NAME, and its content into value"))
	case names[envVar.Name]:
		c.invalid(field.Duplicate(at, short(envVar.Name)))
	}
	names[envVar.Name] = true
	if envVar.Value != "" && envVar.ValueFrom != nil {
		c.invalid(field.Forbidden(path.Child("valueFrom"), "it stands beside a value: keep one of them"))
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
