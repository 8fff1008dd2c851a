// Package chart writes the Helm charts of the operator and of the machine controller.
//
// A chart has copies of the manifests of install/ or manifests/, with the version and the image of the release. The
// templates of this package, which both charts share, set the values in them. The package neither packs, renders nor
// installs charts: Helm does, in the tests of tools/helm.
//
// Start with Write.
package chart

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"
)

// templates are the files that a chart has beside the manifests. Their delimiters are [[ and ]], since Helm's own
// templates have {{ and }}.
//
//go:embed template
var templates embed.FS

// Names of the charts.
const (
	Operator = "runlevel-operator"
	Machines = "runlevel-machines"
)

// A Chart is the data of the templates.
type Chart struct {
	Name    string
	Version string // such as v0.1.0
	Image   string // by its digest
}

// IsOperator reports whether the chart is the one of the operator.
func (c Chart) IsOperator() bool { return c.Name == Operator }

// Number returns the version without "v", as Helm and the manifests have it.
func (c Chart) Number() string { return strings.TrimPrefix(c.Version, "v") }

// IsPrerelease reports whether the version is one before a release, such as v0.2.0-rc.1.
func (c Chart) IsPrerelease() bool { return strings.Contains(c.Version, "-") }

// Write writes the files of the chart to a folder. The source is the folder of Runlevel's repository.
func (c Chart) Write(source, folder string) error {
	manifests := filepath.Join(source, "manifests")
	if c.IsOperator() {
		manifests = filepath.Join(source, "install")
	}
	for pattern, target := range map[string]string{
		filepath.Join(manifests, "0000_*.yaml"):               "manifests",
		filepath.Join(manifests, "monitoring", "0000_*.yaml"): "monitoring",
		filepath.Join(manifests, "monitoring", "*.json"):      "monitoring",
		filepath.Join(source, "LICENSE"):                      ".",
	} {
		if err := c.copy(pattern, filepath.Join(folder, target)); err != nil {
			return err
		}
	}
	return fs.WalkDir(templates, "template", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := c.execute(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if name = strings.TrimPrefix(name, "template/"); name == "values.schema.yaml" {
			name = "values.schema.json"
			if text, err = yaml.YAMLToJSON(text); err != nil {
				return err
			}
		}
		return write(filepath.Join(folder, name), text)
	})
}

// copy copies files with the version and the image in place of those of the repository.
func (c Chart) copy(pattern, folder string) error {
	names, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	if len(names) == 0 && !strings.HasSuffix(pattern, ".json") { // only the operator has a dashboard
		return fmt.Errorf("no files %s", pattern)
	}
	values := strings.NewReplacer("0.0.1-snapshot", c.Number(), "registry.example/runlevel:placeholder", c.Image)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(folder, filepath.Base(name)), []byte(values.Replace(string(text)))); err != nil {
			return err
		}
	}
	return nil
}

// execute executes one of the templates.
func (c Chart) execute(name string) ([]byte, error) {
	text, err := templates.ReadFile(name)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New(name).Delims("[[", "]]").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, c)
	return out.Bytes(), err
}

// write writes a file, with its folder.
func write(path string, text []byte) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644))
}
