package deploymenthook

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// This file checks an annotation field by field, so that all its problems are reported at once.

// hooks checks the annotation as a whole.
func (p *parser) hooks(value any) {
	fields, isMapping := p.mapping(nil, value, stageFields)
	if !isMapping {
		return
	}
	whole, _ := value.(map[string]any)
	for _, stage := range Stages {
		name := string(stage)
		if hook, exists := whole[name]; exists && hook == nil {
			p.invalid([]string{name}, "is empty: write execNewPod below it, or drop it")
		} else if exists {
			p.hook(stage, hook)
		}
	}
	if len(fields) == 0 && !p.isRefused {
		p.invalid(nil, "has no hook: write pre, mid or post, or drop the annotation")
	}
}

// hook checks the hook of a stage.
func (p *parser) hook(stage Stage, value any) {
	path := []string{string(stage)}
	fields, isMapping := p.mapping(path, value, hookFields)
	if !isMapping {
		return
	}
	checks := map[string]func(path []string, value any){
		"failurePolicy":  func(at []string, v any) { p.word(at, v, string(Abort), string(Ignore), string(Retry)) },
		"keep":           func(at []string, v any) { p.word(at, v, string(KeepFailed), string(KeepNever), string(KeepAlways)) },
		"timeoutSeconds": func(at []string, v any) { p.count(at, v, "of seconds, at least 1: drop it for 600") },
		"backoffLimit": func(at []string, v any) {
			p.count(at, v, "of times, at least 1: for a hook that runs once, write failurePolicy: Abort")
		},
		"serviceAccountName": p.accountName,
		"resources":          p.resources,
		"execNewPod":         p.pod,
	}
	for _, name := range hookFields {
		if value, isSet := fields[name]; isSet {
			checks[name](slices.Concat(path, []string{name}), value)
		}
	}
	if p.isMissing(slices.Concat(path, []string{"execNewPod"}), fields) {
		p.invalid(path, "has no execNewPod: write the containerName and the command of the hook below it")
	}
	policy, _ := fields["failurePolicy"].(string)
	p.strategy(stage, FailurePolicy(policy))
	if fields["backoffLimit"] != nil && policy != "" && policy != string(Retry) {
		p.report(RuleNoEffect, slices.Concat(path, []string{"backoffLimit"}),
			"%s.backoffLimit has no effect, because failurePolicy is %s and only Retry runs a hook again: drop it", stage, printable.Truncate(policy, maxQuoted))
	}
}

// strategy checks whether the Deployment's strategy allows a hook.
func (p *parser) strategy(stage Stage, policy FailurePolicy) {
	if p.template.strategy == recreate {
		return
	}
	switch {
	case stage == Mid:
		p.report(RuleStrategy, []string{"mid"}, "mid needs spec.strategy.type: Recreate, and it is %s, where old pods run until new ones do: change the strategy, or use pre",
			printable.Truncate(p.template.strategy, maxQuoted))
	case stage == Post && policy == Abort:
		p.report(RuleStrategy, []string{"post", "failurePolicy"}, "post.failurePolicy is Abort, which spec.strategy.type: %s does not allow: the rollout is complete by then; write Retry or Ignore, or use pre",
			printable.Truncate(p.template.strategy, maxQuoted))
	}
}

// count checks a whole number of at least 1; advice is added to the problem.
func (p *parser) count(path []string, value any, advice string) {
	number, isWhole := value.(int64)
	if decimal, isDecimal := value.(float64); isDecimal && decimal == math.Trunc(decimal) && math.Abs(decimal) < math.MaxInt32 {
		number, isWhole = int64(decimal), true
	}
	if !isWhole || number < 1 || number > math.MaxInt32 {
		p.invalid(path, "is %s, and must be a whole number %s", describeNumber(value), advice)
	}
}

// describeNumber describes a value that should be a whole number.
func describeNumber(value any) string {
	switch value.(type) {
	case int64, float64:
		return fmt.Sprint(value)
	default:
		return describe(value)
	}
}

// accountName checks the name of a ServiceAccount.
func (p *parser) accountName(path []string, value any) {
	name, isText := p.textOf(path, value)
	if isText && len(validation.IsDNS1123Subdomain(name)) > 0 {
		p.invalid(path, "is %q, which is no name of a ServiceAccount: it has small letters, digits, - and . only, and begins and ends with a letter or digit",
			printable.Truncate(name, maxQuoted))
	}
}

// resources checks limits and requests.
func (p *parser) resources(path []string, value any) {
	fields, _ := p.mapping(path, value, resourceMap)
	for _, kind := range slices.Sorted(maps.Keys(fields)) {
		at := slices.Concat(path, []string{kind})
		quantities, isMapping := fields[kind].(map[string]any)
		if !isMapping {
			p.invalid(at, "is %s, and must be a mapping such as {cpu: 100m, memory: 128Mi}", describe(fields[kind]))
		}
		for _, name := range slices.Sorted(maps.Keys(quantities)) {
			p.quantity(slices.Concat(at, []string{name}), quantities[name])
		}
	}
}

// quantity checks an amount of a resource.
func (p *parser) quantity(path []string, value any) {
	switch value.(type) {
	case string, int64, float64:
		written := fmt.Sprint(value)
		if _, err := resource.ParseQuantity(written); err != nil || strings.HasPrefix(written, "-") {
			p.invalid(path, "is %q, which is no quantity: write a number with a unit behind it, such as 100m or 128Mi", printable.Truncate(written, maxQuoted))
		}
	default:
		p.invalid(path, "is %s, and must be a quantity such as 100m or 128Mi", describe(value))
	}
}

