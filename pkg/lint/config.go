package lint

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/runlevel/runlevel/pkg/printable"
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

// Known are names that are not in the payload, and are there all the same.
type Known struct {
	Namespaces   []string `yaml:"namespaces"`
	Capabilities []string `yaml:"capabilities"`
	FeatureSets  []string `yaml:"featureSets"`
	FeatureGates []string `yaml:"featureGates"`
}

// UnmarshalYAML keeps the line, to tell of an Ignore that no longer ignores anything.
func (i *Ignore) UnmarshalYAML(node *yaml.Node) error {
	type plain Ignore // without this method
	for at := 0; at+1 < len(node.Content); at += 2 {
		if key := node.Content[at]; !slices.Contains([]string{"rule", "file", "object", "reason"}, key.Value) {
			return fmt.Errorf("line %d: an entry of ignore has rule, file, object and reason, and no %s", key.Line, key.Value)
		}
	}
	if err := node.Decode((*plain)(i)); err != nil {
		return err
	}
	i.line = node.Line
	return nil
}

// ParseConfig reads a configuration. The file is the name to tell of it.
func ParseConfig(file string, text []byte) (Config, error) {
	config := Config{file: file}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&config); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%s: %s", file, printable.Line(explain(err)))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf(`%s: there must be one document only: drop what comes behind "---"`, file)
	}
	if err := config.check(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", file, err)
	}
	return config, nil
}

// How the YAML library tells of a key that there isn't, and of a value that does not fit.
var (
	notFound  = regexp.MustCompile(`line (\d+): field (.*) not found in type lint\.(\w+)`)
	wrongType = regexp.MustCompile(`line (\d+): cannot unmarshal .* into (\S+)$`)
)

// explain is the message of the YAML library in words for people.
func explain(err error) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  ")
	text, _, _ = strings.Cut(text, "\n")
	if found := notFound.FindStringSubmatch(text); found != nil {
		keys := map[string]string{
			"Config":       "kubernetesVersion, severities, ignore and known",
			"Known":        "namespaces, capabilities, featureSets and featureGates",
			"baselineText": "version and findings",
		}
		return fmt.Sprintf("line %s: there is no key %q here: there are %s", found[1], found[2], keys[found[3]])
	}
	if found := wrongType.FindStringSubmatch(text); found != nil {
		wanted := map[string]string{"string": "a string", "lint.Severity": "a string", "[]string": "a list of names", "[]*lint.Ignore": "a list of entries", "[]*lint.baselineEntry": "a list of entries", "int": "a number"}
		return fmt.Sprintf("line %s: this must be %s", found[1], cmp.Or(wanted[found[2]], "a mapping"))
	}
	return text
}

// check says what of a configuration can't be meant.
func (c Config) check() error {
	if _, err := version.ParseGeneric(c.KubernetesVersion); c.KubernetesVersion != "" && err != nil {
		return fmt.Errorf("kubernetesVersion is %q, and must be a version such as 1.34", c.KubernetesVersion)
	}
	for _, id := range sortedKeys(c.Severities) {
		if _, found := FindRule(id); !found {
			return fmt.Errorf("severities: there is no rule %q%s", id, DidYouMean(id))
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
			return fmt.Errorf("line %d: %q is no pattern for files: write one such as 0000_50_web_*.yaml", ignore.line, ignore.File)
		}
	}
	return nil
}

// IsAhead says whether the release is for a Kubernetes that is newer than any that is
// known here, so that its kinds can't be known.
func (c Config) IsAhead() bool { return newestKubernetes().LessThan(c.kubernetes()) }

// DidYouMean is a hint at the rule whose name is nearest, if one is near.
func DidYouMean(id string) string {
	best, closest := "", 4
	for _, rule := range Rules() {
		if d := printable.EditDistance(rule.ID, id); d < closest {
			best, closest = rule.ID, d
		}
	}
	if best == "" {
		return `: "runlevel explain" lists them`
	}
	return fmt.Sprintf(": did you mean %s?", best)
}

// severity is that of a rule.
func (c Config) severity(rule Rule) Severity {
	if severity, set := c.Severities[rule.ID]; set {
		return severity
	}
	return rule.Severity
}

// kubernetes is the version that the release is for.
func (c Config) kubernetes() *version.Version {
	if asked, err := version.ParseGeneric(c.KubernetesVersion); err == nil {
		return asked
	}
	return newestKubernetes()
}
