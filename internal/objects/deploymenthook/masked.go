package deploymenthook

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The masks of a value that may be secret, and of the second one if two differ.
const (
	masked      = "***"
	maskedOther = "*** (changed)"
)

// Masked returns the text of an annotation without the values of environment variables. A text without such values is
// returned unchanged, and an invalid one is masked as a whole.
func Masked(annotation string) string {
	text, _ := MaskedChange(annotation, annotation)
	return text
}

// MaskedChange returns two texts of an annotation as Masked does, and marks the values of the second that differ.
func MaskedChange(before, after string) (maskedBefore, maskedAfter string) {
	first, second := (&decoder{}).decode(before), (&decoder{}).decode(after)
	if first != nil && second != nil && len(first.values()) == 0 && len(second.values()) == 0 {
		return before, after
	}
	maskedAfter = second.masked(first.values())
	if first == nil && second == nil && before != after {
		maskedAfter = maskedOther
	}
	return first.masked(nil), maskedAfter
}

// An envName is an environment variable of a stage.
type envName struct {
	stage Stage
	name  string
}

// values returns the values of environment variables.
func (h *Hooks) values() map[envName]string {
	values := map[envName]string{}
	for _, stage := range Stages {
		for _, envVar := range h.Of(stage).env() {
			if envVar.Value != "" {
				values[envName{stage, envVar.Name}] = envVar.Value
			}
		}
	}
	return values
}

// masked returns hooks as YAML with masked values, which differ from the masks of other values before. It changes the
// hooks.
func (h *Hooks) masked(before map[envName]string) string {
	for _, stage := range Stages {
		env := h.Of(stage).env()
		for i, envVar := range env {
			switch other, exists := before[envName{stage, envVar.Name}]; {
			case envVar.Value == "":
			case exists && other != envVar.Value:
				env[i].Value = maskedOther
			default:
				env[i].Value = masked
			}
		}
	}
	text, err := yaml.Marshal(h)
	if h == nil || err != nil {
		return masked
	}
	return string(text)
}

// env returns the environment variables of a hook, not copied.
func (h *Hook) env() []corev1.EnvVar {
	if h == nil || h.ExecNewPod == nil {
		return nil
	}
	return h.ExecNewPod.Env
}

// shortestSecret is the length from which a value is hidden in a text: "true" and "1" are no secrets.
const shortestSecret = 6

// Masker returns a replacer of the values of environment variables in responses of the server about pods of hooks.
func (r Rollout) Masker() *strings.Replacer {
	var env []corev1.EnvVar
	for _, stage := range Stages {
		env = append(env, r.Hooks.Of(stage).env()...)
	}
	if r.Desired != nil {
		for _, container := range r.Desired.Spec.Template.Spec.Containers {
			env = append(env, container.Env...)
		}
	}
	// a value may be a part of another
	slices.SortFunc(env, func(a, b corev1.EnvVar) int { return len(b.Value) - len(a.Value) })
	var pairs []string
	for _, envVar := range env {
		if len(envVar.Value) >= shortestSecret {
			pairs = append(pairs, envVar.Value, masked)
		}
	}
	return strings.NewReplacer(pairs...)
}
