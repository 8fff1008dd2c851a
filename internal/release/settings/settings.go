// Package settings reads runlevel.yaml, a file beside the manifests of a release. The file has the name and the version
// of the release, and values for flags that the command line does not set.
//
// The package reads no manifests, and decides nothing: package loader puts the values in the place of unset flags. The
// file may come from an untrusted archive, so no setting skips a check, selects a cluster, or overwrites fields of
// other managers.
//
// Start with Read.
package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/yamltext"
	"github.com/runlevel/runlevel/pkg/payload"
)

// FolderSettings are the content of runlevel.yaml.
type FolderSettings struct {
	Name         string   `yaml:"name"`
	Version      string   `yaml:"version"`
	Namespace    string   `yaml:"namespace"` // namespace of objects without one
	Profile      string   `yaml:"profile"`
	FeatureSet   string   `yaml:"featureSet"`
	FeatureGates []string `yaml:"featureGates"`
	Capabilities []string `yaml:"capabilities"`
	Exclude      string   `yaml:"exclude"`
	Unmanaged    []string `yaml:"unmanaged"`

	// These are only taken from a folder on this machine.
	KeepFiles  string `yaml:"keepFiles"`
	HistoryMax int    `yaml:"historyMax"`

	places  *yamltext.FieldPlaces
	unknown payload.Problems // the first unknown field; empty if all are known
}

// examples has each field as it is written.
var examples = map[string]string{
	"name": "name: shop", "version": "version: 1.4.0", "namespace": "namespace: shop", "profile": "profile: production",
	"featureSet": "featureSet: TechPreviewNoUpgrade", "featureGates": "featureGates: [Fast]",
	"capabilities": "capabilities: [None, Console]",
	"exclude":      "exclude: edge", "unmanaged": "unmanaged: [ConfigMap/shop/settings]",
	"keepFiles": "keepFiles: none", "historyMax": "historyMax: 10",
}

// Read reads the settings of a release; they are empty without the file. Its error is that of payload.Refuse, with one
// problem. An unknown field is marked as IsNewer unless it is misspelt; if this is the only problem, the other settings
// are returned, too.
func Read(files fs.FS) (FolderSettings, error) {
	var s FolderSettings
	text, err := fs.ReadFile(files, payload.SettingsFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil:
		return s, problem(0, "it can't be read: %v", err)
	}
	root, syntax := yamltext.ParseFile(text)
	if syntax != nil {
		return s, problem(syntax.Line, "%s", syntax.Message)
	}
	if root == nil {
		return s, nil
	}
	if root.Kind != yaml.MappingNode {
		return s, problem(root.Line, "it must have fields, as in %q", examples["name"])
	}
	if repeated := yamltext.RepeatedKeys(root); len(repeated) > 0 {
		return s, problem(repeated[0].Line, "the field %s occurs twice: leave one out", repeated[0].Key)
	}
	s.places = yamltext.NewPlaces(root)
	if err := s.decode(root); err != nil {
		return s, err
	}
	if err := s.check(files); err != nil {
		return s, err
	}
	return s, payload.Refuse(s.unknown)
}

// decode sets the fields of a mapping.
func (s *FolderSettings) decode(root *yaml.Node) error {
	fields := reflect.ValueOf(s).Elem()
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if examples[key.Value] == "" {
			unknown := payload.Problems{unknownField(key)}
			if !unknown.AreNewer() {
				return payload.Refuse(unknown)
			}
			s.unknown = append(s.unknown, unknown...)[:1]
			continue
		}
		into := fields.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, key.Value) })
		if !isOfType(value, into.Kind()) || value.Decode(into.Addr().Interface()) != nil {
			return problem(key.Line, "%s can't have this value: write it as in %q", key.Value, examples[key.Value])
		}
	}
	return nil
}

