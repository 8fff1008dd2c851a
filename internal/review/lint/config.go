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

	"github.com/runlevel/runlevel/internal/text/printable"
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
	i.line = node.Line
	return decodeEntry(node, "ignore", []string{"rule", "file", "object", "reason"}, (*plain)(i))
}

// ParseConfig reads a configuration. The file is the name to tell of it.
func ParseConfig(file string, text []byte) (Config, error) {
	config := Config{file: file}
	if err := decodeDocument(text, &config); err != nil {
		return Config{}, fmt.Errorf("%s: %s", file, printable.Line(err.Error()))
	}
	if err := config.check(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", file, err)
	}
	return config, nil
}

// decodeDocument decodes the one document of a file, whose keys must all be known. A file may be empty.
func decodeDocument(text []byte, into any) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return errors.New(explain(err))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New(`there must be one document only: drop what comes behind "---"`)
	}
	return nil
}

// decodeEntry decodes an entry of a list, which has no keys but some.
func decodeEntry(node *yaml.Node, list string, keys []string, into any) error {
	for at := 0; at+1 < len(node.Content); at += 2 {
		if key := node.Content[at]; !slices.Contains(keys, key.Value) {
			last := len(keys) - 1
			return fmt.Errorf("line %d: an entry of %s has %s and %s, and no %s", key.Line, list, strings.Join(keys[:last], ", "), keys[last], key.Value)
		}
	}
	return node.Decode(into)
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
	var known []string
	for _, rule := range Rules() {
		known = append(known, rule.ID)
	}
	if best := printable.Nearest(id, known, 4); best != "" {
		return fmt.Sprintf(": did you mean %s?", best)
	}
	return `: "runlevel explain" lists them`
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
