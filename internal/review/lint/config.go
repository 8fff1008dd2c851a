package lint

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// A Config sets severities, and lists findings to ignore and known names. Its zero value is the default.
type Config struct {
	// KubernetesVersion is the version that the release is for, as in 1.34. Empty
	// means the newest that Runlevel knows.
	KubernetesVersion string `yaml:"kubernetesVersion"`
	// Severities overrides the severities of rules.
	Severities map[string]Severity `yaml:"severities"`
	// Ignore findings.
	Ignore []*Ignore `yaml:"ignore"`
	// Known are names that the release need not explain.
	Known Known `yaml:"known"`

	file string
}

// An Ignore names findings to ignore, and the reason.
type Ignore struct {
	Rule   string `yaml:"rule"`
	File   string `yaml:"file"`   // a pattern such as 0000_50_web_*.yaml; all files, if it is empty
	Object string `yaml:"object"` // as in ConfigMap web/settings; all objects, if it is empty
	Reason string `yaml:"reason"`

	line int
}

// Known are names that exist without being in the payload.
type Known struct {
	Namespaces   []string `yaml:"namespaces"`
	Capabilities []string `yaml:"capabilities"`
	FeatureSets  []string `yaml:"featureSets"`
	FeatureGates []string `yaml:"featureGates"`
	Objects      []string `yaml:"objects"` // objects created by others, such as Secret shop/certificate
}

// UnmarshalYAML refuses unknown keys.
func (c *Config) UnmarshalYAML(node *yaml.Node) error {
	type rawConfig Config // without this method
	return decodeMapping(node, (*rawConfig)(c), "kubernetesVersion", "severities", "ignore", "known")
}

// UnmarshalYAML refuses unknown keys.
func (k *Known) UnmarshalYAML(node *yaml.Node) error {
	type rawKnown Known // without this method
	return decodeMapping(node, (*rawKnown)(k), "namespaces", "capabilities", "featureSets", "featureGates", "objects")
}

// UnmarshalYAML records the line, for the finding about an Ignore that no longer ignores anything.
func (i *Ignore) UnmarshalYAML(node *yaml.Node) error {
	type rawIgnore Ignore // without this method
	i.line = node.Line
	return decodeMapping(node, (*rawIgnore)(i), "rule", "file", "object", "reason")
}

// ParseConfig reads a configuration. The file is its name in errors and findings.
func ParseConfig(file string, text []byte) (Config, error) {
	config := Config{file: file}
	root, err := parseFile(text)
	if err == nil && root != nil {
		err = root.Decode(&config)
	}
	if err != nil {
		return Config{}, fmt.Errorf("%s: %s", file, explain(err))
	}
	if err := config.check(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", file, err)
	}
	return config, nil
}

// parseFile parses a file without repeated keys; the node is nil when it is empty.
func parseFile(text []byte) (*yaml.Node, error) {
	root, syntax := yamltext.ParseFile(text)
	switch {
	case syntax != nil && syntax.Line > 0:
		return nil, fmt.Errorf("line %d: %w", syntax.Line, syntax)
	case syntax != nil:
		return nil, syntax
	case root == nil:
		return nil, nil
	}
	for _, repeated := range yamltext.RepeatedKeys(root) {
		return nil, fmt.Errorf("line %d: the key %q occurs twice: leave one out", repeated.Line, repeated.Key)
	}
	return root, nil
}

// decodeMapping decodes a mapping that must have no other keys than these.
func decodeMapping(node *yaml.Node, into any, keys ...string) error {
	for i := 0; i+1 < len(node.Content) && node.Kind == yaml.MappingNode; i += 2 {
		if key := node.Content[i]; !slices.Contains(keys, key.Value) {
			last := len(keys) - 1
			return fmt.Errorf("line %d: unknown key %q here: there are %s and %s", key.Line, key.Value,
				strings.Join(keys[:last], ", "), keys[last])
		}
	}
	return node.Decode(into)
}

// wrongType is the message of the YAML library about a value of the wrong type.
var wrongType = regexp.MustCompile(`line (\d+): cannot unmarshal .* into (\S+)$`)

// explain translates an error of the YAML library into a line for users.
func explain(err error) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  ")
	text, _, _ = strings.Cut(text, "\n")
	if found := wrongType.FindStringSubmatch(text); found != nil {
		wanted := map[string]string{
			"string":                "a string",
			"lint.Severity":         "a string",
			"[]string":              "a list of names",
			"[]*lint.Ignore":        "a list of entries",
			"[]*lint.baselineEntry": "a list of entries",
			"int":                   "a number",
		}
		text = fmt.Sprintf("line %s: this must be %s", found[1], cmp.Or(wanted[found[2]], "a mapping"))
	}
	return printable.Line(text)
}

// check returns an error for the first invalid value of a configuration.
func (c Config) check() error {
	if _, err := version.ParseGeneric(c.KubernetesVersion); c.KubernetesVersion != "" && err != nil {
		return fmt.Errorf("kubernetesVersion is %q, and must be a version such as 1.34", c.KubernetesVersion)
	}
	for _, id := range sortedKeys(c.Severities) {
		if _, found := FindRule(id); !found {
			return fmt.Errorf("severities: unknown rule %q%s", id, DidYouMean(id))
		}
		if severity := c.Severities[id]; severity.rank() < 0 {
			return fmt.Errorf("severities: %s is %q, and must be one of error, warning, info, off", id, severity)
		}
	}
	for _, ignore := range c.Ignore {
		if ignore == nil {
			return errors.New("ignore has an empty entry: write a rule and a reason, or drop it")
		}
		if _, err := path.Match(ignore.File, ""); err != nil {
			return fmt.Errorf("line %d: %q is not a pattern for files: write one such as 0000_50_web_*.yaml",
				ignore.line,
				ignore.File)
		}
	}
	return nil
}

// IsAhead reports whether the release is for a Kubernetes newer than the built-in one, which may have other
// kinds.
func (c Config) IsAhead() bool { return newestKubernetes().LessThan(c.kubernetes()) }

// DidYouMean returns a hint at the rule with the most similar name, or at the command that lists all rules.
func DidYouMean(id string) string {
	var known []string
	for _, rule := range Rules() {
		known = append(known, rule.ID)
	}
	if best := printable.Nearest(id, known, 4); best != "" {
		return fmt.Sprintf(": did you mean %s?", best)
	}
	return `: "runlevel explain" lists them`
}

// severity returns the configured severity of a rule, or its default.
func (c Config) severity(rule Rule) Severity {
	if severity, set := c.Severities[rule.ID]; set {
		return severity
	}
	return rule.Severity
}

// kubernetes returns the version that the release is for.
func (c Config) kubernetes() *version.Version {
	if configured, err := version.ParseGeneric(c.KubernetesVersion); err == nil {
		return configured
	}
	return newestKubernetes()
}