// isOfType reports whether a value has the type of a field, without the conversions of YAML.
func isOfType(value *yaml.Node, kind reflect.Kind) bool {
	switch kind {
	case reflect.Int:
		return value.ShortTag() == "!!int"
	case reflect.String:
		return value.ShortTag() == "!!str" && value.Value != ""
	default:
		return value.Kind == yaml.SequenceNode &&
			!slices.ContainsFunc(value.Content, func(item *yaml.Node) bool { return !isOfType(item, reflect.String) })
	}
}

// unknownField returns the problem of a field that the file can't have.
func unknownField(key *yaml.Node) payload.Problem {
	known := slices.Sorted(maps.Keys(examples))
	switch near := printable.Nearest(strings.ReplaceAll(key.Value, "-", ""), known, 3); {
	case near != "":
		return problemAt(key.Line, "unknown field %s: write %s", key.Value, near)
	case key.Value == "apiVersion" || key.Value == "kind" || key.Value == "metadata":
		return problemAt(key.Line, "%s is of a manifest, and this file has the settings of the folder: give the "+
			"manifest's file another name", key.Value)
	case key.Value == "values" || key.Value == "set" || key.Value == "environment":
		return problemAt(key.Line, "unknown field %s: manifests have no values; variants for environments are "+
			"chosen by profile (runlevel help environments)", key.Value)
	default:
		unknown := problemAt(key.Line, "unknown field %s: it can have %s; everything else is a flag of the command, "+
			"or a setting of a newer runlevel", key.Value, strings.Join(known, ", "))
		unknown.IsNewer = true
		return unknown
	}
}

// check refuses values that the flags would refuse, and those that can't be used beside other files.
func (s *FolderSettings) check(files fs.FS) error {
	hasMetadata := exists(files, payload.MetadataFile) || exists(files, payload.ReleaseFolder)
	_, err := payload.ParseCapabilities(strings.Join(s.Capabilities, ","))
	switch {
	case s.Name != "" && len(validation.IsDNS1123Label(s.Name)) > 0:
		return s.Problem("name", "%q can't be a name: use up to 63 lower-case letters, digits and dashes, with a "+
			"letter or digit at both ends", s.Name)
	case s.Namespace != "" && len(validation.IsDNS1123Label(s.Namespace)) > 0:
		return s.Problem("namespace",
			"%q can't be a namespace: use up to 63 lower-case letters, digits and dashes, with a letter or digit at "+
				"both ends", s.Namespace)
	case s.Version != "" && hasMetadata:
		return s.Problem("version", "the version is already set in %s: remove it here", payload.MetadataFile)
	case s.Version != "" && !payload.IsVersion(s.Version):
		return s.Problem("version", "%q is not a semantic version such as 1.2.3", s.Version)
	case s.Capabilities != nil && err != nil:
		return s.Problem("capabilities", "%v", err)
	case s.KeepFiles != "" && s.KeepFiles != "full" && s.KeepFiles != "none":
		return s.Problem("keepFiles", "%q can't be used: write full or none", s.KeepFiles)
	case s.places.Node("historyMax") != nil && (s.HistoryMax < 1 || s.HistoryMax > 100):
		return s.Problem("historyMax", "%d can't be used: write a number from 1 to 100", s.HistoryMax)
	}
	return nil
}

// exists reports whether a release has a file or folder.
func exists(files fs.FS, name string) bool {
	_, err := fs.Stat(files, name)
	return err == nil
}

// Problem returns the problem of a field, with its line.
func (s *FolderSettings) Problem(field, format string, args ...any) error {
	line, _ := s.places.At(field)
	return problem(line, field+": "+format, args...)
}

func problem(line int, format string, args ...any) error {
	return payload.Refuse([]payload.Problem{problemAt(line, format, args...)})
}

func problemAt(line int, format string, args ...any) payload.Problem {
	return payload.Problem{
		File:    payload.SettingsFile,
		Line:    line,
		Cause:   payload.Mislabelled,
		Message: fmt.Sprintf(format, args...),
	}
}
