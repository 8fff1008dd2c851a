package build

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/component"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/yamltext"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ConfigFile is the name of the file that describes a build, in the built folder.
const ConfigFile = "release.yaml"

// A Config is the content of release.yaml.
type Config struct {
	Name       string            `yaml:"name"`
	Version    string            `yaml:"version"`
	Previous   []string          `yaml:"previous"`
	Channels   []string          `yaml:"channels"`
	Components []Component       `yaml:"components"`
	Images     map[string]string `yaml:"images"`

	path    string
	text    []byte
	changed time.Time
	places  *yamltext.FieldPlaces
}

// A Component is the source of the manifests of one component.
type Component struct {
	Name   string `yaml:"name"`
	Source string `yaml:"source"`
}

// fieldNames are the fields of the types.
var fieldNames = map[string][]string{
	"Config":    {"name", "version", "previous", "channels", "components", "images"},
	"Component": {"name", "source"},
}

const anExample = `"runlevel release build --help" has an example`

// ReadConfig reads the file of a path, or release.yaml of a folder. Its error has a line for each problem.
func ReadConfig(path string) (*Config, error) {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		path = filepath.Join(path, ConfigFile)
		info, err = os.Stat(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: a file describes the release: %s", err, anExample)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &Config{path: path, text: text, changed: info.ModTime()}
	return c, errors.Join(c.parse()...)
}

// parse sets the fields, and returns the problems of the text.
func (c *Config) parse() []error {
	root, syntax := yamltext.ParseFile(c.text)
	if odd := yamltext.OddBreak(bytes.TrimPrefix(c.text, []byte("\ufeff"))); odd >= 0 {
		line := yamltext.LineAt(c.text, int64(odd))
		return []error{c.problemAt(line, "it has a line break of an unusual kind: write a line feed")}
	}
	if syntax != nil {
		return []error{c.problemAt(max(syntax.Line, 1), "%s", syntax.Message)}
	}
	c.places = yamltext.NewPlaces(root)
	decoder := yaml.NewDecoder(bytes.NewReader(c.text))
	decoder.KnownFields(true)
	var wrong *yaml.TypeError
	if root == nil {
		return []error{c.problemAt(1, "it is empty: %s", anExample)}
	} else if err := decoder.Decode(c); errors.As(err, &wrong) {
		var problems []error
		for _, message := range wrong.Errors {
			problems = append(problems, c.explain(message))
		}
		return problems
	} else if err != nil {
		return []error{c.problemAt(0, "%w", err)}
	}
	return slices.Concat(c.check(), c.checkComponents(), c.checkImages())
}

var unknownField = regexp.MustCompile(`^field (.*) not found in type build\.(\w+)$`)

// explain returns the problem that a message of the decoder means.
func (c *Config) explain(message string) error {
	wrong := yamltext.ErrorOf(errors.New(message))
	if unknown := unknownField.FindStringSubmatch(wrong.Message); unknown != nil {
		known := fieldNames[unknown[2]]
		if near := printable.Nearest(unknown[1], known, 3); near != "" {
			return c.problemAt(wrong.Line, "unknown field %s: write %s", unknown[1], near)
		}
		return c.problemAt(wrong.Line, "unknown field %s: the fields are %s", unknown[1], strings.Join(known, ", "))
	}
	if strings.HasPrefix(wrong.Message, "mapping key") {
		return c.problemAt(wrong.Line, "%s: remove one", wrong.Message)
	}
	for _, list := range []string{"previous", "channels"} {
		if node := c.places.Node(list); node != nil && node.Line == wrong.Line && node.Kind == yaml.ScalarNode {
			return c.problemAt(wrong.Line, "%s: write a list, as in [%s]", list, node.Value)
		}
	}
	return c.problemAt(wrong.Line, "a value has the wrong type: %s", anExample)
}

// check returns problems with the release itself.
func (c *Config) check() (problems []error) {
	add := func(field []string, format string, values ...any) {
		problems = append(problems, c.problem(field, format, values...))
	}
	if len(validation.IsDNS1123Label(c.Name)) > 0 {
		add([]string{"name"}, "name: write up to 63 lower-case letters, digits and dashes, as in shop")
	}
	if !payload.IsVersion(c.Version) || oci.CheckTag(c.Version) != nil {
		add([]string{"version"},
			"version: write a semantic version of at most 128 characters without build metadata, as in 1.4.0")
	}
	for i, version := range c.Previous {
		field := []string{"previous", fmt.Sprint(i)}
		if !payload.IsVersion(version) {
			add(field, "previous: %q is not a semantic version: write one such as 1.3.2", version)
		} else if version == c.Version || slices.Contains(c.Previous[:i], version) {
			add(field, "previous: %s is the release itself, or occurs twice: remove it", version)
		}
	}
	for i, channel := range c.Channels {
		if channel == "" || strings.ContainsAny(channel, ", \t\n") {
			add([]string{"channels", fmt.Sprint(i)}, "channels: %q has a comma or blank, or is empty: rename it",
				channel)
		}
	}
	return problems
}

// checkComponents returns problems with the names and sources of components.
func (c *Config) checkComponents() (problems []error) {
	if len(c.Components) == 0 {
		return []error{c.problem(nil, "components: a release needs components, as in {name: web, source: ./web}")}
	}
	for i, entry := range c.Components {
		field := []string{"components", fmt.Sprint(i)}
		if err := component.CheckNames([]string{entry.Name}); entry.Name == "" || entry.Source == "" {
			problems = append(problems, c.problem(field, "a component needs both, as in {name: web, source: ./web}"))
		} else if err != nil {
			problems = append(problems, c.problem(field, "%w", err))
		} else if slices.ContainsFunc(c.Components[:i], func(e Component) bool { return e.Name == entry.Name }) {
			problems = append(problems, c.problem(field, "two components are named %s: rename one", entry.Name))
		}
	}
	return problems
}

// imageName matches what the name of an image in image-references can be, which is a tag of an ImageStream.
var imageName = regexp.MustCompile(`^\w[\w.-]{0,127}$`)

// checkImages returns problems with the names of images, and with what can't be an image.
func (c *Config) checkImages() (problems []error) {
	for _, name := range sortedKeys(c.Images) {
		err := checkImage(c.Images[name])
		if !imageName.MatchString(name) {
			err = errors.New("its name must be of letters, digits, dashes, dots and underscores")
		}
		if err != nil {
			problems = append(problems, c.problem([]string{"images", name}, "image %s: %w", name, err))
		}
	}
	return problems
}

// problem returns the problem of a field, with its line.
func (c *Config) problem(field []string, format string, values ...any) error {
	line, _ := c.places.At(field...)
	return c.problemAt(line, format, values...)
}

func (c *Config) problemAt(line int, format string, values ...any) error {
	return problemAt(c.path, line, 0, format, values...)
}

// problemAt returns an error that names a file, and its line and column unless they are 0.
func problemAt(file string, line, column int, format string, values ...any) error {
	place := filepath.ToSlash(file)
	for _, number := range []int{line, column} {
		if number > 0 {
			place += fmt.Sprintf(":%d", number)
		}
	}
	return errors.New(printable.Line(fmt.Sprintf("%s: %s", place, fmt.Errorf(format, values...))))
}

func sortedKeys[V any](values map[string]V) []string { return slices.Sorted(maps.Keys(values)) }