// pod checks execNewPod.
func (p *parser) pod(path []string, value any) {
	fields, isMapping := p.mapping(path, value, podFields)
	if !isMapping {
		return
	}
	at := func(name string) []string { return slices.Concat(path, []string{name}) }
	if at := at("containerName"); fields["containerName"] != nil || p.isMissing(at, fields) {
		p.container(at, fields["containerName"])
	}
	p.words(at("command"), fields["command"], `["rake", "db:migrate"], or ["sh", "-c", "…"] for a line of a shell`)
	if command, isList := fields["command"].([]any); p.isMissing(at("command"), fields) || isList && len(command) == 0 {
		p.invalid(at("command"), "is missing: without it, the hook would run what the image runs, which never ends; write it as a list, such as [\"rake\", \"db:migrate\"]")
	}
	p.words(at("args"), fields["args"], `["--all", "--verbose"]`)
	if fields["env"] != nil {
		p.env(at("env"), fields["env"])
	}
	if fields["volumes"] != nil {
		p.volumes(at("volumes"), fields["volumes"])
	}
}

// container checks the name of a container.
func (p *parser) container(path []string, value any) {
	if value == nil {
		value = ""
	}
	name, isText := p.textOf(path, value)
	if !isText || slices.Contains(p.template.containers, name) {
		return
	}
	existing := "it has none"
	if len(p.template.containers) > 0 {
		existing = "it has " + printable.Few(p.template.containers, 5)
	}
	field := nameOf(path)
	switch meant := nearest(name, p.template.containers); {
	case name == "":
		p.report(RuleContainer, path, "%s is missing: name the container of the template whose image runs; %s", field, existing)
	case slices.Contains(p.template.initContainers, name):
		p.report(RuleContainer, path, "%s is %q, which is an init container: name one of the template's containers; %s", field, name, existing)
	case meant != "":
		p.report(RuleContainer, path, "%s is %q, and the template has no such container: did you mean %s?", field, printable.Truncate(name, maxQuoted), meant)
	default:
		p.report(RuleContainer, path, "%s is %q, and the template has no such container: %s", field, printable.Truncate(name, maxQuoted), existing)
	}
}

// words checks a list of strings: a command, or its arguments.
func (p *parser) words(path []string, value any, example string) {
	if value == nil {
		return
	}
	if _, isText := value.(string); isText {
		p.invalid(path, "is a text, and must be a list with an item for each word: write %s", example)
		return
	}
	for i, word := range p.list(path, value, example) {
		p.textOf(slices.Concat(path, []string{strconv.Itoa(i)}), word)
	}
}

// env checks environment variables. Its problems never contain their values, which may be secret.
func (p *parser) env(path []string, value any) {
	seen := map[string]int{}
	for i, item := range p.list(path, value, "- name: NAME, and below it value or valueFrom") {
		at := slices.Concat(path, []string{strconv.Itoa(i)})
		fields, isMapping := p.mapping(at, item, envFields)
		if !isMapping {
			continue
		}
		p.variable(at, fields)
		name, _ := fields["name"].(string)
		if first, isTwice := seen[name]; isTwice && name != "" {
			p.invalid(slices.Concat(at, []string{"name"}), "is %s, as of %s[%d]: keep one of them", printable.Truncate(name, maxQuoted), nameOf(path), first)
		} else {
			seen[name] = i
		}
	}
}

// variable checks an environment variable.
func (p *parser) variable(path []string, fields map[string]any) {
	at := func(name string) []string { return slices.Concat(path, []string{name}) }
	if fields["name"] == nil || fields["name"] == "" {
		p.invalid(at("name"), "is missing: each environment variable has a name")
	} else if name, isText := p.textOf(at("name"), fields["name"]); isText && len(validation.IsRelaxedEnvVarName(name)) > 0 {
		p.invalid(at("name"), "is no name of an environment variable: write letters, digits and _, such as DB_NAME, and its content into value")
	}
	if value := fields["value"]; value != nil {
		p.textOf(at("value"), value)
	}
	source := fields["valueFrom"]
	if source == nil {
		return
	}
	if text, _ := fields["value"].(string); text != "" {
		p.invalid(at("valueFrom"), "stands beside a value: keep one of them")
	}
	p.typed(at("valueFrom"), source, &corev1.EnvVarSource{})
}

// volumes checks the names of volumes. The hook runs without volumes that the template does not have.
func (p *parser) volumes(path []string, value any) {
	seen := map[string]bool{}
	for i, item := range p.list(path, value, "the names of volumes of the template, such as [data]") {
		at := slices.Concat(path, []string{strconv.Itoa(i)})
		if _, isMapping := item.(map[string]any); isMapping {
			p.invalid(at, "is a mapping, and must be the name of a volume of the template alone")
			continue
		}
		name, isText := p.textOf(at, item)
		switch {
		case !isText:
		case seen[name]:
			p.invalid(at, "is %s a second time: keep one of them", printable.Truncate(name, maxQuoted))
		case !slices.Contains(p.template.volumes, name):
			p.unknownVolume(at, name)
		}
		seen[name] = true
	}
}

// unknownVolume reports a volume that the template does not have.
func (p *parser) unknownVolume(path []string, name string) {
	existing := "it has none"
	if meant := nearest(name, p.template.volumes); meant != "" {
		existing = "did you mean " + meant + "?"
	} else if len(p.template.volumes) > 0 {
		existing = "it has " + printable.Few(p.template.volumes, 5)
	}
	p.report(RuleUnknownVolume, path, "%s is %q, and the template has no such volume, so the hook runs without it: %s", nameOf(path), printable.Truncate(name, maxQuoted), existing)
}
