package rehearse

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// ReadyRules are the statuses that make custom resources ready whose controllers do not run in a rehearsal, by kind.
type ReadyRules map[schema.GroupKind]map[string]any

// Add adds a rule of the form KIND.GROUP=STATUS. The status is a mapping in YAML or JSON, or the name of a condition
// that is to be True.
func (r ReadyRules) Add(rule string) error {
	name, status, hasStatus := strings.Cut(rule, "=")
	if !hasStatus {
		return fmt.Errorf("%q has no status: write KIND.GROUP=CONDITION, or KIND.GROUP={phase: Ready}", rule)
	}
	return r.add(name, status)
}

// Read adds the rules of a file: a mapping of KIND.GROUP to STATUS, as in Add.
func (r ReadyRules) Read(text []byte) error {
	var all map[string]any
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return fmt.Errorf("it must be a mapping of KIND.GROUP to a condition or a status: %w", err)
	}
	for name, status := range all {
		written, err := yaml.Marshal(status)
		if err != nil {
			return err
		}
		if err := r.add(name, string(written)); err != nil {
			return err
		}
	}
	return nil
}

func (r ReadyRules) add(name, status string) error {
	kind := schema.ParseGroupKind(name)
	if kind.Kind == "" || kind.Group == "" {
		return fmt.Errorf("%q is not a kind of custom resources: write KIND.GROUP, as in Certificate.cert-manager.io",
			name)
	}
	var value any
	if err := yaml.Unmarshal([]byte(status), &value); err != nil {
		return fmt.Errorf("%s: the status is not valid YAML: %w", name, err)
	}
	switch value := value.(type) {
	case map[string]any:
		r[kind] = value
	case string:
		condition := map[string]any{
			"type":               value,
			"status":             "True",
			"reason":             "Rehearsal",
			"message":            "",
			"lastTransitionTime": "2000-01-01T00:00:00Z",
		}
		r[kind] = map[string]any{"conditions": []any{condition}}
	default:
		return fmt.Errorf("%s: %q is neither the name of a condition nor a status such as {phase: Ready}", name, status)
	}
	return nil
}

func (r ReadyRules) has(kind schema.GroupKind) bool { return r[kind] != nil }

// kinds returns the kinds in a stable order.
func (r ReadyRules) kinds() []schema.GroupKind {
	var all []schema.GroupKind
	for kind := range r {
		all = append(all, kind)
	}
	slices.SortFunc(all, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return all
}
