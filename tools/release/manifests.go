package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// noRelease is the argument of install.yaml that users replace. An operator refuses to start with it, since a release
// is named by digest.
const noRelease = "--release-image=RELEASE"

const installHead = `# The operator of Runlevel %[1]s, which needs a release in place of RELEASE:
#
#   sed 's|=RELEASE|=registry.example/shop@sha256:DIGEST|' install.yaml | kubectl apply --server-side -f -
#
# "runlevel install" finds the digest by itself.
`

const machinesHead = `# The machine controller of Runlevel %[1]s: kubectl apply --server-side -f machines.yaml
#
# The definitions of Cluster API (cluster.x-k8s.io) are among the objects: on a cluster with another Cluster API, apply
# the release instead, without these capabilities.
`

// manifestFiles returns the files of the manifests of the operator (install) or the machine controller (manifests).
func (d *draft) manifestFiles(folder, pattern string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(d.source, folder, pattern))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no files %s", filepath.Join(d.source, folder), pattern)
	}
	return files, err
}

// writeManifests writes install.yaml and machines.yaml, with the image by digest.
func writeManifests(_ context.Context, d *draft) error {
	operator, err := d.manifestFiles("install", "0000_*.yaml")
	if err != nil {
		return err
	}
	machines, err := d.manifestFiles("manifests", "0000_*.yaml")
	if err != nil {
		return err
	}
	reported, err := d.manifestFiles("install", "0000_*_clusteroperators.crd.yaml") // by the machine controller
	if err != nil {
		return err
	}
	if err := d.join("install.yaml", installHead, operator); err != nil {
		return err
	}
	return d.join("machines.yaml", machinesHead, append(reported, machines...))
}

// join writes manifests into one file, with the values of this release. ClusterOperators are left out: kubectl finds
// no mapping for their kind before the definition is applied, and each controller creates its own.
func (d *draft) join(name, head string, files []string) error {
	values := strings.NewReplacer("registry.example/runlevel:placeholder", d.imageByDigest(),
		"--release-image={{.ReleaseImage}}", noRelease, "0.0.1-snapshot", strings.TrimPrefix(d.version, "v"))
	text := fmt.Appendf(nil, head, d.version)
	for _, file := range files {
		if strings.HasSuffix(file, "_clusteroperator.yaml") {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		content = bytes.TrimSpace(bytes.TrimPrefix(content, []byte("---\n")))
		text = fmt.Appendf(text, "---\n%s\n", values.Replace(string(content)))
	}
	return os.WriteFile(filepath.Join(d.folder, name), text, 0o644)
}

// writeSchemas writes the JSON schemas of output and settings, in schemas, and of the kinds that Runlevel defines, in
// crds, by the names that kubeconform looks for.
func writeSchemas(_ context.Context, d *draft) error {
	folder := filepath.Join(d.scratch, "schemas")
	documents, kinds := os.DirFS(filepath.Join(d.source, "docs", "schemas")), filepath.Join(folder, "crds")
	if err := errors.Join(os.CopyFS(filepath.Join(folder, "schemas"), documents), os.Mkdir(kinds, 0o755)); err != nil {
		return err
	}
	for _, source := range []string{"install", "manifests"} {
		files, err := d.manifestFiles(source, "0000_*.crd.yaml")
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := writeKinds(kinds, file); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return writeArchive(filepath.Join(d.folder, "schemas.tar.gz"), folder, d.time)
}

// writeKinds writes the schemas of the versions of a definition, as KIND-GROUP-VERSION.json with the first part of the
// group.
func writeKinds(folder, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &definition); err != nil {
		return err
	}
	group, _, _ := strings.Cut(definition.Spec.Group, ".")
	for _, version := range definition.Spec.Versions {
		raw, err := json.Marshal(version.Schema.OpenAPIV3Schema)
		if err != nil {
			return err
		}
		var schema map[string]any
		if err := json.Unmarshal(raw, &schema); err != nil {
			return err
		}
		convertSchema(schema)
		schema["$schema"] = "http://json-schema.org/draft-07/schema#"
		if raw, err = json.MarshalIndent(schema, "", "  "); err != nil {
			return err
		}
		name := strings.ToLower(fmt.Sprintf("%s-%s-%s.json", definition.Spec.Names.Kind, group, version.Name))
		if err := os.WriteFile(filepath.Join(folder, name), append(raw, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// convertSchema converts the schema of an API to JSON Schema: an API server prunes unknown fields, and a nullable value
// has a second type.
func convertSchema(value any) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			convertSchema(item)
		}
	case map[string]any:
		properties, isObject := value["properties"].(map[string]any)
		kind, isTyped := value["type"].(string)
		if _, isOpen := value["additionalProperties"]; isObject && isTyped && !isOpen &&
			value["x-kubernetes-preserve-unknown-fields"] != true {
			value["additionalProperties"] = false
		}
		if value["nullable"] == true && isTyped {
			value["type"] = []any{kind, "null"}
		}
		for _, field := range properties {
			convertSchema(field)
		}
		for _, field := range []string{"items", "additionalProperties", "allOf", "anyOf", "oneOf", "not"} {
			convertSchema(value[field])
		}
	}
}
