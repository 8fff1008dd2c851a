// Package chart writes the Helm charts of the operator and of the machine controller.
//
// A chart has unchanged copies of the manifests of install/ or manifests/. The templates of this package, which both
// charts share, set the values in them. The package neither renders nor installs charts: Helm does, in the tests of
// tools/helm.
//
// Start with Write.
package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/text/embedded"
)

// templates are the files of both charts. The delimiters are [[ and ]], since Helm's templates have {{ and }}.
//
//go:embed template
var templates embed.FS

// placeholder stands for the version in the manifests of a release.
const placeholder = "0.0.1-snapshot"

// A chart has the data for the templates of one chart.
type chart struct {
	Name        string
	ReleaseName string // in examples
	Description string
	Program     string
	Namespace   string
	Page        string // of the documentation
	Setting     string // example
	Keywords    []string
	IsOperator  bool
	folder      string // of the manifests, in the source

	Home    string
	Version string // without "v"
	Image   string // repository

	Deployment  appsv1.Deployment
	ApplyRules  []rbacv1.PolicyRule
	Definitions []definition
	Values      []value
}

// A definition is a CustomResourceDefinition as Artifact Hub lists it.
type definition struct{ Kind, Version, Name, Description string }

// Container returns the container of the Deployment.
func (c *chart) Container() corev1.Container { return c.Pod().Containers[0] }

// Pod returns the pods of the Deployment.
func (c *chart) Pod() corev1.PodSpec { return c.Deployment.Spec.Template.Spec }

// IsPrerelease reports whether the version is one before a release, such as 0.2.0-rc.1.
func (c *chart) IsPrerelease() bool { return strings.Contains(c.Version, "-") }

// charts returns the charts without what depends on the source and the version.
func charts() []*chart {
	return []*chart{{
		Name: "runlevel-operator", ReleaseName: "runlevel", Namespace: "runlevel-system", Program: "operator",
		Description: "The operator of Runlevel, which installs releases of many components on a cluster in order, " +
			"and updates and repairs them",
		Page: "install.md#with-helm", Setting: "profile: self-managed-high-availability", folder: "install",
		Keywords: []string{"releases", "updates", "operator", "cluster-version-operator"}, IsOperator: true,
	}, {
		Name: "runlevel-machines", ReleaseName: "machines", Namespace: "runlevel-machines",
		Description: "The machine controller of Runlevel, which creates, drains and deletes the machines of a cluster",
		Program:     "machine controller", Page: "machines.md#install", Setting: "namespaces: openshift-machine-api",
		Keywords: []string{"machines", "cluster-api", "machine-api", "nodes"}, folder: "manifests",
	}}
}

// Write writes both charts to a folder, as NAME-VERSION.tgz. The source is the folder of Runlevel's repository, and the
// image is a repository without a tag. The same input gives the same bytes.
func Write(source, folder, version, image string) error {
	for _, c := range charts() {
		c.Home, c.Version, c.Image = "https://github.com/runlevel/runlevel", strings.TrimPrefix(version, "v"), image
		files, err := c.files(source)
		if err != nil {
			return fmt.Errorf("chart %s: %w", c.Name, err)
		}
		archive, err := pack(c.Name, files)
		if err != nil {
			return fmt.Errorf("chart %s: %w", c.Name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, c.Name+"-"+c.Version+".tgz"), archive, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files returns the files of the chart, by their paths in it.
func (c *chart) files(source string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for target, pattern := range map[string]string{
		"manifests": c.folder + "/0000_*.yaml", "monitoring": c.folder + "/monitoring/0000_*.yaml",
	} {
		names, err := filepath.Glob(filepath.Join(source, pattern))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			text = bytes.ReplaceAll(text, []byte(placeholder), []byte(c.Version))
			files[path.Join(target, filepath.Base(name))] = text
		}
	}
	if c.IsOperator {
		dashboard, err := dashboard(filepath.Join(source, c.folder, "monitoring"))
		if err != nil {
			return nil, err
		}
		files["monitoring/dashboard.yaml"] = dashboard
	}
	licence, err := os.ReadFile(filepath.Join(source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	files["LICENSE"] = licence
	if err := c.read(embedded.Objects(os.DirFS(filepath.Join(source, c.folder)), "0000_*.yaml")); err != nil {
		return nil, err
	}
	return files, c.generate(files)
}

// read reads what the values and the description of the chart take from its objects.
func (c *chart) read(objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		switch object.GetKind() {
		case "Deployment":
			err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &c.Deployment)
			if err != nil {
				return err
			}
		case "ClusterRole":
			var role rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
				return err
			}
			if role.Name == "runlevel-operator-apply" {
				c.ApplyRules = role.Rules
			}
		case "CustomResourceDefinition":
			var crd apiextensionsv1.CustomResourceDefinition
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &crd); err != nil {
				return err
			}
			for _, version := range crd.Spec.Versions {
				if version.Storage {
					paragraph, _, _ := strings.Cut(version.Schema.OpenAPIV3Schema.Description, "\n\n")
					sentence, _, _ := strings.Cut(strings.ReplaceAll(paragraph, "\n", " "), ". ")
					c.Definitions = append(c.Definitions,
						definition{crd.Spec.Names.Kind, version.Name, crd.Name, sentence})
				}
			}
		}
	}
	return nil
}

// dashboard returns the ConfigMap that the kustomization of a folder generates.
func dashboard(folder string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var kustomization struct {
		ConfigMapGenerator []struct {
			Name, Namespace string
			Files           []string
			Options         struct{ Labels map[string]string }
		}
	}
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		return nil, err
	}
	generated := kustomization.ConfigMapGenerator[0]
	content, err := os.ReadFile(filepath.Join(folder, generated.Files[0]))
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": generated.Name, "namespace": generated.Namespace, "labels": generated.Options.Labels,
		},
		"data": map[string]string{generated.Files[0]: string(content)},
	})
}

// generate adds the files of the templates and of the values.
func (c *chart) generate(files map[string][]byte) error {
	schema, err := c.execute("values.schema.yaml")
	if err != nil {
		return err
	}
	var values []byte
	if c.Values, values, err = readValues(schema); err != nil {
		return err
	}
	files["values.yaml"] = values
	if files["values.schema.json"], err = toJSON(schema); err != nil {
		return err
	}
	for target, name := range map[string]string{
		"Chart.yaml": "Chart.yaml", "README.md": "README.md", "templates/NOTES.txt": "NOTES.txt",
	} {
		if files[target], err = c.execute(name); err != nil {
			return err
		}
	}
	files["templates/objects.yaml"], err = templates.ReadFile("template/objects.yaml")
	return err
}

// execute executes one of the templates.
func (c *chart) execute(name string) ([]byte, error) {
	parsed, err := template.New(name).Delims("[[", "]]").Funcs(template.FuncMap{
		"json": func(value any) (string, error) {
			text, err := json.Marshal(value)
			return string(text), err
		},
	}).ParseFS(templates, "template/"+name)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, c)
	return out.Bytes(), err
}

// pack returns an archive of the files in a folder. It has no times, so that the same files give the same bytes.
func pack(folder string, files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{
			Name: path.Join(folder, name), Mode: 0o644, Size: int64(len(files[name])), ModTime: time.Unix(0, 0),
		}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
