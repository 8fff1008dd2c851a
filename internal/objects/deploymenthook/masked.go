package deploymenthook

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// The masks of a value that may be secret, and of the second one if two differ.
const (
	masked      = "***"
	maskedOther = "*** (changed)"
)

// Masked returns the text of an annotation without the values of environment variables and of unknown fields. Names are
// kept. A text without such values is returned unchanged.
func Masked(annotation string) string {
	text, _ := (&masker{}).mask(annotation)
	return text
}

// MaskedChange returns two texts of an annotation as Masked does, and marks the values of the second that differ.
func MaskedChange(before, after string) (maskedBefore, maskedAfter string) {
	first := &masker{}
	maskedBefore, isFirst := first.mask(before)
	maskedAfter, isSecond := (&masker{before: first.values}).mask(after)
	if !isFirst && !isSecond && before != after {
		maskedAfter = maskedOther
	}
	return maskedBefore, maskedAfter
}

// A shown is the fields of a mapping, or of the items of a list, that are shown: other fields are masked. A field whose
// own shown is nil is shown as a whole.
type shown map[string]shown

var shownHook = shown{
	"failurePolicy": nil, "timeoutSeconds": nil, "backoffLimit": nil, "serviceAccountName": nil, "resources": nil, "keep": nil,
	"execNewPod": {"containerName": nil, "command": nil, "args": nil, "volumes": nil, "env": {"": {"name": nil, "valueFrom": nil}}},
}

var shownHooks = shown{"pre": shownHook, "mid": shownHook, "post": shownHook}

// A masker masks one text.
type masker struct {
	before map[string]string // the values of the text that it is compared with
	values map[string]string // the masked values, by their paths
}

// mask returns the masked text, and whether it could be read. A text that can't be read is masked as a whole.
func (m *masker) mask(annotation string) (string, bool) {
	read, err := readText(annotation)
	if err != nil {
		return masked, false
	}
	if read.root == nil {
		return annotation, true
	}
	m.values = map[string]string{}
	m.node(read.root, "", shownHooks)
	if len(m.values) == 0 {
		return annotation, true
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if encoder.Encode(read.root) != nil || encoder.Close() != nil {
		return masked, false
	}
	return out.String(), true
}

// node masks the values of a node that are not shown. Comments are dropped: they may contain values, too.
func (m *masker) node(node *yaml.Node, path string, open shown) {
	node.HeadComment, node.LineComment, node.FootComment = "", "", ""
	if node.Kind == yaml.ScalarNode {
		m.scalar(node, path)
		return
	}
	for i, child := range node.Content {
		isKey := node.Kind == yaml.MappingNode && i%2 == 0
		name, at := "", path
		switch {
		case isKey:
			dropComments(child)
			continue
		case node.Kind == yaml.MappingNode:
			name = node.Content[i-1].Value
			at += "." + name
		default:
			at += "[" + itemName(child, i) + "]"
		}
		if inner, isShown := open[name]; isShown && inner == nil {
			dropComments(child)
		} else {
			m.node(child, at, inner)
		}
	}
}

// scalar masks a value, with another mask if it differs from the value before.
func (m *masker) scalar(node *yaml.Node, path string) {
	value := node.Value
	m.values[path] = value
	*node = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: masked}
	if before, exists := m.before[path]; exists && before != value {
		node.Value = maskedOther
	}
}

// itemName returns the name of an item of a list, or else its index.
func itemName(item *yaml.Node, place int) string {
	return cmp.Or(yamltext.NewPlaces(item).Scalar("name"), strconv.Itoa(place))
}

// dropComments drops the comments of a node and of all below it.
func dropComments(node *yaml.Node) {
	node.HeadComment, node.LineComment, node.FootComment = "", "", ""
	for _, child := range node.Content {
		dropComments(child)
	}
}

// shortestSecret is the length from which a value is hidden in a text: "true" and "1" are no secrets.
const shortestSecret = 6

// Masker returns a replacer of the values of environment variables in responses of the server about pods of hooks.
func (r Rollout) Masker() *strings.Replacer {
	var values []string
	add := func(env []corev1.EnvVar) {
		for _, envVar := range env {
			if len(envVar.Value) >= shortestSecret {
				values = append(values, envVar.Value)
			}
		}
	}
	for _, stage := range Stages {
		if hook := r.Hooks.Of(stage); hook != nil {
			add(hook.ExecNewPod.Env)
		}
	}
	if r.Desired != nil {
		for _, container := range r.Desired.Spec.Template.Spec.Containers {
			add(container.Env)
		}
	}
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) }) // a value may be a part of another
	var pairs []string
	for _, value := range values {
		pairs = append(pairs, value, masked)
	}
	return strings.NewReplacer(pairs...)
}
